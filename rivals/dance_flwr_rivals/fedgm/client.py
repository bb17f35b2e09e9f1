"""The client side of FedGM."""

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr_rivals.condensation.client import GCond, real_graph
from dance_flwr_rivals.condensation.graphs import as_upload
from dance_flwr_rivals.condensation.matching import Network, class_gradients


class FedGm(GCond):
    """Uploads GCond's S, then answers with class gradients instead of training."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Return class gradients at the received theta, and S when the server requests it.

        `model` is not trained.
        """
        report = Report()
        condensed = self.graph_of(data, config, info, report)
        # No local training: gradients at theta are all that the refinement needs.
        if info.server_payload:
            with report.phase("forward"):
                theta = Network(info.server_payload["weight"], info.server_payload["bias"])
                report.statistics = gradients(data, theta)
        if info.needs_initial_upload:
            report.statistics |= as_upload(condensed)
        return report


@torch.no_grad()
def gradients(data: ClientData, network: Network) -> dict[str, Tensor]:
    """g_c = (1 / m_c) sum_(y_i = c) grad L_i(theta) over the client's training nodes; 0 if m_c = 0.

    Returns
    -------
    "weights" [C, d, C] and "biases" [C, C], g_c by layer; "counts" m_c [C]; all float32
    """
    real = real_graph(data)
    known = real.nodes_by_class()
    weights, biases = class_gradients(network, real.propagated()[known], real.labels[known])
    # Real counts, so that g_c is a mean over all nodes of all clients; the public code has
    # synthetic ones.
    counts = torch.bincount(real.labels[known], minlength=len(network.bias)).float()
    return {"weights": weights, "biases": biases, "counts": counts}
