"""Moves of leaves to other communities, edges drawn from the tree, and dropped edges.

First leaves move. With the mean m_X of the soft labels of a community X, a leaf v of A gains

    gain_v = max_X cos(q_v, m_X) - cos(q_v, m_(A without v)),

the mean of an empty community being uniform. Of the leaves with gain_v > delta, the floor(rho n)
with the largest gain move, all at once.

A new edge takes two steps: a community X with probability in proportion to the entropy inside it,

    p(X) ~ - sum_{v in X} d_v / W log2(d_v / V_X),

then two of its leaves, u uniformly and v with probability in proportion to
exp(cos(q_u, q_v) / tau). Edges that exist, or were drawn before, are drawn again, up to `_PASSES`
times.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.nn.ragged import Ragged, ptr_of_rows
from dance_flwr_rivals.llata.tree import first_places, inner_entropy

_COSINES = 2**22  # cosines at a time
# Bounds the draws: a community whose pairs are all edges has no new one.
_PASSES = 10
_CANDIDATES = 2**21  # candidates of second ends at a time


def reallocated(
    community: Tensor, soft_labels: Tensor, moved_ratio: float, threshold: float
) -> Tensor:
    """Return the communities after the moves.

    Moves raise the entropy of the tree, but never above that of the tree without communities, since
    a group's terms are at most those of its leaves below the root.

    Parameters
    ----------
    soft_labels : q, [n, C]
    moved_ratio : rho
    threshold : delta
    """
    gain, target = gains(community, soft_labels)
    wanted = torch.nonzero(gain > threshold).flatten()
    wanted = wanted[torch.sort(gain[wanted], descending=True, stable=True).indices]
    # Largest gains first; the stable sort sends ties to the lower node.
    wanted = wanted[: int(moved_ratio * len(gain))]
    moved = community.clone()
    moved[wanted] = target[wanted]
    return moved


def gains(community: Tensor, soft_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return gain_v and the community of the largest cosine, ties to the lower number.

    Returns
    -------
    [n] float64, [n] int64
    """
    labels, size = soft_labels.double(), torch.bincount(community)
    total = labels.new_zeros(len(size), labels.size(1)).index_add_(0, community, labels)
    # Without the leaf itself: its own label must not hold it in its community.
    rest = total[community] - labels
    # The mean of an empty community is uniform, so that a lone leaf can still compare.
    alone = (size[community] == 1)[:, None]
    unit = F.normalize(labels, dim=1)
    current = (unit * F.normalize(torch.where(alone, torch.ones_like(rest), rest), dim=1)).sum(1)
    means = F.normalize(total, dim=1).T
    cosine, target = [current.new_empty(0)], [community.new_empty(0)]
    # In blocks, as n nodes times J communities may not fit the memory.
    rows = max(_COSINES // max(len(size), 1), 1)
    for first in range(0, len(labels), rows):
        block = unit[first : first + rows] @ means
        member = community[first : first + rows, None]
        block.scatter_(1, member, float("-inf"))  # its own mean holds the leaf itself
        best = block.max(dim=1)
        cosine.append(best.values)
        target.append(best.indices)
    return torch.cat(cosine) - current, torch.cat(target)


def sampled_pairs(
    community: Tensor,
    pairs: Tensor,
    soft_labels: Tensor,
    count: int,
    temperature: float,
    generator: torch.Generator,
) -> Tensor:
    """Return at most `count` new edges, [k, 2] int64, a < b, in the order in which they were drawn.

    There are fewer if the communities have no more pairs without an edge.

    Parameters
    ----------
    pairs : [m, 2] int64, the edges of the graph, a < b, sorted
    soft_labels : q, [n, C]
    temperature : tau
    """
    n, size = len(soft_labels), torch.bincount(community)
    chance = inner_entropy(pairs, n, community)
    # A community of one leaf has no pair.
    chance = torch.where((size > 1) & (chance > 0), chance, 0.0)
    # A pair as one number, so that sets of edges are compared by sorting.
    taken = pairs[:, 0] * n + pairs[:, 1]
    keys = taken.new_empty(0)
    if not bool(chance.any()):
        return pairs[:0]
    members = Ragged(
        ptr_of_rows(torch.sort(community).values, len(size)),
        torch.sort(community, stable=True).indices,
    )
    unit = F.normalize(soft_labels.double(), dim=1)
    for _ in range(_PASSES):
        if len(keys) >= count:
            break
        drawn = _draws(chance, count, generator)
        u, v = _two_leaves(drawn, members, unit, temperature, generator)
        key = torch.minimum(u, v) * n + torch.maximum(u, v)
        # In the order of the draws: cutting at `count` favours no node number.
        keys = torch.cat([keys, key[~torch.isin(key, taken)]])
        keys = keys[first_places(keys)[1].sort().values]
    keys = keys[:count]
    return torch.stack([keys // n, keys % n], dim=1)


def dropped_edges(community: Tensor, pairs: Tensor, soft_labels: Tensor, count: int) -> Tensor:
    """Return the mask of dropped edges, at most `count` edges between communities; [m] bool.

    Edges with the smallest cosine of soft labels are dropped first, ties to the earlier edge.
    """
    a, b = pairs[:, 0], pairs[:, 1]
    unit = F.normalize(soft_labels.double(), dim=1)
    # Edges within a community are what the tree asserts, and stay.
    between = torch.nonzero(community[a] != community[b]).flatten()
    cosine = (unit[a[between]] * unit[b[between]]).sum(1)
    gone = torch.zeros(len(pairs), dtype=torch.bool)
    gone[between[torch.sort(cosine, stable=True).indices[:count]]] = True
    return gone


def _draws(chance: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return communities drawn with these chances, [count] int64."""
    edges = chance.cumsum(0)
    where = torch.rand(count, generator=generator, dtype=torch.float64) * edges[-1]
    drawn = torch.searchsorted(edges, where, right=True)
    # Rounding may put a draw behind the last community that has a chance.
    return drawn.clamp(max=int(torch.nonzero(chance)[-1]))


def _two_leaves(
    drawn: Tensor, members: Ragged, unit: Tensor, temperature: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return two different leaves of each drawn community, [k] int64 each."""
    size = members.ptr.diff()[drawn]
    uniform = torch.rand(len(drawn), generator=generator, dtype=torch.float64)
    # The cosine is one of two leaves, so that the first is drawn uniformly.
    first = members.index[members.ptr[drawn] + (uniform * size).long()]
    second = [first[:0]]
    block_of = (size.cumsum(0) - 1) // _CANDIDATES
    blocks = torch.bincount(block_of).tolist() if len(drawn) else []
    for block, ends in zip(torch.split(drawn, blocks), torch.split(first, blocks), strict=True):
        candidates = members.take(block)
        row = candidates.rows()
        cosine = (unit[ends[row]] * unit[candidates.index]).sum(1)
        # The largest of score + Gumbel noise is a draw from the softmax of the scores.
        noise = torch.rand(len(row), generator=generator, dtype=torch.float64)
        score = cosine / temperature - torch.log(-torch.log(noise.clamp(1e-300, 1 - 1e-16)))
        # No self loops.
        score[candidates.index == ends[row]] = float("-inf")
        best = score.new_full((len(block),), float("-inf"))
        # The first place of the largest score, so that ties have one result on every device.
        best.scatter_reduce_(0, row, score, "amax")
        place = torch.full((len(block),), len(row))
        place.scatter_reduce_(
            0, row, torch.where(score == best[row], torch.arange(len(row)), len(row)), "amin"
        )
        second.append(candidates.index[place])
    return first, torch.cat(second)
