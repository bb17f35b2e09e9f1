"""Who writes the neighbours of nodes: a language model, or the client's own sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.baselines.llm4fgl.links import nearest
from dance_flwr.baselines.llm4fgl.prompts import (
    MOST_NEIGHBOURS,
    MOST_WORDS,
    NEIGHBOUR,
    REVISION,
    text_of,
)
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.text.chunking import split_sentences
from dance_flwr.llm.factory import open_session
from dance_flwr.llm.template import Prompt
from dance_flwr.seeding import generator

_SOURCES = 4  # nearest texts whose sentences are recombined


@dataclass(frozen=True)
class Task:
    """What is written: a neighbour of each origin, or a revision of its draft.

    Attributes
    ----------
    origins : [g] int64, node numbers
    drafts : [g] texts to revise; None = the first writing
    version : number of reflections that have passed, with this one
    """

    origins: Tensor
    drafts: Sequence[str] | None = None
    version: int = 0


class Writer(Protocol):
    """Writes texts of neighbours at one client."""

    def write(self, task: Task, data: ClientData, config: RunConfig, run: str) -> list[str]:
        """Return [g] texts; "" where none was written."""
        ...


class ModelWriter:
    """One call of the client's language model per text; a call without an answer has no text."""

    def write(self, task: Task, data: ClientData, config: RunConfig, run: str) -> list[str]:
        """Ask for every text, in the order of the origins."""
        with open_session(data, config, run) as session:
            answers = [session.ask(prompt) for prompt in prompts_of(task, data)]
        return ["" if answer is None else text_of(answer.value) for answer in answers]


class Recombiner:
    """Sentences of the four nearest other texts that training sees, in random turns; no calls."""

    def write(self, task: Task, data: ClientData, config: RunConfig, run: str) -> list[str]:
        """Recombine up to 120 words per text; every version draws anew."""
        client, texts = data.card.client, data.texts()
        draw = generator(config.seed, "recombined", round_=task.version, client=client)
        unit = F.normalize(data.features, dim=1)
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
    return near[order[:MOST_NEIGHBOURS]].tolist()


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
        if len(chosen) + len(words) <= MOST_WORDS:
            chosen += words
    if not chosen and sentences:
        chosen = sentences[0].split()[:MOST_WORDS]
    return " ".join(chosen)
