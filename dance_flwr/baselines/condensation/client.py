"""The parts shared by methods that condense a client's graph once to S = (X', A', Y')."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dance_flwr.baselines.condensation.budget import training_quotas
from dance_flwr.baselines.condensation.cache import Arrays, cache_key, load_or_compute
from dance_flwr.baselines.condensation.graphs import Condensed, RealGraph
from dance_flwr.baselines.condensation.selection import condensed_operator
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import PlainMethod, train_on
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel


class CondensingMethod(PlainMethod):
    """Condenses before its first training, keeps S in its folder of the run, trains on S."""

    def settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return the settings of the method that S depends on."""
        raise NotImplementedError

    def condense(self, data: ClientData, config: RunConfig, quotas: Tensor) -> Condensed:
        """Return S with K_c rows of class c, sorted by class.

        Parameters
        ----------
        quotas : [C] int64, at least one node in all
        """
        raise NotImplementedError

    def graph_of(
        self, data: ClientData, config: RunConfig, info: RoundInfo, report: Report
    ) -> Condensed:
        """Return S, condensed now if the folder of the run has none.

        The report counts its nodes and the seconds.
        """
        key = cache_key(data, config) | {"hidden": config.hidden_dim, **self.settings(config)}
        with report.phase("nodes"):
            arrays = load_or_compute(
                data.folder, info.run, key, data.device, lambda: self.arrays(data, config)
            )
        condensed = Condensed(arrays["condensed_labels"], arrays["features"], arrays["adjacency"])
        report.counts |= dict.fromkeys(
            ("condensed-nodes", "evidence-supervised"), condensed.labels.numel()
        )
        return condensed

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of all rows of S; the first round also condenses."""
        report = Report()
        condensed = self.graph_of(data, config, info, report)
        with report.phase("train"):
            operator = condensed_operator(model.backbone.operator, condensed)
            report.loss = train_on(
                model, condensed.features, operator, condensed.labels, config, info.round
            )
        return report

    def arrays(self, data: ClientData, config: RunConfig) -> Arrays:
        """Return the content of the client's `state.npz`; S is empty without a training label."""
        quotas = site_quotas(data, config)
        if int(quotas.sum()):
            condensed = self.condense(data, config, quotas)
        else:
            features = data.features[:0]
            condensed = Condensed(quotas.new_empty(0), features, features.new_empty(0, 0))
        return {
            "condensed_labels": condensed.labels,
            "features": condensed.features,
            "adjacency": condensed.adjacency,
        }


def site_quotas(data: ClientData, config: RunConfig) -> Tensor:
    """Return K_c of a client's training graph, [C] int64."""
    nodes, classes = int(data.training_graph.visible.sum()), len(data.card.class_names)
    return training_quotas(data.train_labels, nodes, classes, config.condensation_ratio)


def real_graph(data: ClientData) -> RealGraph:
    """Return what condensation reads of a client: features, training graph, training labels."""
    return RealGraph(data.features, data.training_graph.operator("gcn"), data.train_labels)
