"""The parts shared by methods that train the plain network, a backbone with a linear head."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.sections import ModelConfig, TrainingConfig
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.label_reuse import input_labels
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.nn.training import train_epochs


class PlainMethod:
    """Predicts on the complete local graph; subclasses add `train`."""

    def build(self, shape: ModelShape, config: RunConfig) -> PlainModel:
        """Return backbone and linear head."""
        return plain_model(shape, config)

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes by one pass over the complete local graph."""
        operator = data.graph.operator(model.backbone.operator)
        shown = input_labels(model, data.train_labels)
        return {"deployed": class_probabilities(model, data.features, operator, shown)[nodes]}

    def finish(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> None:
        """Write nothing: the method selects no evidence."""


def plain_model(shape: ModelShape, config: ModelConfig) -> PlainModel:
    """Return an untrained plain network; its weights are drawn from torch's global generator."""
    return PlainModel(shape, config.backbone, config.dropout, config.label_reuse)


@torch.no_grad()
def class_probabilities(
    model: PlainModel, features: Tensor, operator: Tensor, shown: Tensor | None = None
) -> Tensor:
    """Return the softmax of the logits in evaluation mode; [n, d], [n, n] sparse -> [n, C].

    Parameters
    ----------
    shown : [n, C], `input_labels` of the labels that the model may read
    """
    model.eval()
    return torch.softmax(model.logits(features, operator, shown), dim=1)


def labelled_loss(
    model: PlainModel,
    features: Tensor,
    operator: Tensor,
    labels: Tensor,
    shown: Tensor | None = None,
) -> Tensor:
    """Return the mean cross-entropy of the labelled rows, a scalar; 0 without any.

    Parameters
    ----------
    features : [m, d]
    operator : [m, m] sparse, of the backbone's kind
    labels : [m] int64, -1 where unknown
    shown : [m, C], `input_labels` of the labels that the model may read
    """
    if not bool((labels >= 0).any()):
        return torch.zeros((), device=features.device)
    return mean_cross_entropy(model.logits(features, operator, shown), labels)


def mean_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of the labelled rows, a scalar; at least one has a label.

    Parameters
    ----------
    logits : [m, C]
    labels : [m] int64, -1 where unknown
    """
    known = labels >= 0
    return F.cross_entropy(logits[known], labels[known])


def train_on(
    model: PlainModel,
    features: Tensor,
    operator: Tensor,
    labels: Tensor,
    config: TrainingConfig,
    round_: int,
) -> float:
    """Minimise `labelled_loss` for the local epochs, in place; return the last loss.

    Parameters
    ----------
    features, operator, labels : as in `labelled_loss`
    round_ : t, from 1
    """
    return train_epochs(
        model, lambda: labelled_loss(model, features, operator, labels), config, round_=round_
    )
