"""The section `condense.*`: how gradient matching learns a synthetic graph."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class CondenseConfig(Section):
    """Keys of gradient matching."""

    name: ClassVar[str] = "condense"
    steps: int = option(500, "matching epochs, each with a newly initialised network (T)", ge=1)
    # One-step matching of squared distances by default: rates that were tuned for bag-of-words do
    # not transfer to embeddings of texts (docs/baselines.md).
    outer: int = option(1, "matching steps per epoch; 1 = one-step matching", ge=1)
    inner: int = option(0, "training steps on the condensed graph between two matching steps", ge=0)
    feature_rate: float = option(0.01, "learning rate of Adam for the condensed features", gt=0)
    adjacency_rate: float = option(
        0.01, "learning rate of Adam for the network that generates the adjacency", gt=0
    )
    # The public code's is "ours".
    distance: str = option(
        "mse",
        "distance between gradients: column-wise cosine as in the public code (ours), squared "
        "error, or cosine",
        choices=("ours", "mse", "cos"),
    )
    # Its issue 17: labels are ordered by the frequency of the class, first features by its number.
    released_code: bool = option(
        False, "gcond: order features and labels differently, as the public code does"
    )
