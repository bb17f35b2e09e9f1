"""The client side of FedGm."""

import torch
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site
from dance_flwr.methods.condensation.matching import Network, RealGraph, class_gradients
from dance_flwr.methods.condensation.uploads import as_upload
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.gcond.client import GCond
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel


class FedGm(GCond):
    """GCond's S, uploaded; then gradients instead of training."""

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Leave `model` as it is; answer theta, where one was sent, with class gradients, and at
        first add S.
        """
        report = Report()
        condensed = self.graph_of(site, config, info, report)
        if info.server_payload:
            with report.phase("forward"):
                report.statistics = gradients(
                    site, Network(info.server_payload["weight"], info.server_payload["bias"])
                )
        if info.needs_initial_upload:
            report.statistics |= as_upload(condensed)
        return report


@torch.no_grad()
def gradients(site: Site, network: Network) -> dict[str, Tensor]:
    """Return g_c = (1 / m_c) sum_(y_i = c) grad L_i(theta) and m_c of the client's training nodes,
    zeros where m_c = 0.

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
