"""The client side of LLaTA and its controls: FedAvg on a refined graph."""

from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.local_graph import LocalGraph
from dance_flwr.data.site import Site
from dance_flwr.llm.opening import embedder, open_session
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.label_reuse import input_labels
from dance_flwr.methods.llata.asking import asked_labels, planned_calls
from dance_flwr.methods.llata.config import LlataConfig
from dance_flwr.methods.llata.local_nodes import LocalNodes
from dance_flwr.methods.llata.refinement import refined_graphs
from dance_flwr.methods.llata.soft_labels import cosine_labels, propagated_labels
from dance_flwr.methods.llata.tree import Tree
from dance_flwr.methods.plain_method import PlainMethod, class_probabilities
from dance_flwr.methods.whole_graph import train_on_graph
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel

RAW = "raw"  # view: the same model on the client's graph as it is


class RefinedGraph(PlainMethod):
    """The plain network on each client's refined graph; subclasses say where labels come from."""

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Return q, [n, C] float64, and the number of nodes whose q is a fallback."""
        raise NotImplementedError

    def graphs(self, site: Site, config: RunConfig, run: str) -> dict[str, LocalGraph]:
        """Return "training" and "whole" -> refined graph, see `refined_graphs`."""
        return refined_graphs(
            site, config, run, lambda nodes, tree: self.soft_labels(nodes, tree, config, run)
        )

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes on the refined graph."""
        report = Report()
        with report.phase("topology"):
            graph = self.graphs(site, config, info.run)["training"]
            operator = graph.operator(model.backbone.operator)
        with report.phase("train"):
            report.loss = train_on_graph(
                model,
                site.features,
                operator,
                site.train_labels,
                config,
                info.round,
                site.card.client,
            )
        return report

    def predict(
        self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes on the complete refined graph; view "raw" on the complete graph as is."""
        graphs = {"deployed": self.graphs(site, config, info.run)["whole"], RAW: site.graph}
        shown = input_labels(model, site.train_labels)
        return {
            view: class_probabilities(
                model, site.features, graph.operator(model.backbone.operator), shown
            )[nodes]
            for view, graph in graphs.items()
        }


class Llata(RefinedGraph):
    """Soft labels by the language model, propagated labels where it gives none."""

    def planned_calls(self, site: Site, config: RunConfig) -> tuple[int, int]:
        """Return (calls, tokens) that a run of this client makes at most."""
        return planned_calls(site, config)

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Ask for every node beside others of its community."""
        with open_session(nodes.site, config, run) as session:
            return asked_labels(nodes, tree, config, session, propagated_labels(nodes))


class LlataCosine(RefinedGraph):
    """Soft labels by the cosine of texts with the names of classes; no token is spent."""

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Compare every text with every class."""
        temperature = LlataConfig.of(config).label_temperature
        return cosine_labels(nodes, embedder(nodes.site, config), temperature), 0


class LlataPropagation(RefinedGraph):
    """Soft labels by label propagation; no token is spent and no text is read for them."""

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Propagate training labels on the graph as it is."""
        return propagated_labels(nodes), 0
