"""SFGC at every client, then FedAvg on the condensed nodes.

Zheng, Zhang, Chen, Nguyen, Zhu and Pan, "Structure-free Graph Condensation: From Large-scale Graphs
to Condensed Graph-free Data", NeurIPS 2023, arXiv 2306.02664; public code at Amanda-Zheng/SFGC
b034621. Before its first round each client condenses its labelled graph to S = (X', I, Y') of the
shared budget by matching training trajectories (`dance_flwr_rivals.sfgc.trajectories`), stores S
in its own folder and trains on it in every round; on S a graph network is a perceptron. All K rows
are labelled. Predictions are made on the real graph.

Uplink: the model, of which the server needs the weighted mean only; S never leaves the client.

SFGC is a centralised method; the paper compares with it by running it at each client and averaging.

Deviations from paper and public code, beside those of `trajectories`: 5 experts of 100 steps and
students of 20, where the code has 200 experts of 800 to 2500 steps and students of 200 to 1200;
experts use plain gradient descent on every data set, as the code's do on Cora; 300 matching steps,
not 2000; a student that diverges moves nothing, where the code stops. Selection by the graph neural
tangent kernel is omitted: its cost grows with the square of the validation edges.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink


@dataclass(frozen=True)
class SfgcConfig(Section):
    """Keys of trajectory matching."""

    name: ClassVar[str] = "sfgc"
    # The public code has 200 experts of 800 to 2500 epochs, students of 200 to 1200 steps and 2000
    # matching steps; plain descent is what its experts use on Cora.
    experts: int = option(5, "expert networks trained on the real graph (R)", ge=1)
    expert_rate: float = option(0.05, "learning rate of gradient descent for the experts", gt=0)
    latest_start: int = option(50, "last expert step from which a student may start", ge=0)
    span: int = option(50, "expert steps between the start of a student and its target", ge=1)
    steps: int = option(300, "matching steps (T)", ge=1)
    unroll: int = option(20, "training steps of the student (N)", ge=1)
    feature_rate: float = option(0.03, "learning rate of Adam for the condensed features", gt=0)

    # Constants, not keys: no search and no experiment varies them.
    # Initial learning rate of gradient descent for the student; it is learned.
    student_rate: float = 0.125


METHOD = MethodSpec(
    client="dance_flwr_rivals.sfgc.trajectories:Sfgc",
    uplink=Uplink.SUM,
    card=MethodCard(
        condenses=True,
        trains_on="synthetic labelled nodes without edges, condensed once",
        leaves_client="model parameters, counts, seconds",
        source="Zheng et al. 2023, run locally at each client",
    ),
    sections=(SfgcConfig,),
    search={
        "sfgc.feature-rate": (0.01, 0.03, 0.1),
        "sfgc.expert-rate": (0.02, 0.05, 0.1),
        "sfgc.span": (30, 50, 80),
    },
)
