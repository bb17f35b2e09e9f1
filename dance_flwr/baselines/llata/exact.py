"""The groups of least structural entropy of small components, by trying every partition."""

from functools import cache

import torch
from torch import Tensor

from dance_flwr.baselines.llata.entropy import Items, group_terms

MOST_ITEMS = 6  # of a component: 203 partitions
_COMPONENTS = 512  # at a time


def small_components_solved(items: Items, group: Tensor, total: float) -> Tensor:
    """Return groups that are best within every component of at most `MOST_ITEMS` items.

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
    solved = items.size + group
    for count in range(2, MOST_ITEMS + 1):
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
    inside = (labels[:, None, :] == torch.arange(count)[:, None]).double()  # [P, groups, items]
    place = torch.full((items.size,), -1)
    place[members] = torch.arange(count).expand_as(members)
    row = torch.full((items.size,), -1)
    row[members] = torch.arange(len(members))[:, None].expand_as(members)
    here = row[items.a] >= 0
    weight = inside.new_zeros(len(members), count, count)
    weight[row[items.a[here]], place[items.a[here]], place[items.b[here]]] = items.weight[here]
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
