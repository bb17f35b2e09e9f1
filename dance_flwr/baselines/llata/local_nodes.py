"""The nodes that training sees, in the order of their ids: results do not depend on numbers."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData


@dataclass(frozen=True)
class LocalNodes:
    """The n visible nodes of a client's training graph, numbered in the order of their ids.

    Everything is on the CPU. In inductive mode there is no test node among them.

    Attributes
    ----------
    data : their client
    order : [n] int64, numbers of the nodes at the site
    pairs : [m, 2] int64, edges between them, a < b, each once, sorted
    features : [n, d] float32, t_u scaled to norm 1
    labels : [n] int64, training labels, -1 elsewhere: no others are read
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
    """Return the nodes that training sees."""
    graph, ids = data.training_graph, data.ids()
    visible = torch.nonzero(graph.visible.cpu()).flatten().tolist()
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
