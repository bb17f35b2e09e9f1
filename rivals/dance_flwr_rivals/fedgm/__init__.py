"""FedGM: the server refines the union of condensed graphs by the clients' class gradients.

Zhang, Li, Zhu and Hu, "Rethinking Federated Graph Learning: A Data Condensation Perspective", IJCAI
2025, arXiv 2505.02573; public code at hanhan1900/FedGM d4e7a05. The client condenses as `gcond`
does and uploads S = (X', Y', A') once. In every round it is sent theta, a newly drawn matching
network, and answers with the mean gradient of each class at theta; it trains nothing. The server
refines X' and trains the one model that is validated and deployed.

Uplink: S once; in every round C (d + 1) C floats of gradients and C node counts. The server reads
single uploads: S is synthetic but starts from training nodes, and the gradients of classes with few
nodes can be inverted. The client returns the model unchanged.

Deviations from the paper and the public code: theta is the linear matching network of
`dance_flwr_rivals.condensation.matching`, whose gradients have a closed form, not a GCN of width
256; clients upload A'_k itself and not the network that generates it, whose output depends on all
nodes that it reads; gradients of the full local graph, weighted by the numbers of real nodes (the
code: sampled neighbourhoods, synthetic counts); the S with the best validation accuracy of 500
steps (the code: with the least loss of 1000 steps at different theta); labels and first features in
the same order; clients validate, where the code's server selects by the validation nodes of the
whole graph; the server trains in every 10th round for 50 steps, not in each for 600.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr_rivals.condensation.config import CondenseConfig


@dataclass(frozen=True)
class FedGmConfig(Section):
    """Keys of FedGM."""

    name: ClassVar[str] = "fedgm"
    feature_rate: float = option(
        0.01, "learning rate of Adam for the condensed features at the server", gt=0
    )
    # The public code trains after every round, for 600 steps.
    train_every: int = option(
        10, "rounds between trainings of the deployed network at the server", ge=1
    )
    train_steps: int = option(50, "steps of each such training, which starts from scratch", ge=1)


METHOD = MethodSpec(
    client="dance_flwr_rivals.fedgm.client:FedGm",
    server="dance_flwr_rivals.fedgm.server:FedGmServer",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=True,
        trains_on="the union of all clients' synthetic labelled nodes, at the server",
        leaves_client="its synthetic graph, features, labels and adjacency, once; gradients of "
        "its real graph and training nodes by class in every round; counts, seconds; the server "
        "reads each client's",
        source="Zhang et al. 2025, arXiv 2505.02573",
    ),
    sections=(
        CondenseConfig,
        FedGmConfig,
    ),
    search={
        "fedgm.feature-rate": (0.001, 0.01, 0.1),
        "fedgm.train-steps": (30, 50, 100, 200),
    },
)
