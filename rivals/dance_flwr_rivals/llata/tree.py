"""A community tree of height 2 by greedy merges and moves that lower the structural entropy.

Li and Pan, "Structural Information and Dynamical Complexity of Networks", IEEE Transactions on
Information Theory, 2016. A tree has the nodes of the graph as leaves; each tree node a but the root
has the nodes below it as its set. With the volume V_a (sum of degrees of the set), the cut g_a
(edges that leave the set) and W = 2 |E|,

    H = - sum_a g_a / W log2(V_a / V_parent(a)).

For one group a of items i (leaves, or groups of the level below) this is, without a constant,

    W H_a = (G_a - g_a) log2 V_a + g_a log2 V_parent(a),    G_a = sum of g_i over its items,

so that a merge or a move changes the terms of the groups that it touches and no others. A merge of
groups without an edge between them never lowers H.

Every item, a node, starts as a group of its own. Then, until nothing lowers
H:

1. merge: pairs of groups with an edge between them, whose merge lowers H and is the best one of
   both, merge at once (merges of different groups add up exactly);
2. move: an item goes to the group of a neighbour, or to a new one, where that lowers H and is the
   best of all moves that touch either group.

Last, components of at most six items get the best of all their partitions
(`small_components_solved`); of larger ones the result can be above the minimum. Without
that step, 50 of the 202 graphs of at most six nodes with an edge would be. Where two changes lower
H equally, the lower numbers go first, so that the result depends on the order of the nodes.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

MAX_ITEMS = 6  # of a component: 203 partitions
_COMPONENTS = 512  # at a time
_TOLERANCE = 1e-9  # of W H, relative to W: smaller changes are rounding


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


def small_components_solved(items: Items, group: Tensor, total: float) -> Tensor:
    """Return groups that are best within every component of at most `MAX_ITEMS` items.

    The terms of one component's groups depend on no other component, and no best group spans two.

    Parameters
    ----------
    group : [n] int64, the groups so far, each inside a component; those of large ones stay
    total : W

    Returns
    -------
    [n] int64, numbers below 2 n
    """
    component = components(items)
    order = torch.sort(component, stable=True).indices
    size = torch.bincount(component)
    first = size.cumsum(0) - size
    # Above every item's number, so that groups of large components do not meet those of small ones.
    solved = items.size + group
    # Components of one size at a time, so that a block of them is one batch of tensors.
    for count in range(2, MAX_ITEMS + 1):
        starts = first[size == count]
        for block in torch.split(starts, _COMPONENTS):
            members = order[block[:, None] + torch.arange(count)]
            solved[members] = members.gather(1, _best(items, members, total))
    return solved


def components(items: Items) -> Tensor:
    """Return the number of the connected component of each item; [n] int64."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = (items.a.numpy(), items.b.numpy())
    matrix = coo_array((items.weight.numpy(), ends), shape=(items.size, items.size))
    return torch.from_numpy(connected_components(matrix, directed=False)[1]).long()


def _best(items: Items, members: Tensor, total: float) -> Tensor:
    """Return the best partition of each component; [c, s] int64 -> [c, s], places of items whose
    group they join.
    """
    count = members.size(1)
    labels = partitions(count)
    # Every partition as indicator matrices, so that all their entropies are three products.
    inside = (labels[:, None, :] == torch.arange(count)[:, None]).double()  # [P, groups, items]
    place = torch.full((items.size,), -1)
    place[members] = torch.arange(count).expand_as(members)
    row = torch.full((items.size,), -1)
    row[members] = torch.arange(len(members))[:, None].expand_as(members)
    inside_edges = row[items.a] >= 0
    weight = inside.new_zeros(len(members), count, count)
    weight[
        row[items.a[inside_edges]], place[items.a[inside_edges]], place[items.b[inside_edges]]
    ] = items.weight[inside_edges]
    volume = torch.einsum("pgi,ci->cpg", inside, items.volume[members])
    inner = torch.einsum("pgi,ci->cpg", inside, items.cut[members])
    within = torch.einsum("pgi,cij,pgj->cpg", inside, weight, inside)
    terms = group_terms(volume, inner - 2 * within, inner, total).sum(2)
    return labels[terms.argmin(1)]


@cache
def partitions(count: int) -> Tensor:
    """Return every partition of 0..s-1 into groups numbered by their first items; [P, s] int64."""
    rows = [[0]]
    for item in range(1, count):
        rows = [[*row, label] for row in rows for label in [*sorted(set(row)), item]]
    return torch.tensor(rows)


def communities_of(pairs: Tensor, nodes: int) -> Tensor:
    """Return the community of each node: a tree whose entropy no greedy change lowers; [n] int64.

    Parameters
    ----------
    pairs : [m, 2] int64, a < b, each edge once, sorted
    """
    items, total = Items.of_nodes(pairs, nodes), 2.0 * len(pairs)
    # Every item starts alone.
    group = torch.arange(items.size)
    while True:
        # Steps 1 and 2, repeated until neither lowers the entropy.
        merged = _merge(items, group, total)
        moved = _move(items, merged, total)
        if bool((moved == group).all()):
            return _renumbered(small_components_solved(items, group, total))
        group = moved


def _merge(items: Items, group: Tensor, total: float) -> Tensor:
    while True:
        groups = size_of(group)
        level = items.grouped(group, groups)
        inner = sums(group, items.cut, groups)
        term = group_terms(level.volume, level.cut, inner, total)
        # Neighbours alone: a merge of groups without an edge between them never lowers H.
        a, b = level.a, level.b
        both = group_terms(
            level.volume[a] + level.volume[b],
            level.cut[a] + level.cut[b] - 2 * level.weight,
            inner[a] + inner[b],
            total,
        )
        chosen = _disjoint(both - term[a] - term[b], a, b, groups, total)
        if not len(chosen):
            return group
        target = torch.arange(groups)
        # The lower number names the group, whatever the order of the merges.
        target[b[chosen]] = a[chosen]
        group = _renumbered(target[group])


def _move(items: Items, group: Tensor, total: float) -> Tensor:
    while True:
        node, source, target, change = _moves(items, group, total)
        chosen = _disjoint(change, source, target, items.size + size_of(group), total)
        if not len(chosen):
            return _renumbered(group)
        group = group.clone()
        group[node[chosen]] = target[chosen]
        group = _renumbered(group)


def _moves(items: Items, group: Tensor, total: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (item, its group, another one, change of W H) of every move; [p] each.

    The other group is one of a neighbour, or the new group J + item.
    """
    groups, every = size_of(group), torch.arange(items.size)
    level = items.grouped(group, groups)
    inner = sums(group, items.cut, groups)
    node = torch.cat([items.a, items.b, every, every])
    # The groups of neighbours, its own, and a new group of the item alone.
    other = torch.cat([group[items.b], group[items.a], group, groups + every])
    width = groups + items.size
    key, place = torch.unique(node * width + other, return_inverse=True)
    weight = torch.cat([items.weight, items.weight, items.weight.new_zeros(2 * items.size)])
    weight = sums(place, weight, len(key))  # of the edges between item and group
    node, target = key // width, key % width
    inner_weight = weight.new_zeros(items.size)
    inside = target == group[node]
    inner_weight[node[inside]] = weight[inside]
    size = torch.bincount(group, minlength=groups)
    # An item that is alone would only change the number of its group.
    keep = ~inside & ((target < groups) | (size[group[node]] > 1))
    node, target, weight = node[keep], target[keep], weight[keep]

    def padded(values: Tensor) -> Tensor:
        return torch.cat([values, values.new_zeros(items.size)])

    volume, cut, inner = padded(level.volume), padded(level.cut), padded(inner)
    term = group_terms(volume, cut, inner, total)
    source, inner_weight = group[node], inner_weight[node]
    v, g = items.volume[node], items.cut[node]
    left = group_terms(
        volume[source] - v, cut[source] - g + 2 * inner_weight, inner[source] - g, total
    )
    joined = group_terms(volume[target] + v, cut[target] + g - 2 * weight, inner[target] + g, total)
    return node, source, target, left + joined - term[source] - term[target]


def _disjoint(change: Tensor, a: Tensor, b: Tensor, groups: int, total: float) -> Tensor:
    """Return the changes that lower W H and are the best ones of both groups; [c] int64.

    Ties go to the earlier change.
    """
    # Smaller changes are rounding, and could alternate for ever.
    lower = torch.nonzero(change < -_TOLERANCE * max(total, 1.0)).flatten()
    order = lower[torch.sort(change[lower], stable=True).indices]
    place = torch.arange(len(order))
    best = torch.full((groups,), len(order))
    # A change is made if no better one touches either group: then changes at once add up exactly.
    best.scatter_reduce_(0, a[order], place, "amin")
    best.scatter_reduce_(0, b[order], place, "amin")
    return order[(best[a[order]] == place) & (best[b[order]] == place)]


def first_places(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of each key among the distinct ones, and where each of these is first."""
    distinct, number = torch.unique(keys, return_inverse=True)
    first = torch.full((len(distinct),), len(keys))
    first.scatter_reduce_(0, number, torch.arange(len(keys)), "amin")
    return number, first


def _renumbered(group: Tensor) -> Tensor:
    """Return the same groups, numbered from 0 by their first items."""
    place, first = first_places(group)
    rank = torch.empty_like(first)
    rank[torch.argsort(first)] = torch.arange(len(first))
    return rank[place]
