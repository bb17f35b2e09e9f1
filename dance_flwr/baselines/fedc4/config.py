"""The section `fedc4.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedC4Config(Section):
    """Keys of FedC4; those of the clients' condensation are `condense.*`."""

    name: ClassVar[str] = "fedc4"
    groups: int = option(2, "groups of clients that exchange condensed nodes", least=1)
    threshold: float = option(
        0.4,
        "a node is sent to clients whose mean embedding has a cosine above this with it; 1 = no "
        "exchange",
        least=-1,
        most=1,
    )
    rebuild: bool = option(
        True, "rebuild the graph at the server; false = the learned adjacency within each client"
    )
    similarity_weight: float = option(
        1.3, "weight of edges between dissimilar nodes in the rebuilt graph", least=0
    )
    sparsity_weight: float = option(0.26, "weight of all edges in the rebuilt graph", least=0)
    rebuild_steps: int = option(50, "optimisation steps per rebuilt graph", least=1)
    released_code: bool = option(
        False, "train the clients on their full graphs, as the public code does"
    )
