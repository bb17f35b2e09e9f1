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
    """y~_v = argmax_c p_c(v) where max_c p_c(v) >= `confidence`, -1 elsewhere; [n] int64.

    p are the predictions of a model in evaluation mode.

    Only nodes that are visible in training and have no training label can have one.
    """
    probs = class_probabilities(model, LabelledGraph.of(data, data.training_graph, model))
    # Validation and test nodes are among them: their texts are part of the graph, their labels
    # unread.
    candidates = data.training_graph.visible & (data.train_labels < 0)
    confidence, predicted = probs.max(dim=1)
    return torch.where(candidates & (confidence >= settings.confidence), predicted, -1)
