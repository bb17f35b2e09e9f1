"""The section `condense.*`: how gradient matching learns a synthetic graph."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class CondenseConfig(Section):
    """Keys of gradient matching; the budget is the shared `condensation-ratio`."""

    name: ClassVar[str] = "condense"
    steps: int = option(500, "matching epochs, each with a newly initialised network (T)", least=1)
    outer: int = option(1, "matching steps per epoch; 1 = one-step matching", least=1)
    inner: int = option(
        0,
        "training steps of the network on the condensed graph between two matching steps",
        least=0,
    )
    feature_rate: float = option(0.01, "learning rate of Adam for the condensed features", above=0)
    adjacency_rate: float = option(
        0.01, "learning rate of Adam for the network that generates the adjacency", above=0
    )
    distance: str = option(
        "mse",
        "distance between gradients; ours = column-wise cosine, as in the public code; mse = "
        "squared error; cos = cosine of the whole gradient",
        choices=("ours", "mse", "cos"),
    )
    released_code: bool = option(
        False,
        "gcond: order labels by class frequency but features by class number, the mismatch in "
        "the public code",
    )
