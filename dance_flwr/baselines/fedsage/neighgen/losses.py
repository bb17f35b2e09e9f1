"""Losses of generated neighbours."""

import torch
from torch import Tensor


def nearest_distances(
    generated: Tensor, counts: Tensor, targets: Tensor, features: Tensor
) -> Tensor:
    """s_v = sum_{p < c_v} min_{u in T_v} ||x'_vp - x_u||^2, 0 where T_v is empty; -> [b].

    Parameters
    ----------
    generated : x', [b, P, F]
    counts : c, [b] int64
    targets : T, [b, D] int64 rows of `features`, padded with -1
    features : [n, F]
    """
    known = targets >= 0
    gap = generated.unsqueeze(2) - features[targets.clamp(min=0)].unsqueeze(1)
    square = gap.square().sum(dim=3).masked_fill(~known.unsqueeze(1), torch.inf)
    used = within_counts(generated, counts)
    return torch.where(used & known.any(dim=1, keepdim=True), square.amin(dim=2), 0).sum(dim=1)


def feature_loss(generated: Tensor, counts: Tensor, targets: Tensor, features: Tensor) -> Tensor:
    """L_f = mean_v s_v / m_v over b nodes, m_v = |T_v|; 0 where no node lost a neighbour.

    Parameters as in `nearest_distances`, which returns s.
    """
    lost = (targets >= 0).sum(dim=1).clamp(min=1)
    distances = nearest_distances(generated, counts, targets, features)
    return (distances / lost).sum() / max(len(counts), 1)


def within_counts(generated: Tensor, counts: Tensor) -> Tensor:
    """Return the mask of the first c_v generated neighbours; [b, P, F], [b] -> [b, P] bool."""
    return torch.arange(generated.size(1), device=generated.device) < counts.unsqueeze(1)
