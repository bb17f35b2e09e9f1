"""Pairs that the language model judges, their cost, and its replies."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.config import LlmConfig
from dance_flwr.llm.session import Session
from dance_flwr.llm.template import DATA_NOTE, Embed, Json, Message, Prompt, Template, as_data
from dance_flwr_rivals.llm4rgnn import Llm4RgnnConfig
from dance_flwr_rivals.llm4rgnn.pairs import least_similar_pairs, undirected_edges

LOWEST, HIGHEST = 1, 6
_SCORES = range(LOWEST, HIGHEST + 1)
_LETTERS_PER_WORD = 12  # on average at most, so that a text without spaces is cut as well
_INSTRUCTION = (
    "Graph models are attacked by links between documents that have nothing to do with each other, "
    "and by the removal of links between related ones. Judge how closely two documents are "
    f"related, with an integer from 1 (no relation) to 6 (direct relation). {DATA_NOTE} Reply with "
    'JSON and nothing else: {"relevance": n}'
)
# Relevance Score: 5, "relevance": "5", The relevance is **5**; no range such as 1 to 6, no 4.5.
_BETWEEN = r"[^\w.\n]{0,4}"
_IN_PROSE = re.compile(
    rf"relevance(?:[ _-]?score)?{_BETWEEN}(?:\b(?:is|of)\b)?{_BETWEEN}([1-6])"
    r"(?!\d|\.\d| ?(?:-|\u2013|to) ?\d)",
    re.IGNORECASE,
)
UNJUDGED, UNREADABLE = -1, 0  # instead of a score, 1..6
# Edges are kept or dropped by their score; negatives only top up the examples of the predictor.
_EDGES_PER_NEGATIVE = 3  # of the pairs that are judged within a budget
_LETTERS_PER_TOKEN = 4  # of English text, where no tokeniser is at hand


def _render(facts: Mapping[str, Any]) -> Sequence[Message]:
    first, second = as_data(facts["first"]), as_data(facts["second"])
    documents = f"Document A: {first}\n\nDocument B: {second}"
    return Message("system", _INSTRUCTION), Message("user", documents)


def _stub(facts: Mapping[str, Any], embed: Embed) -> Json:
    first, second = embed([facts["first"], facts["second"]])
    # The cosine on the scale of the model, for tests; no run with it is a result.
    cosine = min(max(float(first @ second), 0.0), 1.0)
    return {"relevance": LOWEST + round((HIGHEST - LOWEST) * cosine)}


def parse_prose(text: str) -> Json | None:
    """Return the score in a reply that is not valid JSON; None without a unique score."""
    # Two scores are a contradiction, and none of them is taken.
    scores = set(_IN_PROSE.findall(text))
    return {"relevance": int(scores.pop())} if len(scores) == 1 else None


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
    parse=parse_prose,
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

    No model is needed. Calls that the client's cache will answer are included. Tokens are those of
    the prompts and the limits of the replies.
    """
    settings = Llm4RgnnConfig.of(config)
    pairs = Pairs.of(data, settings)
    count = count or (lambda text: -(-len(text) // _LETTERS_PER_TOKEN))
    costs = [
        count(prompt.text) + prompt.template.limit
        for prompt, _ in questions(data.texts(), pairs, settings, LlmConfig.of(config))
    ]
    # The questions are cut at the cap as in the run.
    calls, tokens = _affordable(costs, LlmConfig.of(config).max_tokens)
    return calls, tokens


def judge(data: ClientData, config: RunConfig, pairs: Pairs, session: Session) -> Tensor:
    """Return the relevance of all pairs in `pairs.every`; [m] int64.

    It is UNJUDGED for pairs beyond a budget or cap, and UNREADABLE for an unusable reply. The
    questions are cut at the caps as if no reply were cached, so that a second run has the same.
    """
    settings = Llm4RgnnConfig.of(config)
    scores = torch.full((len(pairs.every),), UNJUDGED)
    batch = list(questions(data.texts(), pairs, settings, session.caps))
    # Bytes are an upper bound of tokens that costs nothing; the model counts only if they exceed
    # the cap.
    costs = [_max_tokens(prompt.text) + prompt.template.limit for prompt, _ in batch]
    if sum(costs) > session.caps.max_tokens:
        count = session.model.count_prompt
        costs = [count(prompt) + prompt.template.limit for prompt, _ in batch]
    calls, _ = _affordable(costs, session.caps.max_tokens)
    for prompt, same in batch[:calls]:
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


def _affordable(costs: Sequence[int], budget: int) -> tuple[int, int]:
    """Return how many of the first calls fit into `budget` tokens, and what they cost."""
    spent = 0
    for calls, cost in enumerate(costs):
        if spent + cost > budget:
            return calls, spent
        spent += cost
    return len(costs), spent


def _max_tokens(text: str) -> int:
    """Return an upper bound of the number of tokens of a text, chat template included.

    A token has at least one byte, and tokens of text in a language have several.
    """
    return len(text.encode("utf-8", "surrogatepass"))
