"""The section `condense.*`: how gradient matching learns a synthetic graph."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class CondenseConfig(Section):
    """Keys of gradient matching."""

    name: ClassVar[str] = "condense"
    steps: int = option(500, "matching epochs, each with a newly initialised network (T)", ge=1)
    # Squared distances by default, and one step per epoch: rates that were tuned for bag-of-words
    # do not transfer to embeddings of texts (docs/baselines.md).
    feature_rate: float = option(0.01, "learning rate of Adam for the condensed features", gt=0)
    adjacency_rate: float = option(
        0.01, "learning rate of Adam for the network that generates the adjacency", gt=0
    )
    # The public code's is "ours".
    distance: str = option(
        "mse",
        "distance between gradients: column-wise cosine as in the public code (ours), or squared "
        "error",
        choices=("ours", "mse"),
    )
