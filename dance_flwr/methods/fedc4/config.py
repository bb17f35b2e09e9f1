"""The keys of fedc4, `fedc4.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedC4Config(Section):
    """Keys of `fedc4`, `fedc4.*`; how clients condense is `condense.*`."""

    name: ClassVar[str] = "fedc4"
    groups: int = option(2, "groups of clients that exchange condensed nodes", least=1)
    threshold: float = option(
        0.4,
        "least cosine, itself excluded, of a node and a client's mean embedding; 1 = no exchange",
        least=-1,
        most=1,
    )
    rebuild: bool = option(
        True, "the server rebuilds the graph; false = the learnt adjacency within each client"
    )
    similarity_weight: float = option(
        1.3, "weight of edges between unlike nodes in the rebuilt graph", least=0
    )
    sparsity_weight: float = option(0.26, "weight of all edges in the rebuilt graph", least=0)
    rebuild_steps: int = option(50, "steps of rebuilding a graph", least=1)
    released_code: bool = option(
        False, "clients train on their full graphs, as the public code does"
    )
