"""Relevance of pairs, 1 to 6: judged by a language model and a regression, or by the cosine."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dance_flwr.baselines.llm4rgnn.config import Llm4RgnnConfig
from dance_flwr.baselines.llm4rgnn.head import bucket, fit_head
from dance_flwr.baselines.llm4rgnn.judging import UNASKED, UNREADABLE, Pairs, judge
from dance_flwr.baselines.llm4rgnn.pairs import cosines, random_pairs
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.factory import open_session
from dance_flwr.seeding import generator

UNSCORED = UNREADABLE  # an edge without a score is kept, and teaches the predictor nothing
_RANDOM_PAIRS = 10_000
_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Relevance:
    """Scores of a client's pairs, 1..6, 0 where there is none.

    Attributes
    ----------
    pairs : of the training graph
    scores : [m] int64, of `pairs.every`
    of_others : [k, 2] int64 -> [k] int64, of any other pair
    counts : how the scores came about, for the client's own record
    """

    pairs: Pairs
    scores: Tensor
    of_others: Callable[[Tensor], Tensor]
    counts: dict[str, int]


Scorer = Callable[[ClientData, RunConfig, str], Relevance]  # (site, config, run)


def by_language_model(data: ClientData, config: RunConfig, run: str) -> Relevance:
    """Score the pairs of the budget by the model, all others by the regression on those.

    With fewer than 10 scores there is no regression, and other pairs have none. A pair whose reply
    could not be read has none either way.
    """
    pairs = Pairs.of(data, Llm4RgnnConfig.of(config))
    with open_session(data, config, run) as session:
        scores = judge(data, config, pairs, session)
    judged = scores > UNREADABLE
    head = fit_head(data.features, pairs.every[judged], scores[judged])

    def of_others(others: Tensor) -> Tensor:
        if head is None:
            return torch.full_like(others[:, 0], UNSCORED)
        return head.scores(data.features, others)

    unasked = scores == UNASKED
    counts = {
        "judged": int(judged.sum()),
        "unreadable": int((scores == UNREADABLE).sum()),
        "by_regression": int(unasked.sum()) if head else 0,
    }
    scores[unasked] = of_others(pairs.every[unasked])
    return Relevance(pairs, scores, of_others, counts)


def by_cosine(data: ClientData, config: RunConfig, run: str) -> Relevance:
    """s(u, v) = 1 + #{q in (.5, .75, .9, .95, .99) : cos(t_u, t_v) >= Q_q}.

    Q_q is the q-quantile of the cosine over 10,000 random pairs of the client's training nodes
    without an edge: an edge of score 2 or more is more similar than half of them, one of score 5
    or more than 95 %. The scale thus has the meaning of the prompt's: 1 is what unrelated
    documents have. No text is read, no model asked.
    """
    pairs = Pairs.of(data, Llm4RgnnConfig.of(config))
    draws = generator(config.seed, "random-pairs", client=data.card.client)
    apart = random_pairs(data.training_graph, _RANDOM_PAIRS, draws)
    levels = torch.tensor(_QUANTILES, device=data.device)
    thresholds = torch.quantile(cosines(data.features, apart), levels) if len(apart) else None

    def of_others(others: Tensor) -> Tensor:
        if thresholds is None:
            return torch.full_like(others[:, 0], UNSCORED)
        return bucket(cosines(data.features, others), thresholds)

    return Relevance(pairs, of_others(pairs.every), of_others, {})
