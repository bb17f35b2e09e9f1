"""The client side of self-training."""

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.label_reuse import LabelHalves
from dance_flwr.methods.plain_method import (
    LabelledGraph,
    PlainMethod,
    class_probabilities,
    labelled_loss,
    mean_cross_entropy,
)
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.ragged import ptr_of_rows, rank_in_row
from dance_flwr.nn.training import class_weights, train_epochs
from dance_flwr_rivals.self_training import SelfTrainingConfig


class SelfTraining(PlainMethod):
    """The plain network on labels and on confident predictions of the global model."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise CE of the labelled nodes + weight * CE of the pseudo-labelled ones."""
        report, settings = Report(), SelfTrainingConfig.of(config)
        graph = LabelledGraph.of(data, data.training_graph, model)
        with report.phase("forward"):
            # Once, by the model as it was received: the global one, not that of a local epoch.
            pseudo = torch.full_like(graph.labels, -1)
            if info.round >= settings.start_round and settings.weight:
                pseudo = pseudo_labels(model, data, settings)
        halves = LabelHalves(model, graph.labels, config, info.round, graph.client)
        added = bool((pseudo >= 0).any())
        weights = class_weights(graph.labels, model.head_graph.out_features, config)

        def loss_of() -> Tensor:
            inputs, labels = halves.split(graph.labels)
            # Before the start round this is FedAvg, bit by bit.
            if not added:
                return labelled_loss(model, graph, labels, inputs, weights)
            logits = graph.logits(model, inputs)
            loss = settings.weight * mean_cross_entropy(logits, pseudo, weights)
            known = bool((labels >= 0).any())
            return mean_cross_entropy(logits, labels, weights) + loss if known else loss

        with report.phase("train"):
            report.loss = train_epochs(model, loss_of, config, round_=info.round)
        return report


def pseudo_labels(model: PlainModel, data: ClientData, settings: SelfTrainingConfig) -> Tensor:
    """Return the pseudo-labels under a model in evaluation mode; [n] int64, -1 without one.

    Only nodes that are visible in training and have no training label can have one.
    """
    probs = class_probabilities(model, LabelledGraph.of(data, data.training_graph, model))
    # Validation and test nodes are among them: their texts are part of the graph, their labels
    # unread.
    candidates = data.training_graph.visible & (data.train_labels < 0)
    return confident_labels(probs, candidates, settings.confidence, settings.per_class)


def confident_labels(probs: Tensor, candidates: Tensor, threshold: float, per_class: int) -> Tensor:
    """y~_v = argmax_c p_c(v) where max_c p_c(v) >= threshold, -1 elsewhere; [n] int64.

    Parameters
    ----------
    probs : p, [n, C]
    candidates : [n] bool, the nodes that may have a pseudo-label
    per_class : maximum number of nodes per predicted class, the most confident ones, ties to the
        lower node number; 0 = all
    """
    confidence, predicted = probs.max(dim=1)
    chosen = torch.nonzero(candidates & (confidence >= threshold)).flatten()
    if per_class:
        # Stable, so that ties go to the lower node number.
        chosen = chosen[torch.sort(predicted[chosen], stable=True).indices]
        ptr = ptr_of_rows(predicted[chosen], probs.size(1))
        chosen = chosen[rank_in_row(confidence[chosen], ptr) < per_class]
    labels = torch.full_like(predicted, -1)
    labels[chosen] = predicted[chosen]
    return labels
