"""A client's refined graph by tree, soft labels, moves and edges, computed once per run."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from dance_flwr import events
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.data.graphs.graph import csr_from_pairs
from dance_flwr.disk import write_json
from dance_flwr.llm.session import embedder, open_session
from dance_flwr.nn.ragged import Ragged
from dance_flwr.seeding import generator, seeded
from dance_flwr_rivals.llata import LlataConfig
from dance_flwr_rivals.llata.asking import model_labels, planned_calls
from dance_flwr_rivals.llata.edges import dropped_edges, reallocated, sampled_pairs
from dance_flwr_rivals.llata.entropy import tree_entropy
from dance_flwr_rivals.llata.nodes import (
    LocalNodes,
    cosine_labels,
    homophily,
    label_accuracy,
    local_nodes,
    propagated_labels,
    sorted_pairs,
)
from dance_flwr_rivals.llata.tree import Tree, community_tree
from dance_flwr_rivals.refined_graph import RefinedGraphMethod, RefinedGraphs
from dance_flwr_rivals.run_cache import cache_key, load_or_compute

REFINED, REPORT = "refined.npz", "llata.json"  # in a client's folder of a run
# (nodes, tree) -> q, [n, C] float64, and how many nodes the source itself could not label
Labeller = Callable[[LocalNodes, Tree], tuple[Tensor, int]]


@dataclass(frozen=True)
class Refinement:
    """Measures of a refinement at one client, written to its folder and its own log.

    Attributes
    ----------
    nodes, communities, moved_nodes : numbers of each
    fallback_nodes : number of nodes with the labels of the fallback
    edges, dropped_edges, added_edges : numbers of undirected edges
    entropy_one_level, entropy_of_tree, entropy_after_moves : H in bits
    soft_label_accuracy : share of training nodes whose argmax q is their label, which q never reads
    homophily_before, homophily_after : share of edges between training nodes that join equal labels
    """

    nodes: int
    communities: int
    moved_nodes: int
    fallback_nodes: int
    edges: int
    dropped_edges: int
    added_edges: int
    entropy_one_level: float
    entropy_of_tree: float
    entropy_after_moves: float
    soft_label_accuracy: float | None
    homophily_before: float | None
    homophily_after: float | None


def refined_pairs(
    nodes: LocalNodes, config: RunConfig, labeller: Labeller
) -> tuple[Tensor, Tensor, Refinement]:
    """Return the edges of the refined graph, the soft labels, and measures of the refinement.

    Returns
    -------
    pairs : [m', 2] int64, a < b, each once, sorted; m' <= 1.5 m
    soft_labels : q, [n, C] float64
    """
    settings, pairs = LlataConfig.of(config), nodes.pairs
    # Steps 1 and 2: the tree, and soft labels that may read its communities.
    tree = community_tree(pairs, nodes.size, settings.height)
    labels, fallback = labeller(nodes, tree)
    # Step 3: leaves move.
    moved = reallocated(tree, pairs, labels, settings.moved_ratio_of_nodes, settings.move_threshold)
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
        Refinement(
            nodes=nodes.size,
            communities=tree.communities,
            moved_nodes=int((moved.community != tree.community).sum()),
            fallback_nodes=fallback,
            edges=len(pairs),
            dropped_edges=int(gone.sum()),
            added_edges=len(added),
            entropy_one_level=tree_entropy(pairs, nodes.size, []),
            entropy_of_tree=tree_entropy(pairs, nodes.size, tree.parents),
            entropy_after_moves=tree_entropy(pairs, nodes.size, moved.parents),
            soft_label_accuracy=label_accuracy(labels, nodes.labels),
            homophily_before=homophily(pairs, nodes.labels),
            homophily_after=homophily(refined, nodes.labels),
        ),
    )


def refined_graphs(
    data: ClientData, config: RunConfig, run: str, labeller: Labeller
) -> RefinedGraphs:
    """Return the graphs of training and prediction, computed if the folder of the run has none.

    The whole graph has the refined edges among the nodes that are visible in training and, in
    inductive mode, all original edges of test nodes.
    """
    pairs = _arrays(data, config, run, labeller)["pairs"]
    # By content: a graph that was refined anew replaces the one in memory.
    version = hashlib.sha256(pairs.cpu().numpy().tobytes()).hexdigest()
    return data.cached("llata", version, lambda: _graphs(data, pairs))


def _arrays(data: ClientData, config: RunConfig, run: str, labeller: Labeller) -> dict[str, Tensor]:
    def compute() -> dict[str, Tensor]:
        # Loading an encoder draws from torch's generators, as the dropout of this round does.
        with seeded(config.seed, "llata", client=data.card.client):
            return _refine(data, config, run, labeller)

    sections = {section.name: section for section in config.sections}
    key: dict[str, Any] = {
        **cache_key(data, config),
        "method": config.method,
        # The reading changes texts and gates, and with them labels and edges.
        "reading": asdict(data.reading),
        **{name: asdict(sections[name]) for name in ("llata", "llm") if name in sections},
    }
    return load_or_compute(data, run, key, compute, REFINED)


def _refine(data: ClientData, config: RunConfig, run: str, labeller: Labeller) -> dict[str, Tensor]:
    nodes = local_nodes(data)
    pairs, labels, what = refined_pairs(nodes, config, labeller)
    folder, client = run_folder(data.folder, run), data.card.client
    # The report has accuracies and homophily of this client alone, and stays in its folder.
    write_json(folder / REPORT, asdict(what))
    events.emit("refined", _line(what, client), client=client, **asdict(what))
    # Back from the order of ids to the numbers of the client.
    ends = nodes.order[pairs]
    soft = torch.zeros(data.num_nodes, nodes.classes)  # rows of zeros: nodes that were not seen
    soft[nodes.order] = labels.float()
    return {
        "pairs": sorted_pairs(ends[:, 0], ends[:, 1], data.num_nodes),
        "soft_labels": soft,
    }


def _line(what: Refinement, client: int) -> str:
    def share(value: float | None) -> str:
        return "none" if value is None else f"{value:.3f}"

    return (
        f"client {client}: {what.edges} edges - {what.dropped_edges} + {what.added_edges}, "
        f"{what.moved_nodes} of {what.nodes} nodes moved among {what.communities} communities; "
        f"soft labels right on {share(what.soft_label_accuracy)} of the training nodes, "
        f"edge homophily {share(what.homophily_before)} -> {share(what.homophily_after)}"
    )


def _graphs(data: ClientData, pairs: Tensor) -> RefinedGraphs:
    visible = data.training_graph.visible
    training = _graph(data, pairs, visible, "refined-training")
    if not data.inductive:
        return RefinedGraphs(whole=training, training=training)
    # Test nodes have no soft label in inductive mode: their edges stay as they are.
    rows, cols = data.graph.edges()
    unseen = (rows < cols) & ~(visible[rows] & visible[cols])
    more = torch.stack([rows[unseen], cols[unseen]], dim=1)
    whole = torch.cat([pairs, more])
    everything = torch.ones_like(visible)
    return RefinedGraphs(_graph(data, whole, everything, "refined-whole"), training)


def _graph(data: ClientData, pairs: Tensor, visible: Tensor, name: str) -> LocalGraph:
    ends = pairs.cpu().numpy()
    lists = csr_from_pairs(ends[:, 0], ends[:, 1], data.num_nodes)
    ptr, index = (torch.as_tensor(part, dtype=torch.int64, device=data.device) for part in lists)
    rows = Ragged(ptr, index)
    return LocalGraph(rows, visible, name, data.edge_gates(rows))


class LabelledCommunities(RefinedGraphMethod):
    """Refines edges by communities and soft labels, whose source a subclass defines."""

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Return q, [n, C] float64, and the number of nodes whose q is a fallback."""
        raise NotImplementedError

    def graphs(self, data: ClientData, config: RunConfig, run: str) -> RefinedGraphs:
        """Return the graphs that follow from the soft labels, see `refined_graphs`."""
        return refined_graphs(
            data, config, run, lambda nodes, tree: self.soft_labels(nodes, tree, config, run)
        )


class Llata(LabelledCommunities):
    """Soft labels by the language model, or by propagation for nodes without a reply."""

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return the maximum number of calls and tokens of a run at this client."""
        return planned_calls(data, config)

    def soft_labels(
        self, nodes: LocalNodes, tree: Tree, config: RunConfig, run: str
    ) -> tuple[Tensor, int]:
        """Call the model for every node, with others of its community in the prompt."""
        with open_session(nodes.data, config, run) as session:
            return model_labels(nodes, tree, config, session, propagated_labels(nodes))


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
        """Propagate training labels on the original graph."""
        return propagated_labels(nodes), 0
