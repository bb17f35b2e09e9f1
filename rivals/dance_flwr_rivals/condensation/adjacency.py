"""A'_ij = sigmoid((g[x_i || x_j] + g[x_j || x_i]) / 2), A'_ii = 0: GCond's adjacency."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# That of torch's batch normalisation.
_EPS = 1e-5


class PairNetwork(nn.Module):
    """g: [x_i || x_j] -> (Linear -> BatchNorm -> ReLU) twice -> Linear of width 1.

    From x [K, d] float32 to A' [K, K] in [0, 1], symmetric with a zero diagonal (Jin et al. 2022,
    Sec. 3.2). Both normalisations use the statistics of all K^2 pairs of this x, during and after
    training. There are no running statistics, so that the same weights give another A' on other
    nodes.

    The first layer is linear in the pair, W [x_i || x_j] = W_a x_i + W_b x_j, and over all pairs
    its mean and variance are sums of those of the two parts: it costs O(K d) instead of O(K^2 d).
    The second layer holds all K^2 pairs, each `width` floats.

    Parameters
    ----------
    dim : d
    width : width of both hidden layers
    """

    def __init__(self, dim: int, width: int = 128) -> None:
        super().__init__()
        # No biases before a normalisation, which would cancel them.
        self.first = nn.Linear(2 * dim, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.last = nn.Linear(width, 1)
        self.scales = nn.Parameter(torch.ones(2, width))
        self.shifts = nn.Parameter(torch.zeros(2, width))

    def forward(self, nodes: Tensor) -> Tensor:
        """Return A', [K, K]."""
        # Both orders of a pair are averaged, so that A' is symmetric.
        logits = self._logits(*self._first(nodes))
        adjacency = torch.sigmoid((logits + logits.T) / 2)
        # No self loops: the operators add them.
        return adjacency * (1 - torch.eye(len(nodes), device=nodes.device))

    def _first(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return (left, right), [K, width]; the normalised layer of pair ij is left_i + right_j."""
        # W [x_i || x_j] = W_a x_i + W_b x_j: two products of K rows and none of K^2 pairs.
        left_weight, right_weight = self.first.weight.chunk(2, dim=1)
        left, right = nodes @ left_weight.T, nodes @ right_weight.T
        (left_mean, left_variance), (right_mean, right_variance) = _moments(left), _moments(right)
        # Over all pairs, left and right are independent: their means and variances add up.
        scale = self.scales[0] * torch.rsqrt(left_variance + right_variance + _EPS)
        return (left - left_mean) * scale, (right - right_mean) * scale + self.shifts[0]

    def _logits(self, left: Tensor, right: Tensor) -> Tensor:
        pairs = self.second(torch.relu(left[:, None] + right)).flatten(0, 1)
        if len(pairs) > 1:
            pairs = F.batch_norm(
                pairs, None, None, self.scales[1], self.shifts[1], training=True, eps=_EPS
            )
        else:  # a single pair is its own mean, and has no variance that `batch_norm` accepts
            pairs = self.shifts[1:]
        return self.last(torch.relu(pairs)).view(len(left), -1)  # type: ignore[no-any-return]


def normalise(adjacency: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 of a dense symmetric A >= 0, as operator "gcn"; [K, K] -> [K, K]."""
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype, device=adjacency.device)
    # The loop makes every degree at least 1.
    root = looped.sum(dim=1).rsqrt()
    return root[:, None] * looped * root


def edges(adjacency: Tensor, least: float = 0.01) -> tuple[Tensor, Tensor, Tensor]:
    """Return (rows, cols, weights) of the positive entries of A that are at least `least`.

    Zeros are no edges: an explicit zero on the diagonal would replace the self loop.
    """
    rows, cols = torch.nonzero((adjacency >= least) & (adjacency > 0), as_tuple=True)
    return rows, cols, adjacency[rows, cols]


def union_edges(adjacencies: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return (rows, cols, weights) of the disjoint union, the nodes of graph 0 first.

    Parameters
    ----------
    adjacencies : at least one, each [K_i, K_i] dense, K_i = 0 allowed
    """
    parts = [edges(adjacency) for adjacency in adjacencies]
    # Numbers are shifted by the nodes before them: without it, as in the public code of FedGVD,
    # edges of condensed graphs link other nodes.
    starts = accumulate((len(adjacency) for adjacency in adjacencies), initial=0)
    shifted = [
        (rows + start, cols + start, weights)
        for (rows, cols, weights), start in zip(parts, starts, strict=False)
    ]
    rows, cols, weights = (torch.cat(part) for part in zip(*shifted, strict=True))
    return rows, cols, weights


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance (divided by the number of rows) of each column."""
    mean = values.mean(0)
    return mean, (values - mean).square().mean(0)
