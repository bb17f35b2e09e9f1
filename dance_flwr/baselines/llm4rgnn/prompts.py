"""The one prompt of LLM4RGNN: how closely two documents are related, from 1 to 6."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dance_flwr.llm.quoting import DATA_NOTE, as_data
from dance_flwr.llm.template import Embed, Json, Message, Prompt, Template

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


def _render(facts: Mapping[str, Any]) -> Sequence[Message]:
    first, second = as_data(facts["first"]), as_data(facts["second"])
    documents = f"Document A: {first}\n\nDocument B: {second}"
    return Message("system", _INSTRUCTION), Message("user", documents)


def _stub(facts: Mapping[str, Any], embed: Embed) -> Json:
    first, second = embed([facts["first"], facts["second"]])
    cosine = min(max(float(first @ second), 0.0), 1.0)
    return {"relevance": LOWEST + round((HIGHEST - LOWEST) * cosine)}


def parse_prose(text: str) -> Json | None:
    """Return the score of a reply that is not the JSON that was asked for; None without one.

    Two different scores are none.
    """
    found = set(_IN_PROSE.findall(text))
    return {"relevance": int(found.pop())} if len(found) == 1 else None


RELEVANCE = Template(
    name="llm4rgnn.relevance",
    version=1,
    schema={
        "type": "object",
        "properties": {"relevance": {"enum": [*_SCORES, *map(str, _SCORES)]}},
        "required": ["relevance"],
        "additionalProperties": False,
    },
    limit=32,
    render=_render,
    stub=_stub,
    parse=parse_prose,
)


def relevance_prompt(first: str, second: str, words: int) -> Prompt:
    """Return the prompt about two texts, the same for both orders.

    Parameters
    ----------
    words : of each text, from its start
    """
    first, second = sorted((_start(first, words), _start(second, words)))
    return RELEVANCE.fill(first=first, second=second)


def _start(text: str, words: int) -> str:
    return " ".join(text.split(maxsplit=words)[:words])[: _LETTERS_PER_WORD * words]
