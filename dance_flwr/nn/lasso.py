"""Many small lasso problems at once, each known by its Gram matrix.

min_z ||x - A z||^2 / 2 + sum_j w_j |z_j| with G = A^T A, b = A^T x and ||x||^2.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

# Why not after every step: each check costs about as much as a step or two.
_STEPS_PER_RESTART, _STEPS_PER_GAP = 5, 10


@dataclass(frozen=True)
class Lassos:
    """K problems of s coefficients; problems are the last axis, so that a step is contiguous.

    Attributes
    ----------
    gram : [s, s, K] G; target : [s, K] b; energy : [K] ||x||^2
    penalty : [s, K] w, at least 0
    """

    gram: Float[Tensor, "s s K"]
    target: Float[Tensor, "s K"]
    energy: Float[Tensor, "K"]
    penalty: Float[Tensor, "s K"]

    @classmethod
    def of(
        cls,
        gram: Float[Tensor, "K s s"],
        target: Float[Tensor, "K s"],
        energy: Float[Tensor, "K"],
        penalty: Float[Tensor, "K s"],
    ) -> "Lassos":
        """Return the problems of these rows."""
        laid = gram.permute(1, 2, 0).contiguous()
        return cls(laid, target.T.contiguous(), energy, penalty.T.contiguous())

    def gap(self, z: Float[Tensor, "s K"]) -> tuple[Float[Tensor, "K"], Float[Tensor, "K"]]:
        """Return (objective, duality gap) of each problem; objective - gap <= minimum <= objective.

        The dual is max_theta x^T theta - ||theta||^2 / 2 with |A^T theta| <= w; theta is the best
        multiple of the residual r = x - A z. [K] each.
        """
        pulls = self.target - (self.gram * z).sum(1)  # A^T r
        along = self.energy - (self.target * z).sum(0)  # x^T r
        # Clamped, as rounding may leave less than 0 of a square.
        squared = (along - (pulls * z).sum(0)).clamp(min=0)  # ||r||^2
        objective = squared / 2 + (self.penalty * z.abs()).sum(0)
        # The largest feasible multiple; 0 / 0, without penalty and pull, limits nothing.
        limit = (self.penalty / pulls.abs()).nan_to_num(nan=torch.inf).amin(0)
        some = squared > torch.finfo(z.dtype).eps * self.energy  # else r is rounding
        scale = torch.where(some, torch.minimum(limit, along / squared).clamp(min=0), 0)
        return objective, objective - scale * along + scale.square() * squared / 2


def solve_lassos(
    problems: Lassos, max_steps: int, tolerance: float
) -> tuple[Float[Tensor, "K s"], int]:
    """FISTA with restarts (O'Donoghue and Candes 2015) from z = 0; ([K, s] z, number of steps).

    z+ = soft(y - eta (G y - b), eta w) and y+ = z+ + m / (m + 3) (z+ - z). m counts the problem's
    steps since its last restart, which is due when (y - z+)^T (z+ - z) > 0, checked every five
    steps. The step size eta = 1 / max_row_sum|G| is at most 1 / L and needs no spectral norm.
    Steps end, checked every ten, when the gap of all problems together is at most `tolerance` times
    their dual value: then the sum of their objectives is at most 1 + tolerance times its minimum.

    Parameters
    ----------
    tolerance : 0 = always `max_steps` steps
    """
    # Why row sums (decision 4): they bound the largest eigenvalue without computing it.
    rate = 1 / problems.gram.abs().sum(1).amax(0).clamp(min=1e-12)
    eye = torch.eye(problems.gram.size(0), dtype=rate.dtype, device=rate.device)
    # One matrix per problem: a step is a product and a sum.
    keep = eye[..., None] - problems.gram * rate  # y - eta G y = keep y
    towards, threshold = problems.target * rate, problems.penalty * rate
    below, product = -threshold, torch.empty_like(keep)
    z = y = torch.zeros_like(towards)
    age = torch.zeros_like(rate)
    numbers = torch.arange(1, _STEPS_PER_RESTART + 1, device=rate.device)[:, None]
    for done in range(0, max_steps, _STEPS_PER_RESTART):
        ages = age + numbers
        for momentum in (1 + ages / (ages + 3))[: max_steps - done]:
            # In place: a step allocates nothing of size [s, s, K].
            moved = torch.mul(keep, y, out=product).sum(1).add_(towards)
            # soft(x, t) = x - clip(x, -t, t).
            last, z = z, moved - moved.clamp(below, threshold)
            before, y = y, torch.lerp(last, z, momentum)  # z + m / (m + 3) (z - last)
        back = (before - z).mul_(z - last).sum(0) > 0
        # Why per problem (decision 17): a restart of one column leaves the momentum of the others.
        age, y = ages[-1].masked_fill(back, 0), torch.where(back, z, y)
        steps = done + _STEPS_PER_RESTART
        if tolerance and steps % _STEPS_PER_GAP == 0 and _are_solved(problems, z, tolerance):
            return z.T, min(steps, max_steps)
    return z.T, max_steps


def _are_solved(problems: Lassos, z: Tensor, tolerance: float) -> bool:
    objective, gap = problems.gap(z)
    bound = tolerance / (1 + tolerance)  # of gap <= tolerance (objective - gap)
    return bool(gap.sum() <= bound * objective.sum())
