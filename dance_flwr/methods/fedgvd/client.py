"""The client side of FedGvd."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graph import VAL
from dance_flwr.data.site import Site
from dance_flwr.methods.condensation.client import Condensing
from dance_flwr.methods.condensation.matching import Condensed, RealGraph
from dance_flwr.methods.condensation.selection import condensed_operator, scored_by
from dance_flwr.methods.condensation.uploads import as_upload
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.fedgvd.config import FedGvdConfig
from dance_flwr.methods.fedgvd.simgc import condense, train_teacher
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.training import train_epochs
from dance_flwr.seeding import generator, seeded

LOGITS = "logits"  # [K, C], what the server sends


class FedGvd(Condensing):
    """omega_k <- argmin CE(real graph) + gamma CE(S) + lambda MSE(Z, Z_g), from omega_k on."""

    def settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return `fedgvd.*`."""
        return asdict(FedGvdConfig.of(config))

    def condense(self, site: Site, config: RunConfig, quotas: Tensor) -> Condensed:
        """Condense the client's training graph by a teacher and class statistics."""
        real = RealGraph(site.table.nodes, site.training_graph.operator("gcn"), site.train_labels)
        checked = torch.nonzero((site.split == VAL) & (site.labels >= 0)).flatten()
        draw = generator(config.seed, "condense", client=site.card.client)
        with seeded(config.seed, "condense", client=site.card.client):
            teacher = train_teacher(
                real, len(quotas), FedGvdConfig.of(config), site.labels, checked
            )
            return condense(
                real, quotas, teacher, FedGvdConfig.of(config), draw, scored_by(site, config)
            )

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Train on the real graph and on S, towards the server's logits where there are any; the
        first time upload S.

        The two graphs share no edge, so a pass over each is a pass over both.
        """
        report = Report()
        condensed = self.graph_of(site, config, info, report)
        own = condensed_operator(model.backbone.operator, condensed)
        real, labels = site.training_graph.operator(model.backbone.operator), site.train_labels

        def loss() -> Tensor:
            total = real_loss(model, site.table.nodes, real, labels)
            if labels_weigh(FedGvdConfig.of(config)) and condensed.labels.numel():
                logits = model.graph_logits(model.backbone(condensed.features, own))
                total = total + condensed_loss(
                    logits,
                    condensed.labels,
                    info.server_payload.get(LOGITS),
                    FedGvdConfig.of(config),
                )
            return total

        with report.phase("train"):
            report.loss = train_epochs(model, loss, config, round_=info.round)
        if info.needs_initial_upload:
            report.statistics = as_upload(condensed)
        return report


def labels_weigh(config: FedGvdConfig) -> bool:
    """Whether S has a part in the loss; without one this is training in isolation, draw by draw."""
    return config.condensed_weight > 0 or config.teaching_weight > 0


def real_loss(model: PlainModel, features: Tensor, operator: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of the labelled rows, 0 without any; [n, d], [n, n], [n] -> []."""
    known = labels >= 0
    if not bool(known.any()):
        return torch.zeros((), device=features.device)
    logits = model.graph_logits(model.backbone(features, operator))
    return F.cross_entropy(logits[known], labels[known])


def condensed_loss(
    logits: Tensor, labels: Tensor, taught: Tensor | None, config: FedGvdConfig
) -> Tensor:
    """Return gamma CE(Z, Y') + lambda mean (Z - Z_g)^2; the last term only where the server has
    sent Z_g.

    Parameters
    ----------
    logits : Z, [K, C]; labels : Y', [K]; taught : Z_g, [K, C]
    """
    loss = config.condensed_weight * F.cross_entropy(logits, labels)
    if taught is not None:
        loss = loss + config.teaching_weight * F.mse_loss(logits, taught)
    return loss
