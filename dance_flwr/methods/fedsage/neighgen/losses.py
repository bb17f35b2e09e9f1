"""What generated neighbours are measured by."""

import torch
from torch import Tensor


def nearest(made: Tensor, counts: Tensor, targets: Tensor, features: Tensor) -> Tensor:
    """s_v = sum_{p < c_v} min_{u in T_v} ||x'_vp - x_u||^2, 0 where T_v is empty; -> [b].

    Parameters
    ----------
    made : x', [b, P, F]; counts : c, [b] int64
    targets : T, [b, D] int64 rows of `features`, -1 where there are fewer; features : [n, F]
    """
    known = targets >= 0
    gap = made.unsqueeze(2) - features[targets.clamp(min=0)].unsqueeze(1)
    square = gap.square().sum(dim=3).masked_fill(~known.unsqueeze(1), torch.inf)
    used = torch.arange(made.size(1), device=made.device) < counts.unsqueeze(1)
    return torch.where(used & known.any(dim=1, keepdim=True), square.amin(dim=2), 0).sum(dim=1)


def feature_loss(made: Tensor, counts: Tensor, targets: Tensor, features: Tensor) -> Tensor:
    """L_f = mean_v s_v / m_v over these b nodes, m_v = |T_v|, s of `nearest`; 0 where none lost a
    neighbour.
    """
    lost = (targets >= 0).sum(dim=1).clamp(min=1)
    return (nearest(made, counts, targets, features) / lost).sum() / max(len(counts), 1)
