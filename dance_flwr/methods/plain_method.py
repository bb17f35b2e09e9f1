"""What methods share that train the plain network, backbone and head, on a graph of their own
making.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.nn.training import train_epochs


class PlainMethod:
    """Trains anywhere, predicts on the whole real local graph; `train` and `card` are the method's
    own.
    """

    def build(self, shape: ModelShape, config: RunConfig) -> PlainModel:
        """Return backbone and linear head."""
        return PlainModel(shape, config.backbone, config.dropout)

    @torch.no_grad()
    def predict(
        self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo
    ) -> dict[str, Tensor]:
        """Predict every node by one pass over the original graph."""
        model.eval()
        logits = model.graph_logits(
            model.backbone(site.table.nodes, site.graph.operator(model.backbone.operator))
        )
        return {"deployed": torch.softmax(logits, dim=1)}

    def finish(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> None:
        """Nothing to leave behind: this method selects no evidence."""


def train_on(
    model: PlainModel,
    features: Tensor,
    operator: Tensor,
    labels: Tensor,
    config: RunConfig,
    round_: int,
) -> float:
    """Minimise the mean cross-entropy of the labelled rows for the local epochs; return the last
    loss.

    Parameters
    ----------
    features : [m, d]; operator : [m, m] sparse, of the backbone's kind; labels : [m] int64, -1
        where unknown
    """
    known = labels >= 0
    target = labels[known]

    def loss() -> Tensor:
        if not target.numel():
            return torch.zeros((), device=features.device)
        logits = model.graph_logits(model.backbone(features, operator))
        return F.cross_entropy(logits[known], target)

    return train_epochs(model, loss, config, round_=round_)
