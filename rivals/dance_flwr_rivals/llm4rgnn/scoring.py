"""Relevance of pairs, 1 to 6: judged by a language model and a regression, or by the cosine."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.session import open_session
from dance_flwr.seeding import generator
from dance_flwr_rivals.llm4rgnn import Llm4RgnnConfig
from dance_flwr_rivals.llm4rgnn.judging import (
    HIGHEST,
    LOWEST,
    UNJUDGED,
    UNREADABLE,
    Pairs,
    judge,
)
from dance_flwr_rivals.llm4rgnn.pairs import cosines, random_pairs

FEWEST = 10  # judged pairs to learn from
# Seven decades, times the mean eigenvalue: no scale of the inputs is assumed.
_PENALTIES = torch.logspace(-2, 5, 15, dtype=torch.float64)
_ROWS = 65_536
UNSCORED = UNREADABLE  # an edge without a score is kept, and teaches the predictor nothing
_RANDOM_PAIRS = 10_000
_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)


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
    # Other edges then have no score, and stay.
    if len(pairs) < FEWEST:
        return None
    inputs, targets = _inputs(features, pairs), scores.double()
    mean, spread = inputs.mean(0), inputs.std(0)
    # A constant input has no weight.
    scale = torch.where(spread > 1e-9, 1 / spread.clamp(min=1e-9), 0)
    z, centre = (inputs - mean) * scale, targets.mean()
    # One decomposition of the Gram matrix serves every penalty.
    values, vectors = torch.linalg.eigh(z @ z.T)
    values, turned = values.clamp(min=0), vectors.T @ (targets - centre)
    best, left_out, penalty = torch.inf, targets, 1.0
    for candidate in _PENALTIES * values.mean().clamp(min=1e-9):
        shrink = values / (values + candidate)
        # 1 / m is the leverage of the mean. Leave-one-out residuals need no second fit.
        leverage = (vectors.square() @ shrink + 1 / len(z)).clamp(max=1 - 1e-6)
        gaps = (targets - centre - vectors @ (shrink * turned)) / (1 - leverage)
        if float(gaps.square().mean()) < best:
            best, left_out, penalty = float(gaps.square().mean()), targets - gaps, float(candidate)
    # The weights of the best penalty, in the space of the inputs.
    weights = z.T @ (vectors @ (turned / (values + penalty)))
    # From predictions without the pair itself; fitted ones would be nearer to the scores than new
    # ones.
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


@dataclass(frozen=True)
class Relevance:
    """Scores of a client's pairs, 1 to 6, or 0 without a score.

    Attributes
    ----------
    pairs : of the training graph
    scores : [m] int64, of `pairs.every`
    of_others : [k, 2] int64 -> [k] int64, of any other pair
    counts : numbers of pairs by source of their score, for the client's own record
    """

    pairs: Pairs
    scores: Tensor
    of_others: Callable[[Tensor], Tensor]
    counts: dict[str, int]


Scorer = Callable[[ClientData, RunConfig, str], Relevance]  # (data, config, run)


def by_language_model(data: ClientData, config: RunConfig, run: str) -> Relevance:
    """Score the pairs of the budget by the model, and all others by a regression on these scores.

    With fewer than 10 scores there is no regression, and other pairs have no score. A pair whose
    reply could not be read never has one.
    """
    pairs = Pairs.of(data, Llm4RgnnConfig.of(config))
    with open_session(data, config, run) as session:
        scores = judge(data, config, pairs, session)
    judged = scores > UNREADABLE
    # Unreadable replies teach nothing.
    head = fit_head(data.features, pairs.every[judged], scores[judged])

    def of_others(others: Tensor) -> Tensor:
        if head is None:
            return torch.full_like(others[:, 0], UNSCORED)
        return head.scores(data.features, others)

    unjudged = scores == UNJUDGED
    counts = {
        "judged": int(judged.sum()),
        "unreadable": int((scores == UNREADABLE).sum()),
        "by_regression": int(unjudged.sum()) if head else 0,
    }
    scores[unjudged] = of_others(pairs.every[unjudged])
    return Relevance(pairs, scores, of_others, counts)


def by_cosine(data: ClientData, config: RunConfig, run: str) -> Relevance:
    """s(u, v) = 1 + #{q in (.5, .75, .9, .95, .99) : cos(t_u, t_v) >= Q_q}.

    Q_q is the q-quantile of the cosine over 10,000 random pairs of the client's training nodes
    without an edge: an edge of score 2 or more is more similar than half of them, one of score 5
    or more than 95 %. The scale thus has the meaning of the prompt's: 1 is what unrelated
    documents have. No text is read, no model asked.
    """
    pairs = Pairs.of(data, Llm4RgnnConfig.of(config))
    # Unlinked pairs are the scale of the control: 1 is what unrelated documents have.
    draws = generator(config.seed, "random-pairs", client=data.card.client)
    apart = random_pairs(data.training_graph, _RANDOM_PAIRS, draws)
    levels = torch.tensor(_QUANTILES, device=data.device)
    thresholds = torch.quantile(cosines(data.features, apart), levels) if len(apart) else None

    def of_others(others: Tensor) -> Tensor:
        if thresholds is None:
            return torch.full_like(others[:, 0], UNSCORED)
        return bucket(cosines(data.features, others), thresholds)

    return Relevance(pairs, of_others(pairs.every), of_others, {})
