"""GCond at every client, then FedAvg on the condensed graphs.

Jin, Zhao, Zhang, Liu, Tang and Shah, "Graph Condensation for Graph Neural Networks", ICLR 2022.
Before its first round each client condenses its labelled graph to S = (X', A', Y') of the shared
budget by gradient matching (`dance_flwr_rivals.condensation.matching`), stores S in its own
folder and trains on it in every round; all K rows are labelled. Predictions are made on the real
graph.

Uplink: the model, of which the server needs the weighted mean only; S never leaves the client.

GCond is a centralised method; the paper compares with it by running it at each client and
averaging. Deviations from paper and public code are listed in `condensation.matching`; in short,
one-step matching of a linear network with gradients in closed form.
"""

from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr_rivals.condensation.config import CondenseConfig

METHOD = MethodSpec(
    client="dance_flwr_rivals.condensation.client:GCond",
    uplink=Uplink.SUM,
    card=MethodCard(
        condenses=True,
        trains_on="synthetic labelled nodes with a learnt adjacency, condensed once",
        leaves_client="model parameters, counts, seconds",
        source="Jin et al. 2022, run locally at each client",
    ),
    sections=(CondenseConfig,),
    search={
        "condense.feature-rate": (0.001, 0.01, 0.1),
        "condense.adjacency-rate": (0.001, 0.01),
        # Squared error is that of the public one-step code, `ours` that of the bi-level one.
        "condense.distance": ("mse", "ours"),
    },
)
