"""The section `condense.*`: how gradient matching learns a synthetic graph."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class CondenseConfig(Section):
    """Keys of gradient matching."""

    name: ClassVar[str] = "condense"
    steps: int = option(500, "matching epochs, each with a newly initialised network (T)", ge=1)
    outer: int = option(1, "matching steps per epoch; 1 = one-step matching", ge=1)
    inner: int = option(0, "training steps on the condensed graph between two matching steps", ge=0)
    feature_rate: float = option(0.01, "learning rate of Adam for the condensed features", gt=0)
    adjacency_rate: float = option(
        0.01, "learning rate of Adam for the network that generates the adjacency", gt=0
    )
    distance: str = option(
        "mse",
        "distance between gradients: column-wise cosine as in the public code (ours), squared "
        "error, or cosine",
        choices=("ours", "mse", "cos"),
    )
    released_code: bool = option(
        False, "gcond: order features and labels differently, as the public code does"
    )
