"""Relevance of pairs, 1 to 6: judged by a language model and a regression, or by the cosine."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.config import LlmConfig
from dance_flwr.llm.session import Session, open_session
from dance_flwr.llm.template import DATA_NOTE, Embed, Json, Message, Prompt, Template, as_data
from dance_flwr.seeding import generator
from dance_flwr_rivals.llm4rgnn import Llm4RgnnConfig
from dance_flwr_rivals.llm4rgnn.pairs import (
    cosines,
    least_similar_pairs,
    random_pairs,
    undirected_edges,
)

LOWEST, HIGHEST = 1, 6
_SCORES = range(LOWEST, HIGHEST + 1)
_LETTERS_PER_WORD = 12  # on average at most, so that a text without spaces is cut as well
_INSTRUCTION = (
    "Graph models are attacked by links between documents that have nothing to do with each other, "
    "and by the removal of links between related ones. Judge how closely two documents are "
    f"related, with an integer from 1 (no relation) to 6 (direct relation). {DATA_NOTE} Reply with "
    'JSON and nothing else: {"relevance": n}'
)
# Instead of a score; an edge without one is kept, and teaches the predictor nothing.
UNJUDGED, UNREADABLE = -1, 0
# Edges are kept or dropped by their score; negatives only top up the examples of the predictor.
_EDGES_PER_NEGATIVE = 3  # of the pairs that are judged within a budget
_LETTERS_PER_TOKEN = 4  # of English text, where no tokeniser is at hand
FEWEST = 10  # judged pairs to learn from
# Seven decades, times the mean eigenvalue: no scale of the inputs is assumed.
_PENALTIES = torch.logspace(-2, 5, 15, dtype=torch.float64)
_ROWS = 65_536
_RANDOM_PAIRS = 10_000
_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)


def _render(facts: Mapping[str, Any]) -> Sequence[Message]:
    first, second = as_data(facts["first"]), as_data(facts["second"])
    documents = f"Document A: {first}\n\nDocument B: {second}"
    return Message("system", _INSTRUCTION), Message("user", documents)


def _stub(facts: Mapping[str, Any], embed: Embed) -> Json:
    first, second = embed([facts["first"], facts["second"]])
    # The cosine on the scale of the model, for tests; no run with it is a result.
    cosine = min(max(float(first @ second), 0.0), 1.0)
    return {"relevance": LOWEST + round((HIGHEST - LOWEST) * cosine)}


RELEVANCE = Template(
    name="llm4rgnn.relevance",
    version=1,
    # Scores in quotation marks are accepted: the public code misses them, and deletes the edge.
    schema={
        "type": "object",
        "properties": {"relevance": {"enum": [*_SCORES, *map(str, _SCORES)]}},
        "required": ["relevance"],
        "additionalProperties": False,
    },
    # The score alone; the analysis that the paper asks for would be 150 tokens of each call.
    limit=32,
    render=_render,
    stub=_stub,
)


def relevance_prompt(first: str, second: str, words: int) -> Prompt:
    """Return the prompt about two texts, the same for both orders."""
    # Sorted, so that both orders of a pair share one question and one cached reply.
    first, second = sorted((_start(first, words), _start(second, words)))
    return RELEVANCE.fill(first=first, second=second)


def _start(text: str, words: int) -> str:
    # By letters too, for texts without spaces.
    return " ".join(text.split(maxsplit=words)[:words])[: _LETTERS_PER_WORD * words]


@dataclass(frozen=True)
class Pairs:
    """The pairs u < v of a client's training graph that are scored; [m, 2] int64 each.

    Attributes
    ----------
    edges : all edges
    negatives : the least similar pairs without an edge
    """

    edges: Tensor
    negatives: Tensor

    @classmethod
    def of(cls, data: ClientData, settings: Llm4RgnnConfig) -> "Pairs":
        """Return the pairs of a client."""
        graph = data.training_graph
        negatives = least_similar_pairs(data.features, graph, settings.negatives)
        return cls(undirected_edges(graph), negatives)

    @property
    def every(self) -> Tensor:
        """Edges, then negatives; [m, 2] int64."""
        return torch.cat([self.edges, self.negatives])


def planned_calls(
    data: ClientData, config: RunConfig, count: Callable[[str], int] | None = None
) -> tuple[int, int]:
    """Return the maximum number of calls and tokens of a run at this client.

    No model is needed. Calls that the client's cache will answer are included, and so are those
    that the cap on tokens will prevent. Tokens are those of the prompts and the limits of replies.
    """
    settings = Llm4RgnnConfig.of(config)
    pairs = Pairs.of(data, settings)
    count = count or (lambda text: -(-len(text) // _LETTERS_PER_TOKEN))
    costs = [
        count(prompt.text) + prompt.template.limit
        for prompt, _ in questions(data.texts(), pairs, settings, LlmConfig.of(config))
    ]
    return len(costs), sum(costs)


def judge(data: ClientData, config: RunConfig, pairs: Pairs, session: Session) -> Tensor:
    """Return the relevance of all pairs in `pairs.every`; [m] int64.

    It is UNJUDGED for pairs beyond a budget or cap, and UNREADABLE for an unusable reply.
    """
    settings = Llm4RgnnConfig.of(config)
    scores = torch.full((len(pairs.every),), UNJUDGED)
    for prompt, same in questions(data.texts(), pairs, settings, session.caps):
        # Without an answer, the counts tell an unusable reply, which says UNREADABLE, from a cap.
        failed = session.counts.failed_calls
        answer = session.ask(prompt)
        if answer is not None:
            scores[same] = int(answer["relevance"])
        elif session.counts.failed_calls > failed:
            scores[same] = UNREADABLE
    return scores.to(data.device)


def questions(
    texts: Sequence[str], pairs: Pairs, settings: Llm4RgnnConfig, caps: LlmConfig
) -> Iterator[tuple[Prompt, list[int]]]:
    """Yield the prompts in the order of the calls, and the positions of the pairs of each.

    There are at most `llm4rgnn.pairs` and `llm.max-calls` prompts, with a negative after three
    edges. Pairs are ordered by a hash of their texts, a uniform sample that does not depend on the
    seed, so that later runs can use the cached replies. Pairs of the same two texts share a prompt.
    """
    edges, negatives = (
        _by_hash(texts, part, offset)
        for part, offset in ((pairs.edges, 0), (pairs.negatives, len(pairs.edges)))
    )
    # The smaller of both caps, negatives filling what edges leave and the other way round.
    total = min(settings.pairs or len(edges) + len(negatives), caps.max_calls)
    of_edges = max(total - total // (1 + _EDGES_PER_NEGATIVE), total - len(negatives))
    of_edges = min(of_edges, len(edges))
    # Both lists are spread evenly over (0, 1), so that a cap on tokens cuts them in proportion.
    ranked = [((i + 0.5) / of_edges, same) for i, same in enumerate(edges[:of_edges])]
    rest = min(total - of_edges, len(negatives))
    ranked += [((i + 0.5) / rest, same) for i, same in enumerate(negatives[:rest])]
    ends = pairs.every.tolist()
    for _, same in sorted(ranked):
        first, second = ends[same[0]]
        yield relevance_prompt(texts[first], texts[second], settings.text_words), same


def _by_hash(texts: Sequence[str], pairs: Tensor, offset: int) -> list[list[int]]:
    """Return the positions of the pairs of each two texts, ordered by the hash of the texts."""
    places: dict[bytes, list[int]] = {}
    # By content: neither seed nor node numbers change the sample, so that replies serve later runs.
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    for position, (first, second) in enumerate(pairs.tolist()):
        both = b"".join(sorted((digests[first], digests[second])))
        places.setdefault(hashlib.sha256(both).digest(), []).append(offset + position)
    return [places[key] for key in sorted(places)]


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
    """

    pairs: Pairs
    scores: Tensor
    of_others: Callable[[Tensor], Tensor]


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
            return torch.full_like(others[:, 0], UNREADABLE)
        return head.scores(data.features, others)

    unjudged = scores == UNJUDGED
    scores[unjudged] = of_others(pairs.every[unjudged])
    return Relevance(pairs, scores, of_others)


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
            return torch.full_like(others[:, 0], UNREADABLE)
        return bucket(cosines(data.features, others), thresholds)

    return Relevance(pairs, of_others(pairs.every), of_others)
