"""1.5-entmax, with gradients."""

from typing import Any

import torch
from entmax import entmax15 as package_entmax15
from jaxtyping import Bool, Float
from torch import Tensor

from dance_flwr.nn.sums import HOST


def entmax15(
    scores: Float[Tensor, "m W"], inside: Bool[Tensor, "m W"] | None = None
) -> Float[Tensor, "m W"]:
    """1.5-entmax of every row: argmax_p <s, p> + H_1.5(p) over the simplex; [m, W] -> [m, W].

    The package entmax on the CPU. Why not on CUDA (decision 31): it sums floats in an order that is
    not fixed there, so that a run would not repeat to the bit.

    Parameters
    ----------
    inside : of a `ragged.Rule`; not needed, since the low scores of padding get no weight
    """
    if scores.device == HOST:
        return package_entmax15(scores, dim=1)  # type: ignore[no-any-return]
    return SortedEntmax15.apply(scores)  # type: ignore[no-any-return, no-untyped-call]


class SortedEntmax15(torch.autograd.Function):
    """As Peters et al. 2019, exact, without a running sum: p = max(s / 2 - tau, 0)^2."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        """Return the weights [m, W] of the scores [m, W]."""
        halves = (scores - scores.max(dim=1, keepdim=True).values) / 2
        # Entries below -1 have no weight; a product takes 0 * inf for NaN.
        ordered = halves.clamp(min=-2).sort(1, True).values
        count = torch.arange(1, ordered.size(1) + 1, device=scores.device, dtype=scores.dtype)
        both = torch.cat([ordered, ordered**2])
        first, second = both.mm((count[:, None] <= count).to(both.dtype)).chunk(2)
        mean = first / count
        spread = count * (second / count - mean**2)
        # Of the k largest entries: the threshold at which their weights sum to 1.
        tau = mean - torch.sqrt(torch.clamp((1 - spread) / count, 0))
        support = (tau <= ordered).sum(1, keepdim=True)
        probs = torch.clamp(halves - tau.gather(1, support - 1), min=0) ** 2
        ctx.save_for_backward(probs)
        return probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Multiply by the Jacobian diag(r) - r r^T / sum(r), r = sqrt(p)."""
        root: Tensor = ctx.saved_tensors[0].sqrt()
        result = grad * root
        return result.sub_((result.sum(1) / root.sum(1))[:, None] * root)
