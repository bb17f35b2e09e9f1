"""Summaries of evidence packs: one short sentence for each of the heaviest selected spans.

A summary is a reading aid. It is no evidence, and nothing that predicts or measures reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dance_flwr.escaping import one_line
from dance_flwr.evidence.pack import Packs

WRITTEN, EXCERPT, QUOTED = "written", "excerpt", "quoted"
KINDS = (WRITTEN, EXCERPT, QUOTED)
MOST = 2  # sentences of a summary


@dataclass(frozen=True)
class Span:
    """A selected span of a pack.

    Attributes
    ----------
    number : k from 1, heaviest first; shown as [k]
    node, start, end : local number of the node, and characters of its text
    chunk : row of the client's text bank
    weight : pi of the span; text : what it says
    """

    number: int
    node: int
    start: int
    end: int
    chunk: int
    weight: float
    text: str


@dataclass(frozen=True)
class Sentence:
    """A sentence of a summary, tied to one span.

    Attributes
    ----------
    span : number of the span
    text : the sentence; for "quoted" the span verbatim
    kind : "written" = in a model's own words; "excerpt" = a part of the span, verbatim; "quoted" =
        the whole span
    author : name of the model that wrote or chose it; empty for "quoted"
    reason : why a span is quoted although a model was to write; empty where none was to
    """

    span: int
    text: str
    kind: str = QUOTED
    author: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """What a reader is told of its origin."""
        if self.kind == WRITTEN:
            return f"written by {self.author}, checked against span {self.span}"
        return "quoted" if self.kind == QUOTED else "quoted in part"


class Summariser(Protocol):
    """Sums up the selected spans of one node, on the client's machine."""

    def summarise(self, spans: Sequence[Span]) -> tuple[Sentence, ...]:
        """Return at most `MOST` sentences for spans that come heaviest first."""
        ...


class ExtractiveSummariser:
    """The heaviest spans verbatim, so that every word of a summary has a source."""

    def summarise(self, spans: Sequence[Span]) -> tuple[Sentence, ...]:
        """Return the first `MOST` spans as quotations."""
        return tuple(quotation(span) for span in spans[:MOST])


def no_model(spans: Sequence[Span]) -> tuple[Sentence, ...]:
    """Return the extractive summary, where a model was to write and there is none."""
    return tuple(quotation(span, "no model") for span in spans[:MOST])


def quotation(span: Span, reason: str = "") -> Sentence:
    """Return a span verbatim, as a sentence in one line."""
    return Sentence(span.number, " ".join(span.text.split()), QUOTED, "", reason)


def spans_of(packs: Packs, row: int, texts: Sequence[str]) -> list[Span]:
    """Return the selected spans of a pack, heaviest first.

    Parameters
    ----------
    texts : of all nodes of the client
    """
    own = slice(packs.chunk_ptr[row], packs.chunk_ptr[row + 1])
    columns = (packs.chunk_nodes, packs.chunk_spans, packs.chunks, packs.chunk_weights)
    return [
        Span(
            number,
            int(node),
            int(start),
            int(end),
            int(chunk),
            float(weight),
            texts[node][start:end],
        )
        for number, (node, (start, end), chunk, weight) in enumerate(
            zip(*(column[own] for column in columns), strict=True), start=1
        )
    ]


def lines_of(sentences: Sequence[Sentence]) -> list[str]:
    """Return a summary as lines of an evidence pack, escaped: "[k] sentence (origin)"."""
    return [
        f"[{sentence.span}] {one_line(sentence.text, marks=True)} "
        f"({one_line(sentence.label, marks=True)})"
        for sentence in sentences
    ]
