"""FedGVD: personal models learn from the real graph, a condensed graph and the server's logits.

Dai et al., "FedGVD: Efficient Federated Graph Learning via Unidirectional Distillation with Dynamic
Virtual Nodes", CIKM 2025; public code at Jasonxx4/FedGVD 99a2c59, which lacks a package that it
imports. Each client condenses its labelled graph once (`dance_flwr_rivals.fedgvd.simgc`) to
S = (X', A', Y') of the shared budget and uploads it once. The server trains a network on all S,
connected by virtual nodes, and sends client k the logits Z_g of its own K rows. A client minimises
L = CE(real graph) + gamma CE(S) + lambda MSE(Z, Z_g) with a model of its own; models are not
averaged. That personal model is evaluated, on the real graph. A client also trains on its full real
graph, so this is not condensed training: its gain over `local-only` is what the server adds.

Uplink: the model, stored by the server for this client only (in the paper it stays at the client),
and once S: K rows of features, their edges and labels. The server reads single uploads. Statistics
of S are those of the client's classes; a class with a single labelled node may reveal its
embedding.

Deviations from the public code: those of `fedgvd.simgc` and `fedgvd.server`; a client trains
on the edges that it has drawn and uploaded; the edges of a condensed graph link condensed nodes
(the code does not shift their numbers, which links real nodes); rows are returned by client (the
code drops the last 30); the server's Adam starts with fresh moments in each round, as the clients'
does; no cross edges by similarity, which are off in the released configuration. lambda and gamma
are the code's; at 0 this is `local-only`.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink


@dataclass(frozen=True)
class FedGvdConfig(Section):
    """Keys of FedGVD."""

    name: ClassVar[str] = "fedgvd"
    # 1000 steps and a width of 2048 in the public code, and 1500 steps for S.
    teacher_steps: int = option(200, "training steps of the teacher", ge=1)
    steps: int = option(500, "condensation steps", ge=1)
    feature_rate: float = option(5e-3, "learning rate of Adam for the condensed features", gt=0)
    # gamma = 1 and lambda = 1e-4 are the public code's. At 1e-4 the server's logits have nearly no
    # effect, so that a search goes up to 0.1.
    condensed_weight: float = option(
        1.0, "weight of a client's own condensed nodes in its loss (gamma)", ge=0
    )
    teaching_weight: float = option(
        1e-4, "weight of the squared distance to the server's logits (lambda)", ge=0
    )

    # Constants, not keys: no search and no experiment varies them.
    # Hidden width of the teacher, the linear network that guides the condensation.
    teacher_width: int = 256
    # Learning rate of Adam for the network that generates the adjacency.
    adjacency_rate: float = 1e-3
    # SimGC's weights.
    align_weight: float = 10.0  # weight of the distance between class means and deviations
    smooth_weight: float = 0.1  # weight of the distance between linked condensed nodes
    # As in the public code.
    server_epochs: int = 10  # training steps of the server's network per round
    server_rate: float = 0.01  # learning rate of Adam for the server's network


METHOD = MethodSpec(
    client="dance_flwr_rivals.fedgvd.client:FedGvd",
    server="dance_flwr_rivals.fedgvd.server:FedGvdServer",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=True,
        trains_on="every labelled training node of the full local graph, and synthetic nodes "
        "condensed once",
        leaves_client="its own model's parameters, kept by the server for this client alone; once "
        "its synthetic nodes, their edges and labels, which reveal its classes; counts, seconds; "
        "the server reads each client's",
        source="Dai et al., CIKM 2025",
        evaluation="personalised",
        trains_on_all_labels=True,
    ),
    sections=(FedGvdConfig,),
    search={
        "fedgvd.teaching-weight": (0.0, 0.0001, 0.001, 0.01, 0.1),
        "fedgvd.condensed-weight": (0.0, 0.3, 1.0),
        "fedgvd.feature-rate": (0.005, 0.02, 0.05),
    },
)
