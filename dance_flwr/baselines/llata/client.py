"""The client side of LLaTA and its controls: FedAvg on a refined graph."""

from torch import Tensor

from dance_flwr.baselines.llata.asking import asked_labels, planned_calls
from dance_flwr.baselines.llata.config import LlataConfig
from dance_flwr.baselines.llata.local_nodes import LocalNodes
from dance_flwr.baselines.llata.refinement import refined_graphs
from dance_flwr.baselines.llata.soft_labels import cosine_labels, propagated_labels
from dance_flwr.baselines.llata.tree import Tree
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.factory import embedder, open_session
from dance_flwr.methods.refined_graph import RefinedGraph


class LabelledCommunities(RefinedGraph):
    """Edges by communities and soft labels; subclasses say where the labels come from."""

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Return q, [n, C] float64, and the number of nodes whose q is a fallback."""
        raise NotImplementedError

    def graphs(
        self, data: ClientData, config: RunConfig, run: str
    ) -> tuple[LocalGraph, LocalGraph]:
        """Return the graphs that follow from the soft labels, see `refined_graphs`."""
        refined = refined_graphs(
            data, config, run, lambda nodes, tree: self.soft_labels(nodes, tree, config, run)
        )
        return refined["training"], refined["whole"]


class Llata(LabelledCommunities):
    """Soft labels by the language model, propagated labels where it gives none."""

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return (calls, tokens) that a run of this client makes at most."""
        return planned_calls(data, config)

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Ask for every node beside others of its community."""
        with open_session(nodes.data, config, run) as session:
            return asked_labels(nodes, tree, config, session, propagated_labels(nodes))


class LlataCosine(LabelledCommunities):
    """Soft labels by the cosine of texts with the names of classes; no token is spent."""

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Compare every text with every class."""
        temperature = LlataConfig.of(config).label_temperature
        return cosine_labels(nodes, embedder(nodes.data, config), temperature), 0


class LlataPropagation(LabelledCommunities):
    """Soft labels by label propagation; no token is spent and no text is read for them."""

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Propagate training labels on the graph as it is."""
        return propagated_labels(nodes), 0
