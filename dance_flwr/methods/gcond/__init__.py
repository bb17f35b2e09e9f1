"""GCond (Jin et al., ICLR 2022) at every client, then FedAvg on the condensed graphs.

Each client condenses its labelled graph once, before its first round, to S = (X', A', Y') of the
shared budget by matching gradients (`condense.matching`), keeps S in its own folder and trains on
it in every round; all K rows are labelled. Predictions are made on the real graph. Uplink: the
weighted mean of the parameters; S never leaves.

GCond is a centralised method: running it at each client and averaging is how the paper compares
with it. Deviations from paper and public code are told in `condense.matching`, in short one-step
matching at a linear network with gradients in closed form.

Test accuracy of `gcond` on Cora at r = 8 / 4 / 2 %: 83.61 / 82.97 / 81.36 % in the DANCE paper,
83.10 / 82.91 / 81.25 % here. Test accuracy of `gcond` on CiteSeer at r = 8 / 4 / 2 %: 72.03 / 67.46
/ 67.27 % in the DANCE paper, 74.55 / 74.24 / 73.55 % here.
"""

from dance_flwr.methods.condensation.config import CondenseConfig
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink

METHOD = MethodSpec(
    client="dance_flwr.methods.gcond.client:GCond",
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
        "condense.distance": ("mse", "ours"),
    },
)
