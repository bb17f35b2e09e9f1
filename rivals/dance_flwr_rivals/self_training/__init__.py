"""FedAvg with self-training: confident predictions of the global model become labels.

Lee, "Pseudo-Label: The Simple and Efficient Semi-Supervised Learning Method for Deep Neural
Networks", ICML Workshop on Challenges in Representation Learning, 2013; on graphs Li, Han and Wu,
"Deeper Insights into Graph Convolutional Networks for Semi-Supervised Learning", AAAI 2018. From
`self-training.start-round` on, each client predicts its nodes with the model that it has just
received, in evaluation mode. Nodes without a training label whose predicted class has at least
`self-training.confidence` join the loss with that class, for this round only:

    L = mean CE over labelled nodes + weight * mean CE over pseudo-labelled nodes.

Before that round it is FedAvg, bit by bit. Texts of validation and test nodes are read where they
are visible in training, as by every method here, but never their labels; in inductive mode test
nodes are absent.

Uplink: the model, of which the server needs the weighted mean only.

Deviations from Lee: a threshold decides which nodes count, the weight is constant from the start
round on, and the pseudo-labels of a round come from one model, the global one, not from every step.
From Li, Han and Wu: labels are not added for good, and their number per class is not bounded; there
is no co-training.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink


@dataclass(frozen=True)
class SelfTrainingConfig(Section):
    """Keys of self-training."""

    name: ClassVar[str] = "self-training"
    start_round: int = option(20, "first round with pseudo-labels", ge=1)
    confidence: float = option(
        0.9, "minimum confidence of a pseudo-label under the global model", ge=0, le=1
    )
    weight: float = option(1.0, "weight of the cross-entropy of pseudo-labelled nodes", ge=0)


METHOD = MethodSpec(
    client="dance_flwr_rivals.self_training.client:SelfTraining",
    uplink=Uplink.SUM,
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph, and confident "
        "predictions of the global model",
        leaves_client="model parameters, counts, seconds",
        source="Lee 2013; Li, Han and Wu 2018",
    ),
    sections=(SelfTrainingConfig,),
    search={
        "self-training.start-round": (1, 10, 20),
        "self-training.confidence": (0.7, 0.8, 0.9, 0.95),
        "self-training.weight": (0.1, 0.3, 1.0),
    },
    label_reuse=True,
)
