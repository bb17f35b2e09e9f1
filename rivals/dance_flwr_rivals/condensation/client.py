"""The client side of methods that condense a graph once to S = (X', A', Y'), and of GCond."""

from collections.abc import Callable
from dataclasses import asdict
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.options import Section
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.nodes import class_quotas, node_budget
from dance_flwr.data.graphs.graph import VAL
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import LabelledGraph, PlainMethod, train_on
from dance_flwr.metrics import Report
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.seeding import generator, seeded
from dance_flwr_rivals.condensation.adjacency import edges
from dance_flwr_rivals.condensation.config import CondenseConfig
from dance_flwr_rivals.condensation.graphs import Condensed, RealGraph
from dance_flwr_rivals.condensation.matching import Matching, condense
from dance_flwr_rivals.run_cache import Arrays, cache_key, load_or_compute

# Why (decision 11): the same small GCN measures S for every method. GCond's public code trains it
# for 600 steps, three times.
_STEPS = 200
_DROPOUT, _RATE, _DECAY = 0.5, 0.01, 5e-4


def training_quotas(labels: Tensor, num_nodes: int, num_classes: int, ratio: float) -> Tensor:
    """Return K_c by largest remainder of K |tr_c| / |tr|, at least 1 per class; [C] int64.

    K = max(number of classes that occur, ceil(r n)), at most the number of labelled training nodes.
    As in the paper, r is a ratio of all local nodes; public condensation code takes a ratio of the
    training nodes. A class that the remainders leave with nothing takes its node from the class
    that is farthest above its exact share. The quotas never exceed their classes and add up to K.

    Parameters
    ----------
    labels : [n] int64, training labels, -1 where there is none
    num_nodes : n, the number of nodes to which the ratio refers
    """
    sizes = torch.bincount(labels[labels >= 0], minlength=num_classes)
    total = int(sizes.sum())
    if total == 0:
        return sizes
    # At least one node of every class that occurs, at most every labelled node.
    budget = min(max(int((sizes > 0).sum()), node_budget(num_nodes, ratio)), total)
    # Public code gives the remainder to the last class, which can end at 0 or below on small
    # clients.
    return class_quotas(sizes, budget, sizes > 0)


def condensed_operator(kind: str, condensed: Condensed) -> Tensor:
    """Return the backbone's operator of A', [K, K] sparse; entries below 0.01 are dropped."""
    return operator(kind, *edges(condensed.adjacency), len(condensed.labels))


def labelled_graph(condensed: Condensed, model: PlainModel) -> LabelledGraph:
    """Return S as the plain network reads it."""
    operator = condensed_operator(model.backbone.operator, condensed)
    return LabelledGraph(condensed.features, operator, condensed.labels)


def validation_scorer(data: ClientData, config: RunConfig) -> Callable[[Condensed], float]:
    """Return `validation_accuracy` as a function of S; every S starts from the same weights."""
    shape = ModelShape(data.text_dim, config.hidden_dim, len(data.card.class_names))
    # The real graph, on which predictions are made.
    graph = LabelledGraph(data.features, data.training_graph.operator("gcn"), data.labels)
    nodes = torch.nonzero(data.split == VAL).flatten()

    def score(condensed: Condensed) -> float:
        # The same weights for every S, so that scores differ by S alone.
        with seeded(config.seed, "condense-check", client=data.card.client):
            return validation_accuracy(condensed, shape, graph, nodes)

    return score


def validation_accuracy(
    condensed: Condensed, shape: ModelShape, graph: LabelledGraph, nodes: Tensor
) -> float:
    """Return the accuracy on `nodes` of the real graph of a GCN after 200 full-batch steps on S.

    Two layers, Adam at 0.01 with weight decay 5e-4, dropout 0.5, the settings of GCond's public
    code. Deviations: a third of its steps, one repetition instead of three, and a constant learning
    rate. Draws from torch's global generator.
    """
    nodes = nodes[graph.labels[nodes] >= 0]
    if not nodes.numel():
        return 0.0
    model = PlainModel(shape, "gcn", _DROPOUT).to(graph.features.device)
    operator_of_s = condensed_operator("gcn", condensed)
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE, weight_decay=_DECAY, fused=True)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        logits = model.graph_logits(model.backbone(condensed.features, operator_of_s))
        F.cross_entropy(logits, condensed.labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model.graph_logits(model.backbone(graph.features, graph.operator))
    predicted = logits[nodes].argmax(1)
    return float((predicted == graph.labels[nodes]).float().mean())


class CondensingMethod(PlainMethod):
    """Condenses before its first training, keeps S in its folder of the run, trains on S.

    Attributes
    ----------
    section : the settings of the method on which S depends
    """

    section: ClassVar[type[Section]]

    def condense(self, data: ClientData, config: RunConfig, quotas: Tensor) -> Condensed:
        """Return S with K_c rows of class c, sorted by class."""
        raise NotImplementedError

    def graph_of(
        self, data: ClientData, config: RunConfig, info: RoundInfo, report: Report
    ) -> Condensed:
        """Return S from the folder of the run, condensed first if it is not there.

        The number of nodes and the seconds are added to the report.
        """
        # The width too: S is selected by a network of this width.
        sizes = {"ratio": config.condensation_ratio, "hidden": config.hidden_dim}
        key = {**cache_key(data, config), **sizes, **asdict(self.section.of(config))}
        with report.phase("nodes"):
            arrays = load_or_compute(data, info.run, key, lambda: self.arrays(data, config))
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
            report.loss = train_on(model, labelled_graph(condensed, model), config, info.round)
        return report

    def arrays(self, data: ClientData, config: RunConfig) -> Arrays:
        """Return the content of the client's `state.npz`; S is empty without a training label."""
        quotas = client_quotas(data, config)
        # A client without a training label has no class to condense, and trains on nothing.
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


def client_quotas(data: ClientData, config: RunConfig) -> Tensor:
    """Return K_c of a client's training graph, [C] int64."""
    # The ratio is one of all nodes that training sees, as in the paper, not of the labelled ones.
    nodes, classes = int(data.training_graph.visible.sum()), len(data.card.class_names)
    return training_quotas(data.train_labels, nodes, classes, config.condensation_ratio)


def real_graph(data: ClientData) -> RealGraph:
    """Return the features, training graph and training labels of a client."""
    return RealGraph(data.features, data.training_graph.operator("gcn"), data.train_labels)


class GCond(CondensingMethod):
    """The plain network on a synthetic graph whose gradients match those of the real graph."""

    section = CondenseConfig

    def condense(self, data: ClientData, config: RunConfig, quotas: Tensor) -> Condensed:
        """Match the gradients of the client's training graph."""
        settings, client = CondenseConfig.of(config), data.card.client
        # Two sources: the generator draws nodes and matching networks; weights of the pair network
        # come from torch's global generator.
        draws = generator(config.seed, "condense", client=client)
        score = validation_scorer(data, config)
        with seeded(config.seed, "condense", client=client):
            matching = Matching(real_graph(data), quotas, settings, draws)
            return condense(matching.step, matching.snapshot, settings.steps, score)
