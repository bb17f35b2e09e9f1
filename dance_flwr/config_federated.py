"""The sections of baselines that condense at the clients and go on with the condensed graphs at the server."""

from dataclasses import dataclass

from dance_flwr.config_sections import option


@dataclass(frozen=True)
class FedGmConfig:
    """Keys of `fedgm`, `fedgm.*`; how clients condense is `condense.*`."""

    feature_rate: float = option(0.01, "Adam learning rate of the condensed features at the server", above=0)
    train_every: int = option(10, "rounds between trainings of the deployed network at the server", least=1)
    train_steps: int = option(50, "steps of such a training, from a new start", least=1)


@dataclass(frozen=True)
class FedC4Config:
    """Keys of `fedc4`, `fedc4.*`; how clients condense is `condense.*`."""

    groups: int = option(2, "groups of clients that exchange condensed nodes", least=1)
    threshold: float = option(
        0.4, "least cosine, itself excluded, of a node and a client's mean embedding; 1 = no exchange", least=-1, most=1
    )
    rebuild: bool = option(True, "the server rebuilds the graph; false = the learnt adjacency within each client")
    similarity_weight: float = option(1.3, "weight of edges between unlike nodes in the rebuilt graph", least=0)
    sparsity_weight: float = option(0.26, "weight of all edges in the rebuilt graph", least=0)
    rebuild_steps: int = option(50, "steps of rebuilding a graph", least=1)
    released_code: bool = option(False, "clients train on their full graphs, as the public code does")
