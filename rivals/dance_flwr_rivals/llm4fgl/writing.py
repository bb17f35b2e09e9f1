"""Writers of neighbours: a language model, or a recombination of the client's own sentences.

The two prompts, for a neighbour of a paper and for its revision, hold texts of the client, but no
label and no class name. The wording is ours, as that of the publication is not known to us. Texts
are quoted as data and cut to a number of words.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.text.chunking import split_sentences
from dance_flwr.llm.session import open_session
from dance_flwr.llm.template import DATA_NOTE, Embed, Json, Message, Prompt, Template, as_data
from dance_flwr.seeding import generator
from dance_flwr_rivals.llm4fgl import Llm4FglConfig
from dance_flwr_rivals.llm4fgl.predictor import nearest

MAX_NEIGHBOURS = 3  # texts beside the paper
MAX_WORDS = 120  # of a generated text, title and abstract
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
_SOURCES = 4  # nearest texts whose sentences are recombined
_CHARACTERS = 4  # of English text per token


def quoted(text: str, words: int) -> str:
    """Return the first words of a text, quoted as data."""
    return as_data(" ".join(text.split()[:words]))


def _context(facts: Mapping[str, Any]) -> str:
    lines = ["The paper:", quoted(facts["paper"], _PAPER_WORDS)]
    if facts["neighbours"]:
        # No label and no class name: a prompt about a test node must not hold its class.
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
    draft = f"A draft of one further paper:\n{quoted(facts['draft'], MAX_WORDS)}"
    return (
        Message("system", _RULES),
        Message("user", f"{_context(facts)}\n{draft}\n\n{task}"),
    )


def _stub(facts: Mapping[str, Any], embed: Embed) -> Json:
    """Return words of the neighbours, then of the paper itself."""
    words = " ".join([*facts["neighbours"], facts["paper"], "one further paper"]).split()
    # The stub's revision begins with other words than its draft.
    skipped = 7 if "draft" in facts else 0
    words = words[skipped:] if len(words) > 2 * skipped else words
    return {"title": " ".join(words[:6])[:120], "abstract": " ".join(words[3:60])[:700] or "none"}


NEIGHBOUR = Template("llm4fgl-neighbour", 1, _SCHEMA, LIMIT, _ask, _stub)
REVISION = Template("llm4fgl-revision", 1, _SCHEMA, LIMIT, _ask_again, _stub)


def text_of(value: Json) -> str:
    """Return title and abstract of a reply as one text of at most 120 words."""
    title, abstract = (" ".join(str(value[key]).split()) for key in ("title", "abstract"))
    stop = "" if title.endswith((".", "!", "?")) else "."
    # Cut here as well: a schema bounds characters, not words.
    return " ".join(f"{title}{stop} {abstract}".split()[:MAX_WORDS])


@dataclass(frozen=True)
class Task:
    """A neighbour to write for each origin, or a revision of its draft.

    Attributes
    ----------
    origins : [g] int64, node numbers
    drafts : [g] texts to revise; None = the first writing
    version : number of reflections that have passed, with this one
    """

    origins: Tensor
    drafts: Sequence[str] | None = None
    version: int = 0


# (task, data, config, run) -> [g] texts, "" where none was written
Writer = Callable[[Task, ClientData, RunConfig, str], list[str]]


def by_model(task: Task, data: ClientData, config: RunConfig, run: str) -> list[str]:
    """Call the client's language model for every text, in the order of the origins."""
    with open_session(data, config, run) as session:
        answers = [session.ask(prompt) for prompt in prompts_of(task, data)]
    return ["" if answer is None else text_of(answer) for answer in answers]


def by_recombination(task: Task, data: ClientData, config: RunConfig, run: str) -> list[str]:
    """Recombine sentences of the four nearest other training texts; every version draws anew."""
    client, texts = data.card.client, data.texts()
    draw = generator(config.seed, "recombined", round_=task.version, client=client)
    unit = F.normalize(data.features, dim=1)
    # One more than needed, as a text is nearest to itself.
    near = nearest(unit[task.origins], unit, data.training_graph.visible, _SOURCES + 1)
    sources = [
        [texts[node] for node in row if node != origin][:_SOURCES]
        for origin, row in zip(task.origins.tolist(), near.tolist(), strict=True)
    ]
    return [recombined(row, draw) for row in sources]


def prompts_of(task: Task, data: ClientData) -> Iterable[Prompt]:
    """Yield the prompt of every text of a task; it holds local texts that training sees."""
    texts = data.texts()
    unit, graph = F.normalize(data.features, dim=1), data.training_graph
    for place, origin in enumerate(task.origins.tolist()):
        # Of the training graph: in inductive mode no text of a test node is read.
        neighbours = [texts[node] for node in nearest_neighbours(origin, unit, graph)]
        facts = {"paper": texts[origin], "neighbours": neighbours}
        if task.drafts is None:
            yield NEIGHBOUR.fill(**facts)
        else:
            yield REVISION.fill(**facts, draft=task.drafts[place])


def nearest_neighbours(node: int, unit: Tensor, graph: LocalGraph) -> list[int]:
    """Return the at most three neighbours of a node whose texts are nearest to its own.

    Parameters
    ----------
    unit : [n, d], texts of norm 1
    """
    near = graph.rows.index[graph.rows.ptr[node] : graph.rows.ptr[node + 1]]
    order = torch.sort(unit[near] @ unit[node], descending=True, stable=True).indices
    return near[order[:MAX_NEIGHBOURS]].tolist()


def recombined(sources: Sequence[str], draw: torch.Generator) -> str:
    """Return whole sentences of several texts, in random order, of at most 120 words.

    A first sentence that is longer is cut; "" where there is no sentence.
    """
    sentences = [
        " ".join(text[start:end].split())
        for text in sources
        for start, end in pairwise(split_sentences(text))
    ]
    sentences = [sentence for sentence in sentences if sentence]
    chosen: list[str] = []
    for place in torch.randperm(len(sentences), generator=draw).tolist():
        words = sentences[place].split()
        if len(chosen) + len(words) <= MAX_WORDS:
            chosen += words
    if not chosen and sentences:
        chosen = sentences[0].split()[:MAX_WORDS]
    return " ".join(chosen)


def origins_of(data: ClientData, ratio: float) -> Tensor:
    """Return the nodes that get a neighbour: the share of fewest neighbours; [g] int64, ascending.

    Only nodes that training sees; ties go to the lower node number. The choice reads no label and
    depends on no seed, so that cached replies serve every seed of a partition.
    """
    graph = data.training_graph
    nodes = torch.nonzero(graph.visible).flatten()
    # Nodes of low degree are those that may have lost neighbours; a client knows no more of the
    # cut.
    order = torch.sort(graph.rows.ptr.diff()[nodes], stable=True).indices
    return nodes[order[: round(ratio * len(nodes))]].sort().values


def planned_calls(data: ClientData, config: RunConfig) -> tuple[int, int]:
    """Return the maximum number of calls and tokens of a client, including all reflections.

    Prompts are rendered and counted as one token per four characters, replies as their limit, and
    a draft as the longest. Caps are not read; cached replies cost nothing.
    """
    settings = Llm4FglConfig.of(config)
    # No round is left in which a text is written.
    if config.rounds <= settings.predictor_rounds:
        return 0, 0
    origins = origins_of(data, settings.ratio_of_nodes)
    first = [_tokens(prompt.text) + LIMIT for prompt in prompts_of(Task(origins), data)]
    drafts = Task(origins, ["x" * 4 * LIMIT] * len(first))
    again = [_tokens(prompt.text) + LIMIT for prompt in prompts_of(drafts, data)]
    # The longest prompts, as it is not known which texts will be poor.
    poor = round(settings.rewritten_ratio * len(first))
    reflections = settings.reflections_before(config.rounds)
    calls = len(first) + reflections * poor
    return calls, sum(first) + reflections * sum(sorted(again, reverse=True)[:poor])


def _tokens(text: str) -> int:
    return ceil(len(text) / _CHARACTERS)
