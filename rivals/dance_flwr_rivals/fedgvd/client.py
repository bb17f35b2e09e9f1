"""The client side of FedGVD."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.graph import VAL
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import LabelledGraph, labelled_loss
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.training import class_weights, train_epochs
from dance_flwr.seeding import generator, seeded
from dance_flwr_rivals.condensation.client import (
    CondensingMethod,
    condensed_operator,
    real_graph,
    validation_scorer,
)
from dance_flwr_rivals.condensation.graphs import Condensed, as_upload
from dance_flwr_rivals.condensation.matching import condense
from dance_flwr_rivals.fedgvd import FedGvdConfig
from dance_flwr_rivals.fedgvd.simgc import StatisticsMatching, train_teacher

LOGITS = "logits"  # the server's logits of the client's condensed rows, [K, C]


class FedGvd(CondensingMethod):
    """omega_k <- argmin CE(real graph) + gamma CE(S) + lambda MSE(Z, Z_g), started at omega_k."""

    section = FedGvdConfig

    def condense(self, data: ClientData, config: RunConfig, quotas: Tensor) -> Condensed:
        """Condense the client's training graph with a teacher and class statistics."""
        settings, real, client = FedGvdConfig.of(config), real_graph(data), data.card.client
        # Validation nodes choose the teacher's parameters, as they choose S and the best round.
        validation = torch.nonzero((data.split == VAL) & (data.labels >= 0)).flatten()
        draws = generator(config.seed, "condense", client=client)
        with seeded(config.seed, "condense", client=client):
            # Step 1: a linear teacher learns the real graph and is frozen.
            teacher = train_teacher(real, len(quotas), settings, data.labels, validation)
            score = validation_scorer(data, config)
            # Step 2: S follows the teacher and the statistics of the classes.
            matching = StatisticsMatching(real, quotas, teacher, settings, draws)
            return condense(matching.step, matching.snapshot, settings.steps, score)

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Train on the real graph and on S, with the server's logits if it has sent them.

        S is uploaded when the server requests it. The two graphs share no edge, so a pass over each
        is a pass over both.
        """
        report, kind, settings = Report(), model.backbone.operator, FedGvdConfig.of(config)
        condensed = self.graph_of(data, config, info, report)
        condensed_hop = condensed_operator(kind, condensed)
        real = LabelledGraph.of(data, data.training_graph, model)
        # Absent in round 1, before the server has a graph to teach with.
        server_logits = info.server_payload.get(LOGITS)

        weights = class_weights(real.labels, model.head_graph.out_features, config)

        def loss() -> Tensor:
            total = labelled_loss(model, real, real.labels, weights=weights)
            # Skipped where it has no weight, so that no dropout is drawn: this is `local-only`,
            # draw by draw.
            if (settings.condensed_weight or settings.teaching_weight) and condensed.labels.numel():
                logits = model.graph_logits(model.backbone(condensed.features, condensed_hop))
                total = total + condensed_loss(
                    *(logits, condensed.labels, server_logits, settings, weights)
                )
            return total

        with report.phase("train"):
            report.loss = train_epochs(model, loss, config, round_=info.round)
        # Why (decision 11): S is sent when the server asks, once per run.
        if info.needs_initial_upload:
            report.statistics = as_upload(condensed)
        return report


def condensed_loss(
    logits: Tensor,
    labels: Tensor,
    server_logits: Tensor | None,
    config: FedGvdConfig,
    weights: Tensor | None = None,
) -> Tensor:
    """Return gamma CE(Z, Y') + lambda mean (Z - Z_g)^2; the last term only if Z_g was sent.

    Parameters
    ----------
    logits : Z, [K, C]
    labels : Y', [K]
    server_logits : Z_g, [K, C]
    weights : [C], of the classes in the cross-entropy; None = all 1
    """
    loss = config.condensed_weight * F.cross_entropy(logits, labels, weights)
    if server_logits is not None:
        loss = loss + config.teaching_weight * F.mse_loss(logits, server_logits)
    return loss
