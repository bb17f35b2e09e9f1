"""A client's refined graph by tree, soft labels, moves and edges, computed once per run."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dance_flwr import events
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.disk import write_json
from dance_flwr.llm.session import embedder, open_session
from dance_flwr.seeding import generator, seeded
from dance_flwr_rivals.llata import LlataConfig
from dance_flwr_rivals.llata.asking import model_labels, planned_calls
from dance_flwr_rivals.llata.edges import dropped_edges, reallocated, sampled_pairs
from dance_flwr_rivals.llata.entropy import size_of, tree_entropy
from dance_flwr_rivals.llata.nodes import (
    LocalNodes,
    cosine_labels,
    homophily,
    label_accuracy,
    local_nodes,
    propagated_labels,
    sorted_pairs,
)
from dance_flwr_rivals.llata.tree import communities_of
from dance_flwr_rivals.llm4rgnn.pairs import rows_of_pairs
from dance_flwr_rivals.refined_graph import RefinedGraphMethod, RefinedGraphs
from dance_flwr_rivals.run_cache import Arrays

REPORT = "llata.json"  # in a client's folder of a run
# (nodes, communities) -> q, [n, C] float64, and how many nodes the source itself could not label
Labeller = Callable[[LocalNodes, Tensor], tuple[Tensor, int]]


def refined_pairs(
    nodes: LocalNodes, config: RunConfig, labeller: Labeller
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Return the edges of the refined graph, the soft labels, and measures of the refinement.

    Returns
    -------
    pairs : [m', 2] int64, a < b, each once, sorted; m' <= 1.5 m
    soft_labels : q, [n, C] float64
    measures : numbers of nodes and of undirected edges, entropies H in bits, the share of training
        nodes whose argmax q is their label, which q never reads, and the shares of edges between
        training nodes that join equal labels
    """
    settings, pairs = LlataConfig.of(config), nodes.pairs
    # Steps 1 and 2: the tree, and soft labels that may read its communities.
    community = communities_of(pairs, nodes.size)
    labels, fallback = labeller(nodes, community)
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
    return (
        refined,
        labels,
        {
            "nodes": nodes.size,
            "communities": size_of(community),
            "moved_nodes": int((moved != community).sum()),
            "fallback_nodes": fallback,
            "edges": len(pairs),
            "dropped_edges": int(gone.sum()),
            "added_edges": len(added),
            "entropy_one_level": tree_entropy(pairs, nodes.size, torch.arange(nodes.size)),
            "entropy_of_tree": tree_entropy(pairs, nodes.size, community),
            "entropy_after_moves": tree_entropy(pairs, nodes.size, moved),
            "soft_label_accuracy": label_accuracy(labels, nodes.labels),
            "homophily_before": homophily(pairs, nodes.labels),
            "homophily_after": homophily(refined, nodes.labels),
        },
    )


def _line(what: dict[str, Any], client: int) -> str:
    def share(name: str) -> str:
        return "none" if what[name] is None else f"{what[name]:.3f}"

    return (
        "client {client}: {edges} edges - {dropped_edges} + {added_edges}, {moved_nodes} of "
        "{nodes} nodes moved among {communities} communities; ".format(client=client, **what)
        + f"soft labels right on {share('soft_label_accuracy')} of the training nodes, "
        f"edge homophily {share('homophily_before')} -> {share('homophily_after')}"
    )


def _graph(data: ClientData, pairs: Tensor, visible: Tensor, name: str) -> LocalGraph:
    rows = rows_of_pairs(pairs, data.num_nodes)
    return LocalGraph(rows, visible, name, data.edge_gates(rows))


class LabelledCommunities(RefinedGraphMethod):
    """Refines edges by communities and soft labels, whose source a subclass defines."""

    section = LlataConfig

    def soft_labels(
        self, nodes: LocalNodes, community: Tensor, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Return q, [n, C] float64, and the number of nodes whose q is a fallback."""
        raise NotImplementedError

    def refine(self, data: ClientData, config: RunConfig, run: str) -> Arrays:
        """Return the refined edges and the soft labels, and write the report of the client."""
        nodes, client = local_nodes(data), data.card.client
        # Loading an encoder draws from torch's generators, as the dropout of this round does.
        with seeded(config.seed, "llata", client=client):
            pairs, labels, what = refined_pairs(
                nodes, config, lambda nodes, found: self.soft_labels(nodes, found, config, run)
            )
        # The report has accuracies and homophily of this client alone, and stays in its folder.
        write_json(run_folder(data.folder, run) / REPORT, what)
        events.emit("refined", _line(what, client), client=client, **what)
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
            return RefinedGraphs(whole=training, training=training)
        # Test nodes have no soft label in inductive mode: their edges stay as they are.
        rows, cols = data.graph.edges()
        unseen = (rows < cols) & ~(visible[rows] & visible[cols])
        whole = torch.cat([pairs, torch.stack([rows[unseen], cols[unseen]], dim=1)])
        everything = torch.ones_like(visible)
        return RefinedGraphs(_graph(data, whole, everything, "refined-whole"), training)


class Llata(LabelledCommunities):
    """Soft labels by the language model, or by propagation for nodes without a reply."""

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return the maximum number of calls and tokens of a run at this client."""
        return planned_calls(data, config)

    def soft_labels(
        self, nodes: LocalNodes, community: Tensor, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Call the model for every node, with others of its community in the prompt."""
        with open_session(nodes.data, config, run) as session:
            return model_labels(nodes, community, config, session, propagated_labels(nodes))


class LlataCosine(LabelledCommunities):
    """Soft labels by the cosine of texts with the names of classes; no token is spent."""

    def soft_labels(
        self, nodes: LocalNodes, community: Tensor, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Compare every text with every class."""
        temperature = LlataConfig.of(config).label_temperature
        return cosine_labels(nodes, embedder(nodes.data), temperature), 0


class LlataPropagation(LabelledCommunities):
    """Soft labels by label propagation; no token is spent and no text is read for them."""

    def soft_labels(
        self, nodes: LocalNodes, community: Tensor, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Propagate training labels on the original graph."""
        return propagated_labels(nodes), 0
