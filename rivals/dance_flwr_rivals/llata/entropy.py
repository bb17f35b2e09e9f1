"""Structural entropy of a graph under a tree of communities.

Li and Pan, "Structural Information and Dynamical Complexity of Networks", IEEE Transactions on
Information Theory, 2016. A tree has the nodes of the graph as leaves; each tree node a but the root
has the nodes below it as its set. With the volume V_a (sum of degrees of the set), the cut g_a
(edges that leave the set) and W = 2 |E|,

    H = - sum_a g_a / W log2(V_a / V_parent(a)).

For one group a of items i (leaves, or groups of the level below) this is, without a constant,

    W H_a = (G_a - g_a) log2 V_a + g_a log2 V_parent(a),    G_a = sum of g_i over its items,

so that a merge or a move changes the terms of the groups that it touches and no others. A merge of
groups without an edge between them never lowers H.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Items:
    """Items to be grouped, as a weighted graph: nodes, or communities.

    Attributes
    ----------
    a, b : [m] int64, ends of the edges, a < b, each pair once, in ascending order
    weight : [m] float64, number of edges of the graph that it stands for
    volume, cut : [n] float64, V_i and g_i
    """

    a: Tensor
    b: Tensor
    weight: Tensor
    volume: Tensor
    cut: Tensor

    @property
    def size(self) -> int:
        """Number of items n."""
        return len(self.volume)

    @classmethod
    def of_nodes(cls, pairs: Tensor, nodes: int) -> "Items":
        """Return the nodes of a graph; `pairs` is [m, 2] int64, a < b, each edge once, sorted."""
        # float64: changes of the entropy are compared with 1e-9 of the volume.
        ones = torch.ones(len(pairs), dtype=torch.float64)
        a, b = pairs[:, 0], pairs[:, 1]
        degree = torch.bincount(pairs.flatten(), minlength=nodes).double()
        return cls(a, b, ones, degree, degree)

    def grouped(self, group: Tensor, groups: int) -> "Items":
        """Return the groups as items of the level above; `group` is [n] int64 in [0, groups)."""
        low = torch.minimum(group[self.a], group[self.b])
        high = torch.maximum(group[self.a], group[self.b])
        between = low != high
        pairs, place = torch.unique(low[between] * groups + high[between], return_inverse=True)
        weight = sums(place, self.weight[between], len(pairs))
        inside = sums(low[~between], self.weight[~between], groups)
        # An edge inside a group is in the cut of both its ends.
        cut = sums(group, self.cut, groups) - 2 * inside
        return Items(
            pairs // max(groups, 1),
            pairs % max(groups, 1),
            weight,
            sums(group, self.volume, groups),
            cut,
        )


def sums(index: Tensor, values: Tensor, size: int) -> Tensor:
    """Return the sum of the values of each index; [m] int64, [m] -> [size]."""
    return values.new_zeros(size).index_add_(0, index, values)


def group_terms(volume: Tensor, cut: Tensor, inner: Tensor, total: float) -> Tensor:
    """(G - g) log2 V + g log2 W of groups below the root; 0 for empty ones.

    Parameters
    ----------
    volume, cut, inner : V, g and G, float64 of one shape; total : W
    """
    return xlog2(inner - cut, volume) + cut * torch.log2(cut.new_tensor(max(total, 1.0)))


def xlog2(factor: Tensor, value: Tensor) -> Tensor:
    """Return factor log2(value), 0 where the value is 0."""
    return factor * torch.log2(torch.where(value > 0, value, 1.0))


def size_of(group: Tensor) -> int:
    """Return the number of groups."""
    return int(group.max()) + 1 if len(group) else 0


def tree_entropy(pairs: Tensor, nodes: int, community: Tensor) -> float:
    """H of a tree of height 2, in bits; 0 for a graph without edges.

    Parameters
    ----------
    pairs : [m, 2] int64, a < b, each edge once, sorted
    community : [n] int64; one of its own for every node is the tree of height 1
    """
    if not len(pairs):
        return 0.0
    leaves, total = Items.of_nodes(pairs, nodes), 2.0 * len(pairs)
    above = leaves.grouped(community, size_of(community))
    root = torch.full_like(above.volume, total)
    return _level(leaves, above.volume[community], total) + _level(above, root, total)


def inner_entropy(pairs: Tensor, nodes: int, community: Tensor) -> Tensor:
    """- sum_{v in X} d_v / W log2(d_v / V_X) of every community X, in bits; [J] float64.

    Parameters
    ----------
    community : [n] int64 in [0, J)
    """
    communities = size_of(community)
    degree = Items.of_nodes(pairs, nodes).volume
    volume = sums(community, degree, communities)
    # log2 of a quotient as a difference: nodes without edges add 0 and divide by nothing.
    bits = xlog2(degree, volume[community]) - xlog2(degree, degree)
    return sums(community, bits, communities) / max(2 * len(pairs), 1)


def _level(items: Items, volume_above: Tensor, total: float) -> float:
    bits = xlog2(items.cut, volume_above) - xlog2(items.cut, items.volume)
    return float(bits.sum()) / total
