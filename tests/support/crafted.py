"""Start models that a malicious server crafts, so that a masked sum gives single rows.

All units lead to one output, so that a row has the same factor in the gradient of each. Bins (Fowl
et al. 2022, "Robbing the Fed") have equal rows w, and biases at the quantiles of w x. Traps
(Boenisch et al. 2021, "When the Curious Abandon Honesty") have random rows, and are active at about
one node of all clients. Weights behind the first layer are so small that Adam's update is
proportional to the gradient.
"""

import torch
from torch.nn import functional as F

from dance_flwr.seeding import generator

WEIGHT, BIAS = "backbone.first.lin.weight", "backbone.first.bias"
NEXT, HEAD = "backbone.second.lin.weight", "head_graph.weight"
COSINE = 0.999  # with a candidate, above which a row counts as read
_SMALL = 3e-5
_VEIL = 0.3  # length of what veiled bins add to unit weights: cosines of 0.92, below 0.99


def bins(state, rows):
    """Return a model of equal rows w and biases in steps."""
    width, text_dim = state[WEIGHT].shape
    direction = _directions(1, text_dim).expand(width, -1)
    # About one row in a bin; where there are more rows than bins, those of the upper tail.
    levels = 1 - torch.arange(width, 0, -1) / max(width, len(rows))
    return _crafted(state, direction, torch.quantile(rows @ direction[0], levels))


def traps(state, rows):
    """Return a model of random rows whose units are active at one of N rows; see `bins`."""
    directions = _directions(*state[WEIGHT].shape)
    return _crafted(state, directions, torch.quantile(rows @ directions.T, 1 - 1 / len(rows), 0))


def _directions(number, text_dim):
    return F.normalize(torch.randn(number, text_dim, generator=generator(0, "crafted")), dim=1)


def _crafted(state, weight, level):
    new = {name: value.clone() for name, value in state.items()}
    new |= {WEIGHT: weight.clone(), BIAS: -level, NEXT: torch.zeros_like(new[NEXT])}
    new[NEXT][0] = _SMALL
    new[HEAD] = _SMALL * torch.randn(new[HEAD].shape, generator=generator(0, "crafted head"))
    return new


def veiled_bins(state, rows):
    """Return `bins` whose rows differ in the directions in which the texts vary least.

    An adaptive attacker: weights are less parallel than a node refuses, and outputs nearly are.
    """
    new = bins(state, rows)
    _, vectors = torch.linalg.eigh(torch.cov(rows.T))  # the least variance comes first
    low = vectors[:, : max(1, vectors.size(1) // 4)]
    veil = torch.randn(len(new[WEIGHT]), low.size(1), generator=generator(0, "veil")) @ low.T
    new[WEIGHT] = new[WEIGHT] + _VEIL * F.normalize(veil, dim=1)
    return new


def rows_read(start, seen, rows):
    """Return how many of the rows [N, d] the update from `start` to `seen` shows.

    Candidates are the updates of all units, and their differences in the order of the biases.
    """
    change = (seen[WEIGHT] - start[WEIGHT]).cpu().double()
    change = change[start[BIAS].cpu().argsort()]
    return _matched(torch.cat([change, change.diff(dim=0)]), rows)


def _matched(candidates, rows):
    cosines = F.normalize(candidates.double(), dim=1) @ F.normalize(rows.double(), dim=1).T
    best, row = cosines.abs().max(dim=1)
    return len(set(row[best > COSINE].tolist()))
