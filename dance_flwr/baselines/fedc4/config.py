"""The section `fedc4.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedC4Config(Section):
    """Keys of FedC4."""

    name: ClassVar[str] = "fedc4"
    groups: int = option(2, "groups of clients that exchange condensed nodes", ge=1)
    threshold: float = option(
        0.4,
        "minimum cosine with a client's mean embedding for a node to be sent there; 1 = no "
        "exchange",
        ge=-1,
        le=1,
    )
    rebuild: bool = option(True, "rebuild the graph at the server; false = the learned adjacency")
    similarity_weight: float = option(
        1.3, "weight of edges between dissimilar nodes in the rebuilt graph", ge=0
    )
    sparsity_weight: float = option(0.26, "weight of all edges in the rebuilt graph", ge=0)
    rebuild_steps: int = option(50, "optimisation steps per rebuilt graph", ge=1)
    released_code: bool = option(False, "train on the full graphs, as the public code does")
