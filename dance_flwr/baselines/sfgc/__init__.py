"""SFGC at every client, then FedAvg on the condensed nodes.

Zheng, Zhang, Chen, Nguyen, Zhu and Pan, "Structure-free Graph Condensation: From Large-scale Graphs
to Condensed Graph-free Data", NeurIPS 2023, arXiv 2306.02664; public code at Amanda-Zheng/SFGC
b034621. Before its first round each client condenses its labelled graph to S = (X', I, Y') of the
shared budget by matching training trajectories (`dance_flwr.baselines.sfgc.trajectories`), stores S
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

from dance_flwr.baselines.sfgc.config import SfgcConfig
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink

METHOD = MethodSpec(
    client="dance_flwr.baselines.sfgc.trajectories:Sfgc",
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
