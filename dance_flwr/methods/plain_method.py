"""Shared by methods that train the plain network, a backbone with a linear head."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.sections import ModelConfig, TrainingConfig
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.label_reuse import input_labels
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.nn.training import class_weights, train_epochs


@dataclass(frozen=True)
class LabelledGraph:
    """A graph as the plain network reads it.

    Attributes
    ----------
    features : [n, d]; or [n, i], `Backbone.inputs`, where `started`
    operator : [n, n] sparse, of the backbone's kind
    labels : [n] int64 training labels, -1 where unknown
    client : number of the client, for draws of batches and of labels
    started : whether the steps over edges that depend on no parameter are taken
    """

    features: Tensor
    operator: Tensor
    labels: Tensor
    client: int = 0
    started: bool = False

    @classmethod
    def of(cls, data: ClientData, graph: LocalGraph, model: PlainModel) -> "LabelledGraph":
        """Return a graph on a client's nodes, with the operator of the model's backbone."""
        operator = graph.operator(model.backbone.operator)
        known = operator, data.train_labels, data.card.client
        # The graphs of the client itself have these inputs computed once.
        if model.label_weight is None and graph in (data.graph, data.training_graph):
            return cls(data.inputs(graph, model.backbone), *known, started=True)
        return cls(data.features, *known).started_by(model)

    def started_by(self, model: PlainModel) -> "LabelledGraph":
        """Return the graph with the steps taken that depend on no parameter.

        Unchanged if labels are an input, since they take these steps too.
        """
        if self.started or model.label_weight is not None:
            return self
        inputs = model.backbone.inputs(normalise(self.features), self.operator)
        return replace(self, features=inputs, started=True)

    def logits(self, model: PlainModel, labels: Tensor | None = None) -> Tensor:
        """Return o^g of every node, [n, C]; `labels` as in `PlainModel.logits`."""
        if self.started:
            return model.logits_from(self.features, self.operator)
        return model.logits(self.features, self.operator, labels)


class PlainMethod:
    """Predicts on the complete local graph; subclasses add `train`."""

    def build(self, shape: ModelShape, config: RunConfig) -> PlainModel:
        """Return backbone and linear head."""
        return plain_model(shape, config)

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes by one pass over the complete local graph."""
        graph = LabelledGraph.of(data, data.graph, model)
        return {"deployed": class_probabilities(model, graph)[nodes]}

    def finish(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> None:
        """Do nothing, as the method selects no evidence."""


def plain_model(shape: ModelShape, config: ModelConfig) -> PlainModel:
    """Return an untrained plain network; its weights are drawn from torch's global generator."""
    return PlainModel(shape, config.backbone, config.dropout, config.label_reuse)


@torch.no_grad()
def class_probabilities(model: PlainModel, graph: LabelledGraph) -> Tensor:
    """Return the softmax of the logits in evaluation mode, [n, C].

    A model that reads labels gets all labels of the graph.
    """
    # Dropout is off. FedTAD's public network leaves it on, and is a point less accurate for it.
    model.eval()
    inputs = input_labels(model, graph.labels)
    return torch.softmax(graph.logits(model, inputs), dim=1)


def labelled_loss(
    model: PlainModel,
    graph: LabelledGraph,
    targets: Tensor,
    inputs: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the weighted mean cross-entropy of the rows with a target; 0 without any.

    Parameters
    ----------
    targets : [n] int64, -1 where the loss does not apply
    inputs : [n, C], `input_labels` of the labels that the model may read
    weights : [C], of the classes (`class_weights`); None = all 1
    """
    if not bool((targets >= 0).any()):
        # A client without a training label takes part with a loss of 0.
        return torch.zeros((), device=graph.features.device)
    return mean_cross_entropy(graph.logits(model, inputs), targets, weights)


def mean_cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the weighted mean cross-entropy of the labelled rows; at least one has a label.

    Parameters
    ----------
    logits : [m, C]
    labels : [m] int64, -1 where unknown
    weights : [C], of the classes; None = all 1
    """
    known = labels >= 0
    return F.cross_entropy(logits[known], labels[known], weights)


def train_on(model: PlainModel, graph: LabelledGraph, config: TrainingConfig, round_: int) -> float:
    """Minimise `labelled_loss` of all labels for the local epochs, in place; return the last loss.

    Parameters
    ----------
    round_ : t, from 1
    """
    weights = class_weights(graph.labels, model.head_graph.out_features, config)
    return train_epochs(
        *(model, lambda: labelled_loss(model, graph, graph.labels, weights=weights), config),
        round_=round_,
    )
