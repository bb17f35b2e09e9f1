"""FedTAD: FedAvg, then data-free distillation weighted by each client's reliability by class.

Zhu, Li, Wu, Wu, Hu and Li, "FedTAD: Topology-aware Data-free Knowledge Distillation for Subgraph
Federated Learning", IJCAI 2024, arXiv 2404.14061; public code at zyl24/FedTAD 3285d54. After the
mean weighted by nodes, the global model learns at the server from the clients' own models on
pseudo-graphs of a generator. That global model is evaluated.

Uplink: the model and C floats, the reliability. The server reads single uploads, and the
reliability reveals the distribution of labels.

Deviations from the paper: the divergence is the L1 distance of logits, as in the public code, not
KL. From the public code: its "random walk" samples almost uniformly from all nodes and adds their
numbers to the features, so that reliability amounts to class counts; here the structural encoding
is the return probabilities of a walk, deterministic and sparse. Reliability is normalised across
clients, as in the paper. See also
`dance_flwr_rivals.fedtad.server`. The paper reports 85.1 on Cora and 73.5 on CiteSeer for
5 clients and 20/40/40.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink


@dataclass(frozen=True)
class FedTadConfig(Section):
    """Keys of FedTAD; defaults of its public code."""

    name: ClassVar[str] = "fedtad"
    steps: int = option(5, "outer steps of the distillation per round; 0 = FedAvg", ge=0)
    nodes: int = option(100, "nodes of the pseudo-graph (N)", ge=1)
    learning_rate: float = option(
        1e-3, "learning rate of Adam for the generator and the global model", gt=0
    )

    # Constants, not keys: those of the public code, which no experiment varies.
    generator_steps: int = 1  # updates of the generator per outer step
    model_steps: int = 5  # updates of the global model per outer step
    noise_dim: int = 32  # width of the generator's noise
    neighbours: int = 5  # nearest pseudo-nodes linked to each node, including itself
    # Weight of the clients' cross-entropy in the generator's loss (lambda_1).
    label_weight: float = 1.0
    diversity_weight: float = 1.0  # weight of the diversity term in the generator's loss (lambda_2)


METHOD = MethodSpec(
    client="dance_flwr_rivals.fedtad.client:FedTad",
    server="dance_flwr_rivals.fedtad.server:FedTadServer",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="model parameters; a reliability per class, which reveals its labels; "
        "counts, seconds; the server reads each client's",
        source="Zhu et al. 2024, arXiv 2404.14061",
    ),
    sections=(FedTadConfig,),
    search={
        "fedtad.learning-rate": (0.0003, 0.001, 0.003),
    },
    label_reuse=True,
)
