"""FedAvg on the full local graphs, no condensation: the reference (McMahan et al. 2017; Kipf and Welling 2017).

Each client trains backbone and head on all its labelled training nodes. Uplink: the weighted mean of the parameters.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.config import RunConfig
from dance_flwr.dance.model import ModelShape, PlainModel
from dance_flwr.methods.base import MethodCard, RoundInfo, Uplink
from dance_flwr.report import Report
from dance_flwr.site import Site
from dance_flwr.training import train_epochs


class FedAvgFull:
    """A plain graph network on every node's text embedding t_u."""

    uplink = Uplink.SUM
    card = MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="model parameters, counts, seconds",
        source="McMahan et al. 2017; Kipf and Welling 2017",
    )

    def build(self, shape: ModelShape, config: RunConfig) -> PlainModel:
        """Return backbone and linear head."""
        return PlainModel(shape, config.backbone, config.dropout)

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes."""
        report = Report()
        known = site.train_labels >= 0
        target = site.train_labels[known]
        operator = site.training_graph.operator(model.backbone.operator)

        def loss() -> Tensor:
            if not target.numel():
                return torch.zeros((), device=site.device)
            logits = model.graph_logits(model.backbone(site.table.nodes, operator))
            return F.cross_entropy(logits[known], target)

        with report.phase("train"):
            report.loss = train_epochs(model, loss, config, round_=info.round)
        return report

    @torch.no_grad()
    def predict(self, model: PlainModel, site: Site, config: RunConfig) -> dict[str, Tensor]:
        """Predict every node by one pass over the original graph."""
        model.eval()
        logits = model.graph_logits(model.backbone(site.table.nodes, site.graph.operator(model.backbone.operator)))
        return {"deployed": torch.softmax(logits, dim=1)}

    def finish(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> None:
        """Nothing to leave behind: this method selects no evidence."""
