"""FedGM, the client side: condense once, then answer every round with the gradients of the real
graph by class.

Zhang, Li, Zhu and Hu, "Rethinking Federated Graph Learning: A Data Condensation Perspective", IJCAI
2025, arXiv 2505.02573; public code at hanhan1900/FedGM d4e7a05. The client condenses as `gcond`
does and uploads S = (X', Y', A') once. In every round it is sent theta, a matching network drawn
anew, and answers with the mean gradient of each class at theta; it trains nothing. The server side
is `dance_flwr.methods.fedgm.server`: it refines X' and trains the one model that is validated and
deployed.

Uplink: S once; in every round C (d + 1) C floats of gradients and C node counts. A server reads
single uploads: S is synthetic but starts from training nodes, and the gradients of classes with few
nodes can be inverted. The model that the harness sends down comes back as it was.

Deviations from the paper and the public code: theta is the linear matching network of
`condense.matching`, whose gradients have a closed form, not a GCN of width 256; clients upload A'_k
itself and not the network that makes it, which another set of nodes would make say something else;
gradients of the full local graph, weighted by the numbers of real nodes (the code: sampled
neighbourhoods, synthetic counts); S of the best validation accuracy of 500 steps, the code of the
least loss of 1000 at different theta; labels and first features in the same order. See also the
server side.

Test accuracy of `fedgm` on Cora at r = 8 / 4 / 2 %: 84.15 / 80.78 / 74.09 % in the DANCE paper,
82.11 / 83.22 / 81.80 % here. Test accuracy of `fedgm` on CiteSeer at r = 8 / 4 / 2 %: 73.82 / 72.57
/ 70.21 % in the DANCE paper, 72.40 / 72.82 / 72.66 % here.
"""

from dance_flwr.methods.condensation.config import CondenseConfig
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.fedgm.config import FedGmConfig

METHOD = MethodSpec(
    client="dance_flwr.methods.fedgm.client:FedGm",
    server="dance_flwr.methods.fedgm.server:FedGmServer",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=True,
        trains_on="the union of all clients' synthetic labelled nodes, at the server",
        leaves_client="its synthetic graph, features, labels and adjacency, once; gradients of its real graph and "
        "training nodes by class in every round; counts, seconds; the server reads each client's",
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
