"""FedAvg on a graph that each client has refined; what it is made of is a subclass's."""

from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.label_reuse import input_labels
from dance_flwr.methods.plain_method import PlainMethod, class_probabilities
from dance_flwr.methods.whole_graph import train_on_graph
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel

RAW = "raw"  # view: the same model on the client's graph as it is


class RefinedGraph(PlainMethod):
    """The plain network on each client's refined graph."""

    def graphs(
        self, data: ClientData, config: RunConfig, run: str
    ) -> tuple[LocalGraph, LocalGraph]:
        """Return the refined graphs for training and for predictions, made once per run."""
        raise NotImplementedError

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes on the refined graph.

        The first round also refines it.
        """
        report = Report()
        with report.phase("topology"):
            training, _ = self.graphs(data, config, info.run)
            operator = training.operator(model.backbone.operator)
        with report.phase("train"):
            report.loss = train_on_graph(
                model,
                data.features,
                operator,
                data.train_labels,
                config,
                info.round,
                data.card.client,
            )
        return report

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes on the complete refined graph; view "raw" on the complete graph as is."""
        shown, kind = input_labels(model, data.train_labels), model.backbone.operator
        _, whole = self.graphs(data, config, info.run)
        return {
            view: class_probabilities(model, data.features, graph.operator(kind), shown)[nodes]
            for view, graph in {"deployed": whole, RAW: data.graph}.items()
        }
