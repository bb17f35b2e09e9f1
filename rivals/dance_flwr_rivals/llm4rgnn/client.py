"""The refined graph of a client, without irrelevant edges and with probable ones."""

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.nn.ragged import Ragged, rank_in_row
from dance_flwr.seeding import seeded
from dance_flwr_rivals.llm4rgnn import Llm4RgnnConfig, scoring
from dance_flwr_rivals.llm4rgnn.pairs import nearest_nodes, rows_of_pairs, undirected_edges
from dance_flwr_rivals.llm4rgnn.predictor import EdgePredictor, labelled_pairs, train_predictor
from dance_flwr_rivals.llm4rgnn.scoring import (
    UNREADABLE,
    Relevance,
    Scorer,
    by_cosine,
    by_language_model,
)
from dance_flwr_rivals.refined_graph import (
    TRAINING,
    WHOLE,
    RefinedGraphMethod,
    RefinedGraphs,
    graphs_of,
)
from dance_flwr_rivals.run_cache import Arrays


def refine(data: ClientData, config: RunConfig, run: str, scorer: Scorer) -> Arrays:
    """Return the rows of the refined graphs.

    Scores and predictor are learnt on the training graph; in inductive mode, edges of test nodes
    are scored by the regression.
    """
    settings, client = Llm4RgnnConfig.of(config), data.card.client
    relevance = scorer(data, config, run)
    # A purpose of its own: whether a graph is refined now or loaded changes no later draw.
    with seeded(config.seed, "edge-predictor", client=client):
        predictor = _predictor(data, relevance, settings)
    arrays: Arrays = {}
    for name, graph in graphs_of(data).items():
        edges = undirected_edges(graph)
        scores = scores_of(edges, relevance, data.num_nodes)
        # An edge without a score stays: the public code deletes what it cannot read, a fault of its
        # parser.
        relevant = edges[(scores >= settings.beta) | (scores == UNREADABLE)]
        # The predictor has learnt from the training graph alone; test nodes are linked by it.
        added = added_edges(data.features, graph, predictor, settings)
        rows = rows_of_pairs(torch.cat([relevant, added]), data.num_nodes)
        arrays |= {f"{name}_ptr": rows.ptr, f"{name}_index": rows.index}
    return arrays


def scores_of(edges: Tensor, relevance: Relevance, num_nodes: int) -> Tensor:
    """Return the relevance of edges, among which are all scored ones; [m, 2] int64 -> [m] int64."""
    # A pair as one number; both lists are in ascending order.
    place = torch.tensor([num_nodes, 1], device=edges.device)
    scored = torch.isin(edges @ place, relevance.pairs.edges @ place)
    scores = torch.empty_like(edges[:, 0])
    scores[scored] = relevance.scores[: len(relevance.pairs.edges)]
    scores[~scored] = relevance.of_others(edges[~scored])
    return scores


def added_edges(
    features: Tensor, graph: LocalGraph, predictor: EdgePredictor | None, settings: Llm4RgnnConfig
) -> Tensor:
    """Return (u, v) of the at most K candidates v of each u with the highest p > gamma; [m, 2].

    Candidates are the nearest nodes by cosine that u has no edge with. A pair occurs twice where
    each is a candidate of the other.
    """
    limit = settings.added_per_node
    if predictor is None or not limit:
        return torch.zeros(0, 2, dtype=torch.int64, device=features.device)
    # Dropped edges are among the graph's own and no candidates: what was judged is not undone.
    near = nearest_nodes(features, graph, settings.candidates)
    inside = near >= 0
    source = torch.nonzero(inside)[:, 0]
    pairs = torch.stack([source, near[inside]], dim=1)
    probs = predictor.probabilities(features, pairs)
    pairs, probs = pairs[probs > settings.gamma], probs[probs > settings.gamma]
    sizes = torch.bincount(pairs[:, 0], minlength=len(features))
    ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    # At most K each, the most probable first; a node may get more from others.
    return pairs[rank_in_row(probs, ptr) < limit]


def _predictor(
    data: ClientData, relevance: Relevance, settings: Llm4RgnnConfig
) -> EdgePredictor | None:
    if not settings.added_per_node:
        return None
    pairs = relevance.pairs
    learnt = labelled_pairs(pairs.every, relevance.scores, len(pairs.edges))
    return train_predictor(data.features, *learnt, settings)


def _graph(data: ClientData, arrays: Arrays, name: str) -> LocalGraph:
    rows = Ragged(arrays[f"{name}_ptr"], arrays[f"{name}_index"])
    visible = (data.graph if name == WHOLE else data.training_graph).visible
    return LocalGraph(rows, visible, f"refined-{name}", data.edge_gates(rows))


class Llm4RgnnCosine(RefinedGraphMethod):
    """The control: a predictor refines the graph, with the cosine as the score."""

    section = Llm4RgnnConfig
    scorer: Scorer = staticmethod(by_cosine)

    def refine(self, data: ClientData, config: RunConfig, run: str) -> Arrays:
        """Return the rows of the refined graphs, see `refine`."""
        return refine(data, config, run, self.scorer)

    def load(self, data: ClientData, arrays: Arrays) -> RefinedGraphs:
        """Return the graphs of these rows."""
        whole = _graph(data, arrays, WHOLE)
        return {WHOLE: whole, TRAINING: _graph(data, arrays, TRAINING) if data.inductive else whole}


class Llm4Rgnn(Llm4RgnnCosine):
    """The plain network on the graph that a language model and a predictor refined."""

    scorer: Scorer = staticmethod(by_language_model)

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return the maximum number of calls and tokens of a run at this client."""
        return scoring.planned_calls(data, config)
