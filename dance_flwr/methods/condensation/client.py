"""What methods share that condense a client's graph once to S = (X', A', Y') and then train on S."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site
from dance_flwr.methods.condensation.budget import training_quotas
from dance_flwr.methods.condensation.cache import Arrays, decided_by, kept
from dance_flwr.methods.condensation.matching import Condensed
from dance_flwr.methods.condensation.selection import condensed_operator
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import PlainMethod, train_on
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel


class Condensing(PlainMethod):
    """S is made before the first training, kept in the client's folder of the run, and read in
    every round.
    """

    def settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return the settings of the method's own that decide S."""
        raise NotImplementedError

    def condense(self, site: Site, config: RunConfig, quotas: Tensor) -> Condensed:
        """Return S with K_c rows of class c, sorted by class.

        Parameters
        ----------
        quotas : [C] int64, at least one node in all
        """
        raise NotImplementedError

    def graph_of(self, site: Site, config: RunConfig, info: RoundInfo, report: Report) -> Condensed:
        """Return S, made now where it is not in the folder of the run; the report counts its nodes
        and the seconds.
        """
        made_from = decided_by(site, config) | {
            "hidden": config.hidden_dim,
            **self.settings(config),
        }
        with report.phase("nodes"):
            found = kept(
                site.folder, info.run, made_from, site.device, lambda: self.arrays(site, config)
            )
        condensed = Condensed(found["condensed_labels"], found["features"], found["adjacency"])
        report.counts |= dict.fromkeys(
            ("condensed-nodes", "evidence-supervised"), condensed.labels.numel()
        )
        return condensed

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of all rows of S; the first round also condenses."""
        report = Report()
        condensed = self.graph_of(site, config, info, report)
        with report.phase("train"):
            operator = condensed_operator(model.backbone.operator, condensed)
            report.loss = train_on(
                model, condensed.features, operator, condensed.labels, config, info.round
            )
        return report

    def arrays(self, site: Site, config: RunConfig) -> Arrays:
        """Return what goes into the client's `state.npz`; without a training label S is empty."""
        nodes, classes = int(site.training_graph.visible.sum()), len(site.card.class_names)
        quotas = training_quotas(site.train_labels, nodes, classes, config.condensation_ratio)
        if int(quotas.sum()):
            made = self.condense(site, config, quotas)
        else:
            features = site.table.nodes[:0]
            made = Condensed(quotas.new_empty(0), features, features.new_empty(0, 0))
        return {
            "condensed_labels": made.labels,
            "features": made.features,
            "adjacency": made.adjacency,
        }
