"""D(g', g): distance of the gradients of the condensed graph from the real ones, by class."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

DEAD = 1e-8  # a column of a smaller norm has no direction
_EPS = 1e-6

Gradients = Sequence[Tensor]


def by_columns(condensed: Gradients, real: Gradients) -> Tensor:
    """D = sum_j 1 - cos(g'_j, g_j) over the columns j of all weight matrices, without biases; [B].

    Jin et al. 2022, eq. 9. The cosine's denominator gets 1e-6, as in the public code. Deviation: a
    column with a norm near zero on either side is omitted, since its cosine would be noise.

    Parameters
    ----------
    condensed, real : B gradients each, as tensors [B, in, out] (matrices) and [B, out] (biases)
    """
    total = real[0].new_zeros(len(real[0]))
    for left, right in zip(condensed, real, strict=True):
        # Matrices alone, as in the public code, which skips biases.
        if left.dim() == 3:
            sizes = torch.linalg.vector_norm(left, dim=1), torch.linalg.vector_norm(right, dim=1)
            cosine = (left * right).sum(1) / (sizes[0] * sizes[1] + _EPS)
            # Detached: whether a column counts has no gradient.
            alive = (sizes[0].detach() >= DEAD) & (sizes[1] >= DEAD)
            total = total + torch.where(alive, 1 - cosine, torch.zeros_like(cosine)).sum(1)
    return total


def squared(condensed: Gradients, real: Gradients) -> Tensor:
    """D = sum (g' - g)^2 over all entries, biases included; a sum, not a mean; [B]."""
    pairs = zip(condensed, real, strict=True)
    return torch.stack([(left - right).square().flatten(1).sum(1) for left, right in pairs]).sum(0)


DISTANCES: dict[str, Callable[[Gradients, Gradients], Tensor]] = {
    "ours": by_columns,
    "mse": squared,
}
