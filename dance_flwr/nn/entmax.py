"""1.5-entmax, with gradients."""

from typing import Any

import torch
from entmax import entmax15 as package_entmax15
from jaxtyping import Float
from torch import Tensor

from dance_flwr.nn.moving import HOST


def entmax15(scores: Float[Tensor, "m W"]) -> Float[Tensor, "m W"]:
    """1.5-entmax of every row: argmax_p <s, p> + H_1.5(p) over the simplex; [m, W] -> [m, W].

    The package entmax on the CPU. Why not on CUDA (decision 31): it sums floats in an order that is
    not fixed there, so that a run would not repeat to the bit.
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
        probs = torch.clamp(halves - _threshold(ordered, running=False), min=0) ** 2
        ctx.save_for_backward(probs)
        return probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Multiply by the Jacobian diag(r) - r r^T / sum(r), r = sqrt(p)."""
        root: Tensor = ctx.saved_tensors[0].sqrt()
        result = grad * root
        return result.sub_((result.sum(1) / root.sum(1))[:, None] * root)


def entmax15_of_descending(scores: Float[Tensor, "m W"]) -> Float[Tensor, "m W"]:
    """`entmax15` of rows in descending order; [m, W] -> [m, W]. No gradients."""
    halves = ((scores - scores[:, :1]) / 2).clamp(min=-2)
    return torch.clamp(halves - _threshold(halves, running=scores.device == HOST), min=0) ** 2


def _threshold(ordered: Float[Tensor, "m W"], *, running: bool) -> Float[Tensor, "m 1"]:
    """Return tau with sum max(x - tau, 0)^2 = 1 of descending rows from 0 to at least -2.

    By a running sum, as the package to the bit, or by a product.
    """
    count = torch.arange(1, ordered.size(1) + 1, device=ordered.device, dtype=ordered.dtype)
    both = torch.cat([ordered, ordered**2])
    sums = both.cumsum(1) if running else both.mm((count[:, None] <= count).to(both.dtype))
    first, second = sums.chunk(2)
    mean = first / count
    spread = count * (second / count - mean**2)
    # Of the k largest entries: the threshold at which their weights sum to 1.
    tau = mean - torch.sqrt(torch.clamp((1 - spread) / count, 0))
    support = (tau <= ordered).sum(1, keepdim=True)
    return tau.gather(1, support - 1)
