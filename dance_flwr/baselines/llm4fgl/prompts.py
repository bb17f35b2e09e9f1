"""Prompts of LLM4FGL: a neighbour of a paper, and its revision.

Both hold texts of the client alone: no label and no name of a class. The wording is ours; that of
the publication is not known to us. Texts are quoted as data and cut to a number of words.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dance_flwr.llm.quoting import DATA_NOTE, as_data
from dance_flwr.llm.template import Embed, Json, Message, Template

MOST_NEIGHBOURS = 3  # texts beside the paper
MOST_WORDS = 120  # of a generated text, title and abstract
_PAPER_WORDS, _NEIGHBOUR_WORDS = 160, 90

# The longest reply that fits has about 820 characters, so that `limit` never cuts one off.
_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 120},
        "abstract": {"type": "string", "minLength": 1, "maxLength": 700},
    },
    "required": ["title", "abstract"],
    "additionalProperties": False,
}
LIMIT = 320  # tokens of a reply

_RULES = (
    "You write titles and abstracts of papers for a citation graph. Answer with JSON of two keys, "
    '"title" and "abstract", of at most 120 words together. Do not copy sentences, and do not name '
    f"or comment on the quoted papers. {DATA_NOTE}"
)


def quoted(text: str, words: int) -> str:
    """Return the first words of a text, quoted as data."""
    return as_data(" ".join(text.split()[:words]))


def _context(facts: Mapping[str, Any]) -> str:
    lines = ["The paper:", quoted(facts["paper"], _PAPER_WORDS)]
    if facts["neighbours"]:
        lines.append("Papers that cite it or that it cites:")
        lines += [quoted(text, _NEIGHBOUR_WORDS) for text in facts["neighbours"]]
    return "\n".join(lines)


def _ask(facts: Mapping[str, Any]) -> Sequence[Message]:
    task = (
        "Write title and abstract of one further paper, of the same field, that plausibly cites "
        "the paper or is cited by it."
    )
    return Message("system", _RULES), Message("user", f"{_context(facts)}\n\n{task}")


def _ask_again(facts: Mapping[str, Any]) -> Sequence[Message]:
    task = (
        "The draft was judged poor: readers who know papers of many fields could not tell its "
        "field as surely as those of other drafts, or it said the same as the paper. Write title "
        "and abstract anew, more specific in problem, method and result, still of one further "
        "paper that plausibly cites the paper or is cited by it."
    )
    draft = f"A draft of one further paper:\n{quoted(facts['draft'], MOST_WORDS)}"
    return (
        Message("system", _RULES),
        Message("user", f"{_context(facts)}\n{draft}\n\n{task}"),
    )


def _stub(facts: Mapping[str, Any], embed: Embed) -> Json:
    """Return words of the neighbours, nearest to the paper first, then of the paper itself."""
    paper, texts = facts["paper"], [text for text in facts["neighbours"] if text.split()]
    if texts:
        vectors = embed([paper, *texts])
        order = (-(vectors[1:] @ vectors[0])).argsort(kind="stable")
        texts = [texts[i] for i in order]
    words = " ".join([*texts, paper, "one further paper"]).split()
    skipped = 7 if "draft" in facts else 0
    words = words[skipped:] if len(words) > 2 * skipped else words
    return {"title": " ".join(words[:6])[:120], "abstract": " ".join(words[3:60])[:700] or "none"}


NEIGHBOUR = Template("llm4fgl-neighbour", 1, _SCHEMA, LIMIT, _ask, _stub)
REVISION = Template("llm4fgl-revision", 1, _SCHEMA, LIMIT, _ask_again, _stub)


def text_of(value: Json) -> str:
    """Return title and abstract of a reply as one text of at most 120 words."""
    title, abstract = (" ".join(str(value[key]).split()) for key in ("title", "abstract"))
    stop = "" if title.endswith((".", "!", "?")) else "."
    return " ".join(f"{title}{stop} {abstract}".split()[:MOST_WORDS])
