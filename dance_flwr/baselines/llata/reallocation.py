"""Leaves move to the community whose mean soft label is closest to theirs.

With the mean m_X of the soft labels of a community X, a leaf v of A gains

    gain_v = max_X cos(q_v, m_X) - cos(q_v, m_(A without v)),

the mean of an empty community being uniform. Of the leaves with gain_v > delta, the floor(rho n)
with the largest gain move, all at once.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.baselines.llata.entropy import tree_entropy
from dance_flwr.baselines.llata.tree import Tree

_ENTRIES = 2**22  # cosines at a time


def reallocated(
    tree: Tree, pairs: Tensor, soft_labels: Tensor, moved_ratio: float, threshold: float
) -> Tree:
    """Return the tree after the moves; leaves still partition the nodes.

    Moves raise the entropy of the tree. While it is above that of the tree with no communities, the
    half of the moves with the smaller gains is given up.

    Parameters
    ----------
    pairs : [m, 2] int64, the edges, a < b, sorted
    soft_labels : q, [n, C]
    moved_ratio : rho; threshold : delta
    """
    gain, target = gains(tree, soft_labels)
    wanted = torch.nonzero(gain > threshold).flatten()
    wanted = wanted[torch.sort(gain[wanted], descending=True, stable=True).indices]
    wanted = wanted[: int(moved_ratio * len(gain))]
    most = tree_entropy(pairs, len(gain), [])
    while len(wanted):
        community = tree.community.clone()
        community[wanted] = target[wanted]
        moved = tree.with_communities(community)
        if tree_entropy(pairs, len(gain), moved.parents) <= most:
            return moved
        wanted = wanted[: len(wanted) // 2]
    return tree


def gains(tree: Tree, soft_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return gain_v and the community of the largest cosine, ties to the lower number.

    Returns
    -------
    [n] float64, [n] int64
    """
    labels, community = soft_labels.double(), tree.community
    total = labels.new_zeros(tree.communities, labels.size(1)).index_add_(0, community, labels)
    size = torch.bincount(community, minlength=tree.communities)
    rest = total[community] - labels
    alone = (size[community] == 1)[:, None]
    unit = F.normalize(labels, dim=1)
    own = (unit * F.normalize(torch.where(alone, torch.ones_like(rest), rest), dim=1)).sum(1)
    means = F.normalize(total, dim=1).T
    cosine, target = [own.new_empty(0)], [community.new_empty(0)]
    rows = max(_ENTRIES // max(tree.communities, 1), 1)
    for first in range(0, len(labels), rows):
        block = unit[first : first + rows] @ means
        here = community[first : first + rows, None]
        block.scatter_(1, here, float("-inf"))  # its own mean holds the leaf itself
        best = block.max(dim=1)
        cosine.append(best.values)
        target.append(best.indices)
    return torch.cat(cosine) - own, torch.cat(target)
