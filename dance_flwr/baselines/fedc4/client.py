"""The client side of FedC4."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dance_flwr.baselines.condensation.client import GCond, condensed_operator
from dance_flwr.baselines.condensation.graphs import Condensed, as_upload
from dance_flwr.baselines.fedc4.config import FedC4Config
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import train_on
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel


class FedC4(GCond):
    """GCond's S together with condensed nodes of other clients."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of own and received rows.

        The statistics are the embeddings of the own rows, and S when the server asks for it.
        """
        report, kind = Report(), model.backbone.operator
        own = self.graph_of(data, config, info, report)
        with report.phase("train"):
            if FedC4Config.of(config).released_code:
                features, labels = data.features, data.train_labels
                operator = data.training_graph.operator(kind)
            else:
                graph = join_received(own, info.server_payload)
                features, labels = graph.features, graph.labels
                operator = condensed_operator(kind, graph)
                report.counts["evidence-supervised"] = labels.numel()
            report.loss = train_on(model, features, operator, labels, config, info.round)
        with report.phase("forward"):
            report.statistics = {"embeddings": embeddings(model, own)}
        if info.needs_initial_upload:
            report.statistics |= as_upload(own)
        return report


def join_received(own: Condensed, payload: Mapping[str, Tensor]) -> Condensed:
    """Return the K own rows and the m received ones on the received graph; S without a payload.

    Parameters
    ----------
    payload : "features" [m, d], "labels" [m], "adjacency" [K + m, K + m]; or empty
    """
    if not payload:
        return own
    labels = torch.cat([own.labels, payload["labels"]])
    features = torch.cat([own.features, payload["features"]])
    return Condensed(labels, features, payload["adjacency"])


@torch.no_grad()
def embeddings(model: PlainModel, own: Condensed) -> Tensor:
    """E = g(X', A'), the input of the head of the trained model; [K, h]."""
    model.eval()
    return model.backbone(own.features, condensed_operator(model.backbone.operator, own))  # type: ignore[no-any-return]
