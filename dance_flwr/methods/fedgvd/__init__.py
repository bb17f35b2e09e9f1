"""FedGVD, the client side: a personal model that learns from the real graph, a condensed one and
the server's view.

Dai et al., "FedGVD: Efficient Federated Graph Learning via Unidirectional Distillation with Dynamic
Virtual Nodes", CIKM 2025; public code at Jasonxx4/FedGVD 99a2c59, which lacks a package that it
imports. Each client condenses its labelled graph once (`condense.simgc`) to S = (X', A', Y') of the
shared budget and uploads it once. The server side is `dance_flwr.methods.fedgvd.server`: it trains
a network on all S, glued by virtual nodes, and sends client k the logits Z_g of its own K rows. A
client minimises L = CE(real graph) + gamma CE(S) + lambda MSE(Z, Z_g) with a model of its own;
models are not averaged. Evaluated is that personal model on the real graph. A client trains on its
full real graph also, so this is no method of condensed training: its gain over `local-only` is what
the server adds.

Uplink: the model, kept by the server for this client alone (in the paper it stays at the client),
and once S: K rows of features, their edges and labels; a server reads single uploads. Statistics of
S are those of the client's classes, and a class of a single labelled node may give its embedding
away.

Deviations from the public code: those of `simgc` and `coordinators`; a client trains on the edges
that it has drawn and uploaded; a condensed graph's edges are its own (the code forgets to shift
their numbers, which links real nodes); rows that are sent back are told by client (the code drops
the last 30); the server's Adam starts anew in each round, as the clients' do; no cross edges by
similarity, which are off in the released configuration. lambda and gamma are the code's; at 0 this
is `local-only`.

Test accuracy of `fedgvd` on Cora at r = 8 / 4 / 2 %: 85.56 / 83.72 / 83.24 % in the DANCE paper,
88.09 / 87.97 / 87.66 % here. Test accuracy of `fedgvd` on CiteSeer at r = 8 / 4 / 2 %: 72.61 /
72.11 / 67.22 % in the DANCE paper, 76.49 / 77.02 / 76.71 % here.
"""

from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.fedgvd.config import FedGvdConfig

METHOD = MethodSpec(
    client="dance_flwr.methods.fedgvd.client:FedGvd",
    server="dance_flwr.methods.fedgvd.server:FedGvdServer",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=True,
        trains_on="every labelled training node of the full local graph, and synthetic nodes condensed once",
        leaves_client="its own model's parameters, kept by the server for this client alone; once its synthetic nodes, "
        "their edges and labels, which tell of its classes; counts, seconds; the server reads each client's",
        source="Dai et al., CIKM 2025",
        evaluation="personalised",
    ),
    sections=(FedGvdConfig,),
    search={
        "fedgvd.teaching-weight": (0.0, 0.0001, 0.001, 0.01, 0.1),
        "fedgvd.condensed-weight": (0.0, 0.3, 1.0),
        "fedgvd.feature-rate": (0.005, 0.02, 0.05),
    },
)
