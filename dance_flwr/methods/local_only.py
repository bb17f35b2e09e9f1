"""Training in isolation: every client trains its own model on its own graph; the lower bound.

The server stores each client's model and returns it to that client only, so that rounds,
validation, best round and resumption work as for every other method; nothing of one client reaches
another. As elsewhere, the initial model is the same at all clients, and Adam starts with fresh
moments in each round.

Uplink: the model, stored by the server for this client only.
"""

from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig

METHOD = MethodSpec(
    client="dance_flwr.methods.whole_graph:FedAvgFull",
    server="dance_flwr.methods.personalised:Personalised",
    uplink=Uplink.EACH,
    sections=(SamplingConfig,),
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="its own model's parameters, kept by the server for this client alone; "
        "counts, seconds",
        source="reference without federation",
        evaluation="personalised",
    ),
    label_reuse=True,
)
