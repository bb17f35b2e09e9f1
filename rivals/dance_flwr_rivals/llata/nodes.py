"""The nodes that are visible in training, and their soft labels without a language model.

Nodes are in the order of their ids, so that results do not depend on node numbers. No soft label of
a training node is made with that node's own label, whichever the source.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.llm.template import Embed
from dance_flwr.nn.propagation import operator

STEPS, ALPHA = 50, 0.8  # of label propagation, as in `smoothing`
FOLDS = 5


@dataclass(frozen=True)
class LocalNodes:
    """The n visible nodes of a client's training graph, numbered in the order of their ids.

    Everything is on the CPU. In inductive mode there is no test node among them.

    Attributes
    ----------
    data : the client
    order : [n] int64, numbers of the nodes at the client
    pairs : [m, 2] int64, edges between them, a < b, each once, sorted
    features : [n, d] float32, t_u scaled to norm 1
    labels : [n] int64, training labels, -1 elsewhere
    """

    data: ClientData
    order: Tensor
    pairs: Tensor
    features: Tensor
    labels: Tensor

    @property
    def size(self) -> int:
        """Number of nodes n."""
        return len(self.order)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the C classes."""
        return self.data.card.class_names

    @property
    def classes(self) -> int:
        """Number of classes C."""
        return len(self.class_names)

    @cached_property
    def texts(self) -> list[str]:
        """The text of each node, read from disk."""
        every = self.data.texts()
        return [every[node] for node in self.order.tolist()]


def local_nodes(data: ClientData) -> LocalNodes:
    """Return the nodes that are visible in training."""
    graph, ids = data.training_graph, data.ids()
    visible = torch.nonzero(graph.visible.cpu()).flatten().tolist()
    # By id, so that greedy trees and draws do not depend on how nodes are numbered.
    order = torch.tensor(sorted(visible, key=ids.__getitem__), dtype=torch.int64)
    place = torch.full((data.num_nodes,), -1)
    place[order] = torch.arange(len(order))
    rows, cols = (place[ends.cpu()] for ends in graph.edges())
    once = rows < cols
    pairs = sorted_pairs(rows[once], cols[once], len(order))
    features = F.normalize(data.features.cpu()[order], dim=1)
    return LocalNodes(data, order, pairs, features, data.train_labels.cpu()[order])


def sorted_pairs(a: Tensor, b: Tensor, nodes: int) -> Tensor:
    """Return distinct edges with their lower end first, sorted; [m], [m] int64 -> [k, 2]."""
    key = torch.unique(torch.minimum(a, b) * nodes + torch.maximum(a, b))
    return torch.stack([key // max(nodes, 1), key % max(nodes, 1)], dim=1)


def class_sentence(name: str) -> str:
    """Return a sentence with the name of a class, which is closer to texts than the name alone."""
    # A sentence classifies better than the bare name: 61 and 56 % of 100 nodes of Cora.
    return f"This text is about {' '.join(name.replace('_', ' ').split())}."


def cosine_labels(nodes: LocalNodes, embed: Embed, temperature: float) -> Tensor:
    """q_v = softmax_c(cos(t_v, e_c) / T), e_c the embedding of class c's sentence; [n, C] float64.

    Parameters
    ----------
    embed : the client's text encoder
    temperature : T
    """
    names = torch.as_tensor(embed([class_sentence(name) for name in nodes.class_names]))
    names = F.normalize(names.double(), dim=1)
    return torch.softmax(nodes.features.double() @ names.T / temperature, dim=1)


def propagated_labels(nodes: LocalNodes) -> Tensor:
    """q_v ~ F_v, F <- alpha P F + (1 - alpha) Y, P = D^-1/2 (A + I) D^-1/2; [n, C] float64.

    Zhou et al. 2003. Y has the training labels, one-hot, without those of v's fold: the training
    nodes are split into folds by their place, so that a node's own label does not reach it. Nodes
    that no label reaches have the shares of the training labels, plus one each.
    """
    known = torch.nonzero(nodes.labels >= 0).flatten()
    fold = torch.full((nodes.size,), FOLDS)  # of the other nodes: reads every label
    # By place and not at random: one split for all seeds.
    fold[known] = torch.arange(len(known)) % FOLDS
    one_hot = torch.zeros(nodes.size, nodes.classes, dtype=torch.float64)
    one_hot[known, nodes.labels[known]] = 1
    # All folds side by side, as further columns of one propagation.
    masked = torch.stack([one_hot * (fold != number)[:, None] for number in range(FOLDS + 1)], 1)
    start = masked.flatten(1)
    rows, cols = torch.cat([nodes.pairs, nodes.pairs.flip(1)]).T
    ones = torch.ones(len(rows), dtype=torch.float64)
    step = operator("gcn", rows, cols, ones, nodes.size)
    spread = start
    for _ in range(STEPS):
        spread = ALPHA * (step @ spread) + (1 - ALPHA) * start
    scores = spread.view(masked.shape)[torch.arange(nodes.size), fold]
    # Plus one each, so that no class has probability 0.
    shares = one_hot.sum(0) + 1
    mass = scores.sum(1, keepdim=True)
    return torch.where(mass > 0, scores / mass.clamp(min=1e-300), shares / shares.sum())
