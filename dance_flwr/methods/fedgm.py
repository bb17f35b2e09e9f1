"""FedGM, the client side: condense once, then answer every round with the gradients of the real graph by class.

Zhang, Li, Zhu and Hu, "Rethinking Federated Graph Learning: A Data Condensation Perspective", IJCAI 2025, arXiv
2505.02573; public code at hanhan1900/FedGM d4e7a05. The client condenses as `gcond` does and uploads S = (X', Y', A')
once. In every round it is sent theta, a matching network drawn anew, and answers with the mean gradient of each class
at theta; it trains nothing. The server side is `dance_flwr.strategies.fedgm`: it refines X' and trains the one model
that is validated and deployed.

Uplink: S once; in every round C (d + 1) C floats of gradients and C node counts. A server reads single uploads: S is
synthetic but starts from training nodes, and the gradients of classes with few nodes can be inverted. The model that
the harness sends down comes back as it was.

Deviations from the paper and the public code: theta is the linear matching network of `condense.matching`, whose
gradients have a closed form, not a GCN of width 256; clients upload A'_k itself and not the network that makes it,
which another set of nodes would make say something else; gradients of the full local graph, weighted by the numbers
of real nodes (the code: sampled neighbourhoods, synthetic counts); S of the best validation accuracy of 500 steps, the
code of the least loss of 1000 at different theta; labels and first features in the same order. See also the server
side.

Test accuracy of `fedgm` on Cora at r = 8 / 4 / 2 %: 84.15 / 80.78 / 74.09 % in the DANCE paper, 82.11 / 83.22 / 81.80 %
here.
Test accuracy of `fedgm` on CiteSeer at r = 8 / 4 / 2 %: 73.82 / 72.57 / 70.21 % in the DANCE paper, 72.40 / 72.82 /
72.66 % here.
"""

import torch
from torch import Tensor

from dance_flwr.condense.matching import Network, RealGraph, class_gradients
from dance_flwr.condense.uploads import as_upload
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import PlainModel
from dance_flwr.methods.base import MethodCard, RoundInfo, Uplink
from dance_flwr.methods.gcond import GCond
from dance_flwr.report import Report
from dance_flwr.site import Site


class FedGm(GCond):
    """GCond's S, uploaded; then gradients instead of training."""

    uplink = Uplink.EACH
    card = MethodCard(
        condenses=True,
        trains_on="the union of all clients' synthetic labelled nodes, at the server",
        leaves_client="its synthetic graph, features, labels and adjacency, once; gradients of its real graph and "
        "training nodes by class in every round; counts, seconds; the server reads each client's",
        source="Zhang et al. 2025, arXiv 2505.02573",
        server="fedgm",
    )

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Leave `model` as it is; answer theta, where one was sent, with class gradients, and at first add S."""
        report = Report()
        condensed = self.graph_of(site, config, info, report)
        if info.given:
            with report.phase("forward"):
                report.statistics = gradients(site, Network(info.given["weight"], info.given["bias"]))
        if info.first:
            report.statistics |= as_upload(condensed)
        return report


@torch.no_grad()
def gradients(site: Site, network: Network) -> dict[str, Tensor]:
    """Return g_c = (1 / m_c) sum_(y_i = c) grad L_i(theta) and m_c of the client's training nodes, zeros where m_c = 0.

    Returns
    -------
    "weights" [C, d, C] and "biases" [C, C] float32; "counts" [C] float32
    """
    real = RealGraph(site.table.nodes, site.training_graph.operator("gcn"), site.train_labels)
    known = torch.nonzero(real.labels >= 0).flatten()
    known = known[torch.sort(real.labels[known], stable=True).indices]
    weights, biases = class_gradients(network, real.propagated()[known], real.labels[known])
    counts = torch.bincount(real.labels[known], minlength=len(network.bias)).float()
    return {"weights": weights, "biases": biases, "counts": counts}
