"""The client side of FedC4."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site
from dance_flwr.methods.condensation.matching import Condensed
from dance_flwr.methods.condensation.selection import condensed_operator
from dance_flwr.methods.condensation.uploads import as_upload
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.fedc4.config import FedC4Config
from dance_flwr.methods.gcond.client import GCond
from dance_flwr.methods.plain_method import train_on
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel


class FedC4(GCond):
    """GCond's S, joined by condensed nodes of other clients."""

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of own and given rows; add embeddings of the own ones, at
        first also S.
        """
        report = Report()
        own = self.graph_of(site, config, info, report)
        with report.phase("train"):
            if FedC4Config.of(config).released_code:
                graph, labels = (
                    site.training_graph.operator(model.backbone.operator),
                    site.train_labels,
                )
                report.loss = train_on(model, site.table.nodes, graph, labels, config, info.round)
            else:
                whole = joined(own, info.server_payload)
                graph = condensed_operator(model.backbone.operator, whole)
                report.loss = train_on(
                    model, whole.features, graph, whole.labels, config, info.round
                )
                report.counts["evidence-supervised"] = whole.labels.numel()
        with report.phase("forward"):
            report.statistics = {"embeddings": embeddings(model, own)}
        if info.needs_initial_upload:
            report.statistics |= as_upload(own)
        return report


def joined(own: Condensed, given: Mapping[str, Tensor]) -> Condensed:
    """Return the K own rows, then the m given ones, on the given graph; S itself where nothing is
    given.

    Parameters
    ----------
    given : "features" [m, d], "labels" [m], "adjacency" [K + m, K + m]
    """
    if not given:
        return own
    labels = torch.cat([own.labels, given["labels"]])
    return Condensed(labels, torch.cat([own.features, given["features"]]), given["adjacency"])


@torch.no_grad()
def embeddings(model: PlainModel, own: Condensed) -> Tensor:
    """E = g(X', A'), what the head reads, of the model as it was just trained; [K, h]."""
    model.eval()
    return model.backbone(own.features, condensed_operator(model.backbone.operator, own))  # type: ignore[no-any-return]
