"""K labelled training nodes by a rule of their own: random, herding, k-center; the lower bounds of
condensation.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def random_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` rows drawn evenly without repetition; [count] int64."""
    return torch.randperm(len(points), generator=generator)[:count].to(points.device)


def herding_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """x_t = argmin ||mean - (x_1 + ... + x_t) / t||, without repetition (Welling 2009); [count]
    int64, in this order.

    The chosen nodes' mean follows the mean of all. Deterministic; ties go to the lower index.

    Parameters
    ----------
    points : [m, d], count <= m
    """
    mean, total = points.mean(0), torch.zeros_like(points[0])
    chosen: list[int] = []
    for step in range(1, count + 1):
        gap = (mean - (total + points) / step).square().sum(1)
        gap[chosen] = float("inf")
        chosen.append(int(gap.argmin()))
        total = total + points[chosen[-1]]
    return torch.tensor(chosen, dtype=torch.int64, device=points.device)


def k_center_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """x_1 nearest to the mean, then x_t farthest from those chosen (Gonzalez 1985; Sener and
    Savarese 2018).

    The greedy 2-approximation of the smallest radius that covers all; [count] int64, in this order.
    Deterministic; ties go to the lower index.

    Parameters
    ----------
    points : [m, d], count <= m
    """
    chosen = [int((points - points.mean(0)).square().sum(1).argmin())][:count]
    nearest = points.new_full((len(points),), float("inf"))
    while len(chosen) < count:
        nearest = torch.minimum(nearest, (points - points[chosen[-1]]).square().sum(1))
        nearest[chosen] = -1.0
        chosen.append(int(nearest.argmax()))
    return torch.tensor(chosen, dtype=torch.int64, device=points.device)


Rule = Callable[[Tensor, int, torch.Generator], Tensor]
RULES: dict[str, Rule] = {"random": random_rows, "herding": herding_rows, "k-center": k_center_rows}


def select_core(
    points: Tensor, labels: Tensor, quotas: Tensor, rule: Rule, generator: torch.Generator
) -> Tensor:
    """Return the chosen nodes, K_c of every class by `rule`, in ascending order; [K] int64.

    Parameters
    ----------
    points : [n, d], the space in which nodes are near or far; labels : [n] int64, -1 for nodes not
        to choose
    quotas : [C] int64
    """
    chosen = [torch.nonzero(labels < -1).flatten()]
    for number in torch.nonzero(quotas).flatten().tolist():
        nodes = torch.nonzero(labels == number).flatten()
        chosen.append(nodes[rule(points[nodes], int(quotas[number]), generator)])
    return torch.cat(chosen).sort().values
