"""Coreset rules that select K labelled training nodes: random, herding, k-center."""

from collections.abc import Callable

import torch
from torch import Tensor


def random_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` rows drawn uniformly without repetition; [count] int64."""
    return torch.randperm(len(points), generator=generator)[:count].to(points.device)


def herding_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """x_t = argmin ||mean - (x_1 + ... + x_t) / t||, without repetition (Welling 2009).

    The mean of the selected rows follows the mean of all; [count] int64, in this order.
    Deterministic; ties go to the lower index.

    Parameters
    ----------
    points : [m, d], count <= m
    """
    mean, total = points.mean(0), torch.zeros_like(points[0])
    selected: list[int] = []
    for step in range(1, count + 1):
        gap = (mean - (total + points) / step).square().sum(1)
        gap[selected] = float("inf")
        selected.append(int(gap.argmin()))
        total = total + points[selected[-1]]
    return torch.tensor(selected, dtype=torch.int64, device=points.device)


def k_center_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """x_1 nearest to the mean, then x_t farthest from x_1, .., x_(t-1) (Gonzalez 1985).

    The greedy 2-approximation of the smallest radius that covers all rows, as in Sener and Savarese
    2018; [count] int64, in this order. Deterministic; ties go to the lower index.

    Parameters
    ----------
    points : [m, d], count <= m
    """
    selected = [int((points - points.mean(0)).square().sum(1).argmin())][:count]
    nearest = points.new_full((len(points),), float("inf"))
    while len(selected) < count:
        nearest = torch.minimum(nearest, (points - points[selected[-1]]).square().sum(1))
        nearest[selected] = -1.0
        selected.append(int(nearest.argmax()))
    return torch.tensor(selected, dtype=torch.int64, device=points.device)


Rule = Callable[[Tensor, int, torch.Generator], Tensor]
RULES: dict[str, Rule] = {"random": random_rows, "herding": herding_rows, "k-center": k_center_rows}


def select_core(
    points: Tensor, labels: Tensor, quotas: Tensor, rule: Rule, generator: torch.Generator
) -> Tensor:
    """Select K_c nodes of every class by `rule`, in ascending order; [K] int64.

    Parameters
    ----------
    points : [n, d], the space in which distances are measured
    labels : [n] int64, -1 for nodes that must not be selected
    quotas : [C] int64
    """
    selected = [torch.nonzero(labels < -1).flatten()]
    for number in torch.nonzero(quotas).flatten().tolist():
        nodes = torch.nonzero(labels == number).flatten()
        selected.append(nodes[rule(points[nodes], int(quotas[number]), generator)])
    return torch.cat(selected).sort().values
