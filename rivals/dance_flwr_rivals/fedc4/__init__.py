"""FedC4: train on one's own condensed nodes and on nodes of other clients that the server selects.

Chen, Li, Zhu, Li and Wang, "Rethinking Client-oriented Federated Graph Learning", CIKM 2025, arXiv
2504.14188; public code at Ereshkigal1/FedC4 f9aa425. The client condenses as `gcond` does. It
uploads S = (X', A', Y') once, and in every round its model and the embeddings E of its condensed
nodes. The server averages the models and sends each client nodes of other clients with a graph over
all of its nodes, on which the client trains from then on. Predictions are made on the real graph.

Uplink: S once; in every round the model and K h floats. The server reads single uploads, and other
clients are sent rows of X' with their labels; X' is synthetic but starts from training nodes.

Deviations from the public code: **its run takes the loss of the full, uncondensed graph** of a
client, with 70 % of all nodes labelled whatever the split, and discards the output of the condensed
pass: it is FedAvg on full graphs. Here clients train on condensed nodes only. Condensation is
GCond's, 500 steps from training nodes, where the code takes 21 from noise. Models are weighted by
nodes, not by K. X' and Y' travel once, not in every round, and a client is not sent its own. See
also `dance_flwr_rivals.fedc4.server`.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr_rivals.condensation.config import CondenseConfig


@dataclass(frozen=True)
class FedC4Config(Section):
    """Keys of FedC4."""

    name: ClassVar[str] = "fedc4"
    # Groups and threshold are the public code's.
    groups: int = option(2, "groups of clients that exchange condensed nodes", ge=1)
    threshold: float = option(
        0.4,
        "minimum cosine with a client's mean embedding for a node to be sent there; 1 = no "
        "exchange",
        ge=-1,
        le=1,
    )
    rebuild: bool = option(True, "rebuild the graph at the server; false = the learned adjacency")
    # 500 and 100 in the public code, divided by the squared norm d = 384 of its rows.
    similarity_weight: float = option(
        1.3, "weight of edges between dissimilar nodes in the rebuilt graph", ge=0
    )
    sparsity_weight: float = option(0.26, "weight of all edges in the rebuilt graph", ge=0)
    rebuild_steps: int = option(50, "optimisation steps per rebuilt graph", ge=1)


METHOD = MethodSpec(
    client="dance_flwr_rivals.fedc4.client:FedC4",
    server="dance_flwr_rivals.fedc4.server:FedC4Server",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=True,
        trains_on="its own synthetic labelled nodes and others' that the server chose, "
        "on a graph that the server made",
        leaves_client="model parameters; its synthetic graph, features, labels and adjacency, "
        "once; embeddings of its synthetic nodes in every round; counts, seconds; the server reads "
        "each client's, other clients get synthetic nodes of it",
        source="Chen et al. 2025, arXiv 2504.14188",
    ),
    sections=(
        CondenseConfig,
        FedC4Config,
    ),
    search={
        "fedc4.threshold": (0.0, 0.4, 0.7),
        "fedc4.similarity-weight": (0.1, 0.5, 1.3),
        "fedc4.sparsity-weight": (0.05, 0.1, 0.26, 0.5),
    },
)
