"""D(g', g): how far the gradients of the condensed graph are from those of the real one, one value
per class.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

DEAD = 1e-8  # a column of this norm has no direction
_EPS = 1e-6

Gradients = Sequence[Tensor]


def by_columns(condensed: Gradients, real: Gradients) -> Tensor:
    """D = sum over weight matrices and their columns j of 1 - cos(g'_j, g_j); biases do not count;
    [B].

    Jin et al. 2022, eq. 9. The cosine's denominator gets 1e-6, as in the public code. Deviation: a
    column that is dead on either side is left out; its cosine would be noise.

    Parameters
    ----------
    condensed, real : tensors [B, in, out] (matrices) and [B, out] (biases), B gradients side by
        side
    """
    total = real[0].new_zeros(len(real[0]))
    for left, right in zip(condensed, real, strict=True):
        if left.dim() == 3:
            sizes = torch.linalg.vector_norm(left, dim=1), torch.linalg.vector_norm(right, dim=1)
            cosine = (left * right).sum(1) / (sizes[0] * sizes[1] + _EPS)
            alive = (sizes[0].detach() >= DEAD) & (sizes[1] >= DEAD)
            total = total + torch.where(alive, 1 - cosine, torch.zeros_like(cosine)).sum(1)
    return total


def squared(condensed: Gradients, real: Gradients) -> Tensor:
    """D = sum (g' - g)^2 over all entries, biases included; a sum and no mean; [B]."""
    pairs = zip(condensed, real, strict=True)
    return torch.stack([(left - right).square().flatten(1).sum(1) for left, right in pairs]).sum(0)


def one_cosine(condensed: Gradients, real: Gradients) -> Tensor:
    """D = 1 - cos(g', g) of all entries as one vector; 0 where either is dead; [B]."""
    left, right = (
        torch.cat([part.flatten(1) for part in side], dim=1) for side in (condensed, real)
    )
    sizes = torch.linalg.vector_norm(left, dim=1), torch.linalg.vector_norm(right, dim=1)
    cosine = (left * right).sum(1) / (sizes[0] * sizes[1] + _EPS)
    alive = (sizes[0].detach() >= DEAD) & (sizes[1] >= DEAD)
    return torch.where(alive, 1 - cosine, torch.zeros_like(cosine))


DISTANCES: dict[str, Callable[[Gradients, Gradients], Tensor]] = {
    "ours": by_columns,
    "mse": squared,
    "cos": one_cosine,
}
