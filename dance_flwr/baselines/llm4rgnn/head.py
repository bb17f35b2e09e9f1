"""Scores of pairs that no model judged, by ridge regression on those that one did."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.baselines.llm4rgnn.pairs import cosines
from dance_flwr.baselines.llm4rgnn.prompts import HIGHEST, LOWEST

FEWEST = 10  # judged pairs to learn from
_PENALTIES = torch.logspace(-2, 5, 15, dtype=torch.float64)
_ROWS = 65_536


@dataclass(frozen=True)
class Head:
    """s(u, v) = 1 + #{k : w^T z(u, v) >= t_k}, z the standardised (cos(u, v), t_u * t_v).

    Attributes
    ----------
    mean, scale, weights : [1 + d] float64
    thresholds : t_2 <= ... <= t_6, [5] float64
    """

    mean: Tensor
    scale: Tensor
    weights: Tensor
    thresholds: Tensor

    def scores(self, features: Tensor, pairs: Tensor) -> Tensor:
        """Return s of every pair; [n, d], [m, 2] int64 -> [m] int64."""
        parts = [
            ((_inputs(features, part) - self.mean) * self.scale) @ self.weights
            for part in torch.split(pairs, _ROWS)
        ]
        return bucket(torch.cat(parts), self.thresholds)


def fit_head(features: Tensor, pairs: Tensor, scores: Tensor) -> Head | None:
    """Return the head that minimises ||w^T z - s||^2 + lambda ||w||^2; None below 10 pairs.

    lambda has the least squared error when each pair in turn is left out, in closed form. The
    thresholds give as many judged pairs, left out in turn, each score as the model gave it: a
    regression alone shrinks towards the mean, and no pair would have 1 or 6.

    Parameters
    ----------
    features : t, [n, d]; pairs : [m, 2] int64, judged ones; scores : [m] int64 in 1..6
    """
    if len(pairs) < FEWEST:
        return None
    inputs, targets = _inputs(features, pairs), scores.double()
    mean, spread = inputs.mean(0), inputs.std(0)
    scale = torch.where(spread > 1e-9, 1 / spread.clamp(min=1e-9), 0)
    z, centre = (inputs - mean) * scale, targets.mean()
    values, vectors = torch.linalg.eigh(z @ z.T)
    values, turned = values.clamp(min=0), vectors.T @ (targets - centre)
    best, left_out, penalty = torch.inf, targets, 1.0
    for candidate in _PENALTIES * values.mean().clamp(min=1e-9):
        shrink = values / (values + candidate)
        own = (vectors.square() @ shrink + 1 / len(z)).clamp(max=1 - 1e-6)
        gaps = (targets - centre - vectors @ (shrink * turned)) / (1 - own)
        if float(gaps.square().mean()) < best:
            best, left_out, penalty = float(gaps.square().mean()), targets - gaps, float(candidate)
    weights = z.T @ (vectors @ (turned / (values + penalty)))
    thresholds = matching_thresholds(left_out - centre, scores)
    return Head(mean, scale, weights, thresholds)


def matching_thresholds(values: Tensor, scores: Tensor) -> Tensor:
    """Return t_2..t_6 so that as many values reach t_k as scores reach k; [m], [m] -> [5].

    Between two neighbouring values, a threshold is their mean.
    """
    ordered = torch.sort(values, descending=True).values
    padded = torch.cat(
        [ordered.new_full((1,), torch.inf), ordered, ordered.new_full((1,), -torch.inf)]
    )
    levels = torch.arange(LOWEST + 1, HIGHEST + 1, device=scores.device)
    reached = (scores[:, None] >= levels).sum(0)
    return (padded[reached] + padded[reached + 1]) / 2


def bucket(values: Tensor, thresholds: Tensor) -> Tensor:
    """Return 1 + #{k : v >= t_k}; [m], [5] -> [m] int64 in 1..6."""
    return LOWEST + (values[:, None] >= thresholds).sum(1)


def _inputs(features: Tensor, pairs: Tensor) -> Tensor:
    """Return (cos, t_u * t_v) of pairs, [m, 1 + d] float64."""
    unit = F.normalize(features, dim=1)
    first, second = unit[pairs[:, 0]].double(), unit[pairs[:, 1]].double()
    return torch.cat([cosines(features, pairs).double()[:, None], first * second], dim=1)
