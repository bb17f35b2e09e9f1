"""FedAvg on refined graphs; a subclass defines how a client refines its graph."""

from dataclasses import asdict
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.options import Section
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.config import LlmConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import LabelledGraph, PlainMethod, class_probabilities
from dance_flwr.methods.whole_graph import train_on_graph
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr_rivals.run_cache import Arrays, cache_key, load_or_compute

GRAPHS = "refined.npz"  # in the client's folder of a run
WHOLE, TRAINING = "whole", "training"  # names of graphs
RAW = "raw"  # view: the same model on the client's graph as it is


# The graph of predictions, and that of training, which is another one in inductive mode.
RefinedGraphs = dict[str, LocalGraph]


class RefinedGraphMethod(PlainMethod):
    """The plain network on each client's refined graph.

    Attributes
    ----------
    section : the settings of the method on which the refined graphs depend
    """

    section: ClassVar[type[Section]]

    def refine(self, data: ClientData, config: RunConfig, run: str) -> Arrays:
        """Return arrays from which `load` makes the refined graphs."""
        raise NotImplementedError

    def load(self, data: ClientData, arrays: Arrays) -> RefinedGraphs:
        """Return the refined graphs."""
        raise NotImplementedError

    def graphs(self, data: ClientData, config: RunConfig, run: str) -> RefinedGraphs:
        """Return the refined graphs from the folder of the run, computed if it has none.

        They do not depend on the round.
        """
        # The reading changes texts and gates, and with them scores and predictions.
        key = {"method": config.method, "reading": asdict(data.reading), **cache_key(data, config)}
        names = (self.section.name, LlmConfig.name)
        key |= {own.name: asdict(own) for own in config.sections if own.name in names}

        def load() -> RefinedGraphs:
            compute = partial(self.refine, data, config, run)
            return self.load(data, load_or_compute(data, run, key, compute, GRAPHS))

        return data.cached("refined", (run, repr(sorted(key.items()))), load)

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes on the refined graph.

        The graph is refined in the first round.
        """
        report = Report()
        with report.phase("topology"):
            graph = LabelledGraph.of(data, self.graphs(data, config, info.run)[TRAINING], model)
        with report.phase("train"):
            report.loss = train_on_graph(model, graph, config, info.round)
        return report

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes on the refined graph ("deployed") and on the original graph ("raw")."""
        # The second view shows what the refined edges add: same model, same nodes, other graph.
        graphs = {"deployed": self.graphs(data, config, info.run)[WHOLE], RAW: data.graph}
        return {
            view: class_probabilities(model, LabelledGraph.of(data, graph, model))[nodes]
            for view, graph in graphs.items()
        }


def graphs_of(data: ClientData) -> dict[str, LocalGraph]:
    """Return the graphs to refine: the whole one, and in inductive mode that of training."""
    return {WHOLE: data.graph} | ({TRAINING: data.training_graph} if data.inductive else {})


def augmented_operator(
    kind: str,
    rows: Tensor,
    cols: Tensor,
    links: Tensor,
    sizes: tuple[int, int],
    gates: Tensor | None = None,
) -> Tensor:
    """Return the operator of a graph and its generated nodes, [n + g, n + g] sparse.

    The g generated nodes follow the n real ones. A link is an edge in both directions, as messages
    flow from source to target: edges from real to generated nodes alone, as in one public code of
    FedSage+, would change no real node. It weighs as much as an edge without a gate.

    Parameters
    ----------
    kind : of the operator
    rows, cols : [E] int64, edges in both directions
    links : [2, l] int64, (generated node, real node)
    sizes : n, g
    gates : [E], weights of the edges; None = all 1
    """
    added, real = links[0] + sizes[0], links[1]
    weights = torch.ones(len(rows), device=rows.device) if gates is None else gates
    weights = torch.cat([weights, weights.new_ones(2 * links.size(1))])
    rows, cols = torch.cat([rows, real, added]), torch.cat([cols, added, real])
    return operator(kind, rows, cols, weights, sum(sizes))


def with_generated_nodes(
    model: PlainModel, data: ClientData, features: Tensor, operator: Tensor
) -> LabelledGraph:
    """Return a client's n nodes followed by g generated ones, which have no label.

    Parameters
    ----------
    features : [g, d]
    operator : [n + g, n + g] sparse, of the backbone's kind
    """
    every = torch.cat([data.features, features])
    # Generated nodes have no label, so that no loss and no score covers them.
    labels = data.train_labels.new_full((len(every),), -1)
    labels[: data.num_nodes] = data.train_labels
    return LabelledGraph(every, operator, labels, data.card.client).started_by(model)
