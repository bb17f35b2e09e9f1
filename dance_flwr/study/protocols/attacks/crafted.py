"""Start models that a malicious server crafts, so that a sum of updates gives single rows.

The first layer of the graph convolutional network reads a row x of texts per node, averaged over
the node's neighbours. Its unit j is active where w_j x + b_j > 0, and its gradient is a sum of the
rows at which it is active. All units here lead to one and the same output, so that a row has the
same factor in the gradient of each.

Bins (Fowl et al. 2022, "Robbing the Fed"): all w_j are the same, and b_j steps through the
quantiles of w x. Where a single row is in a bin, the difference of two consecutive gradients is
that row. Traps (Boenisch et al. 2021, "When the Curious Abandon Honesty"): w_j are random, and b_j
is such that a unit is active at about one row of all clients. Deviations: the weights behind the
first layer are so small that gradients are below the 1e-8 with which Adam divides, so that an update
is proportional to its gradient; the server knows the distribution of w x.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.seeding import generator

WEIGHT, BIAS = "backbone.first.lin.weight", "backbone.first.bias"
NEXT, HEAD = "backbone.second.lin.weight", "head_graph.weight"
# A row counts as read where the cosine with a candidate exceeds this, and is that of no other row.
COSINE = 0.99
_SMALL = 3e-5

State = dict[str, Tensor]
Craft = Callable[[Mapping[str, Tensor], Tensor], State]


def bins(state: Mapping[str, Tensor], rows: Tensor) -> State:
    """Return a model of equal rows w and biases in steps.

    Parameters
    ----------
    state : of an honest model; rows : [N, d] inputs of the first layer whose distribution is known
    """
    width, text_dim = state[WEIGHT].shape
    direction = _directions(1, text_dim).expand(width, -1)
    # About one row in a bin; where there are more rows than bins, those of the upper tail.
    levels = 1 - torch.arange(width, 0, -1) / max(width, len(rows))
    return _crafted(state, direction, torch.quantile(rows @ direction[0], levels))


def traps(state: Mapping[str, Tensor], rows: Tensor) -> State:
    """Return a model of random rows whose units are active at one of N rows; see `bins`."""
    directions = _directions(*state[WEIGHT].shape)
    return _crafted(state, directions, torch.quantile(rows @ directions.T, 1 - 1 / len(rows), 0))


def _directions(number: int, text_dim: int) -> Tensor:
    return F.normalize(torch.randn(number, text_dim, generator=generator(0, "crafted")), dim=1)


def _crafted(state: Mapping[str, Tensor], weight: Tensor, level: Tensor) -> State:
    new = {name: value.clone() for name, value in state.items()}
    new |= {WEIGHT: weight.clone(), BIAS: -level, NEXT: torch.zeros_like(new[NEXT])}
    new[NEXT][0] = _SMALL
    new[HEAD] = _SMALL * torch.randn(new[HEAD].shape, generator=generator(0, "crafted head"))
    return new


def rows_read(start: Mapping[str, Tensor], seen: Mapping[str, Tensor], rows: Tensor) -> int:
    """Return how many of the rows [N, d] the update from `start` to `seen` shows.

    Candidates are the updates of all units, and their differences in the order of the biases.
    """
    change = (seen[WEIGHT] - start[WEIGHT]).cpu().double()
    change = change[start[BIAS].cpu().argsort()]
    candidates = F.normalize(torch.cat([change, change.diff(dim=0)]), dim=1)
    cosines = (candidates @ F.normalize(rows.double(), dim=1).T).abs()
    best, row = cosines.max(dim=1)
    return int(row[best > COSINE].unique().numel())
