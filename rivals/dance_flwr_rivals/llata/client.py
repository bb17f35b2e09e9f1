"""A client's refined graph by tree, soft labels, moves and edges, computed once per run."""

from collections.abc import Callable

import torch
from torch import Tensor

from dance_flwr import events
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.session import embedder, open_session
from dance_flwr.seeding import generator, seeded
from dance_flwr_rivals.llata import LlataConfig
from dance_flwr_rivals.llata.asking import model_labels, planned_calls
from dance_flwr_rivals.llata.edges import dropped_edges, reallocated, sampled_pairs
from dance_flwr_rivals.llata.nodes import (
    LocalNodes,
    cosine_labels,
    local_nodes,
    propagated_labels,
    sorted_pairs,
)
from dance_flwr_rivals.llata.tree import communities_of
from dance_flwr_rivals.llm4rgnn.pairs import rows_of_pairs
from dance_flwr_rivals.refined_graph import TRAINING, WHOLE, RefinedGraphMethod, RefinedGraphs
from dance_flwr_rivals.run_cache import Arrays

# (nodes, communities, config, run) -> q, [n, C] float64
Labeller = Callable[[LocalNodes, Tensor, RunConfig, str], Tensor]


def refined_pairs(
    nodes: LocalNodes, config: RunConfig, run: str, labeller: Labeller
) -> tuple[Tensor, Tensor, str]:
    """Return the edges of the refined graph, the soft labels, and a line on what was done.

    Returns
    -------
    pairs : [m', 2] int64, a < b, each once, sorted; m' <= 1.5 m
    soft_labels : q, [n, C] float64
    """
    settings, pairs = LlataConfig.of(config), nodes.pairs
    # Steps 1 and 2: the tree, and soft labels that may read its communities.
    community = communities_of(pairs, nodes.size)
    labels = labeller(nodes, community, config, run)
    # Step 3: leaves move.
    moved = reallocated(community, labels, settings.moved_ratio_of_nodes, settings.move_threshold)
    # Step 4: edges between communities go, and edges within them are drawn. Both read the tree
    # after the moves, and both counts are shares of the original edges.
    gone = dropped_edges(moved, pairs, labels, int(settings.dropped_ratio_of_edges * len(pairs)))
    draws = generator(config.seed, "llata", client=nodes.data.card.client)
    count = int(settings.added_ratio_of_edges * len(pairs))
    added = sampled_pairs(moved, pairs, labels, count, settings.temperature, draws)
    edges = torch.cat([pairs[~gone], added])
    refined = sorted_pairs(edges[:, 0], edges[:, 1], nodes.size)
    line = (
        f"{len(pairs)} edges - {int(gone.sum())} + {len(added)}, "
        f"{int((moved != community).sum())} of {nodes.size} nodes moved"
    )
    return refined, labels, line


def _graph(data: ClientData, pairs: Tensor, visible: Tensor, name: str) -> LocalGraph:
    rows = rows_of_pairs(pairs, data.num_nodes)
    return LocalGraph(rows, visible, name, data.edge_gates(rows))


def by_language_model(nodes: LocalNodes, community: Tensor, config: RunConfig, run: str) -> Tensor:
    """Call the model for every node; nodes without a reply have propagated labels."""
    with open_session(nodes.data, config, run) as session:
        return model_labels(nodes, community, config, session, propagated_labels(nodes))


def by_cosine(nodes: LocalNodes, community: Tensor, config: RunConfig, run: str) -> Tensor:
    """Compare every text with the name of every class; no token is spent."""
    return cosine_labels(nodes, embedder(nodes.data), LlataConfig.of(config).label_temperature)


def by_propagation(nodes: LocalNodes, community: Tensor, config: RunConfig, run: str) -> Tensor:
    """Propagate training labels on the original graph; no text is read."""
    return propagated_labels(nodes)


class LlataPropagation(RefinedGraphMethod):
    """Refines edges by communities and soft labels, here propagated ones."""

    section = LlataConfig
    labeller: Labeller = staticmethod(by_propagation)

    def refine(self, data: ClientData, config: RunConfig, run: str) -> Arrays:
        """Return the refined edges and the soft labels."""
        nodes, client = local_nodes(data), data.card.client
        # Loading an encoder draws from torch's generators, as the dropout of this round does.
        with seeded(config.seed, "llata", client=client):
            pairs, labels, line = refined_pairs(nodes, config, run, self.labeller)
        events.emit("refined", f"client {client}: {line}", client=client)
        # Back from the order of ids to the numbers of the client.
        ends = nodes.order[pairs]
        soft = torch.zeros(data.num_nodes, nodes.classes)  # rows of zeros: nodes not seen
        soft[nodes.order] = labels.float()
        return {
            "pairs": sorted_pairs(ends[:, 0], ends[:, 1], data.num_nodes),
            "soft_labels": soft,
        }

    def load(self, data: ClientData, arrays: Arrays) -> RefinedGraphs:
        """Return the graphs of these edges.

        The whole graph has the refined edges among the nodes that are visible in training and, in
        inductive mode, all original edges of test nodes.
        """
        pairs, visible = arrays["pairs"], data.training_graph.visible
        training = _graph(data, pairs, visible, "refined-training")
        if not data.inductive:
            return {WHOLE: training, TRAINING: training}
        # Test nodes have no soft label in inductive mode: their edges stay as they are.
        rows, cols = data.graph.edges()
        unseen = (rows < cols) & ~(visible[rows] & visible[cols])
        whole = torch.cat([pairs, torch.stack([rows[unseen], cols[unseen]], dim=1)])
        everything = torch.ones_like(visible)
        return {WHOLE: _graph(data, whole, everything, "refined-whole"), TRAINING: training}


class LlataCosine(LlataPropagation):
    """Soft labels by the cosine of texts with the names of classes."""

    labeller: Labeller = staticmethod(by_cosine)


class Llata(LlataPropagation):
    """Soft labels by the language model."""

    labeller: Labeller = staticmethod(by_language_model)

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return the maximum number of calls and tokens of a run at this client."""
        return planned_calls(data, config)
