"""Summaries of evidence packs: one short sentence for each of the heaviest selected spans.

A summary is a reading aid. It is no evidence, and nothing that predicts or measures reads it. The
summaries of a run's final core are in the client's folder, beside the packs and under their seal.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from dance_flwr.dance.state import RunFolder
from dance_flwr.disk import write_json
from dance_flwr.errors import DataError, counted
from dance_flwr.escaping import one_line
from dance_flwr.evidence.pack import Packs

# Why a number (decision 26): files of a run outlive the release that wrote them.
FORMAT = 2
MAX_SENTENCES = 2  # of a summary


@dataclass(frozen=True)
class Span:
    """A selected span of a pack.

    Attributes
    ----------
    number : k from 1, heaviest first; shown as [k]
    node, start, end : local number of the node, and characters of its text
    weight : pi of the span; text : what it says
    """

    number: int
    node: int
    start: int
    end: int
    weight: float
    text: str


@dataclass(frozen=True)
class Sentence:
    """A sentence of a summary, tied to one span.

    Attributes
    ----------
    span : number of the span; text : the sentence, or the span verbatim
    author : name of the model that wrote it; "" = the whole span is quoted
    """

    span: int
    text: str
    author: str = ""

    @property
    def label(self) -> str:
        """Origin of the sentence, in words."""
        if self.author:
            return f"written by {self.author}, checked against span {self.span}"
        return "quoted"


def quote(spans: Sequence[Span]) -> tuple[Sentence, ...]:
    """Return the extractive summary: the heaviest spans verbatim, at most `MAX_SENTENCES`.

    Examples
    --------
    >>> quote([Span(1, node=0, start=0, end=9, weight=1.0, text="two  words")])[0].text
    'two words'
    """
    return tuple(quotation(span) for span in spans[:MAX_SENTENCES])


def quotation(span: Span) -> Sentence:
    """Return a span verbatim, as a sentence on one line."""
    return Sentence(span.number, " ".join(span.text.split()))


def spans_of(packs: Packs, row: int, texts: Sequence[str]) -> list[Span]:
    """Return the selected spans of a pack, heaviest first."""
    entries = packs.chunks_of(row)
    columns = (packs.chunk_nodes, packs.chunk_spans, packs.chunk_weights)
    return [
        Span(number, int(node), int(start), int(end), float(weight), texts[node][start:end])
        for number, (node, (start, end), weight) in enumerate(
            zip(*(column[entries] for column in columns), strict=True), start=1
        )
    ]


def lines_of(sentences: Sequence[Sentence]) -> list[str]:
    """Return a summary as lines of an evidence pack, escaped: "[k] sentence (origin)"."""
    return [
        f"[{sentence.span}] {one_line(sentence.text, marks=True)} "
        f"({one_line(sentence.label, marks=True)})"
        for sentence in sentences
    ]


@dataclass(frozen=True)
class Summaries:
    """What a language model wrote about the packs of one refresh.

    Attributes
    ----------
    model_id : fingerprint of the model whose packs they are of
    written : local number of a node -> sentences that a language model wrote; all other spans are
        quoted
    """

    model_id: str
    written: Mapping[int, tuple[Sentence, ...]]

    def save(self, path: Path) -> None:
        """Write the summaries atomically."""
        nodes = {str(node): [asdict(each) for each in own] for node, own in self.written.items()}
        write_json(path, {"format": FORMAT, "model_id": self.model_id, "nodes": nodes})

    @classmethod
    def load(cls, path: Path) -> "Summaries | None":
        """Read summaries; None where there is no file."""
        if not path.is_file():
            return None
        try:
            raw = json.loads(path.read_text("utf-8"))
            if raw["format"] != FORMAT:
                raise ValueError(f"format {raw['format']!r}")
            written = {
                int(node): tuple(Sentence(**entry) for entry in entries)
                for node, entries in raw["nodes"].items()
            }
            for sentence in chain.from_iterable(written.values()):
                # Without an author a sentence would be shown as a quotation.
                kinds = type(sentence.span), type(sentence.text), type(sentence.author)
                if kinds != (int, str, str) or not sentence.author:
                    raise ValueError("a sentence without span, text or author")
            return cls(str(raw["model_id"]), written)
        # RecursionError: JSON that is nested too deeply.
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}: expected summaries of format {FORMAT}, found others "
                f"({type(error).__name__}); copy the client's folder again, or run again"
            ) from None

    def of(self, packs: Packs, row: int, texts: Sequence[str]) -> tuple[Sentence, ...]:
        """Return the summary of a pack, or the extractive summary if it has none."""
        node, spans = int(packs.nodes[row]), spans_of(packs, row, texts)
        # Summaries of another model are of other spans.
        if self.model_id != packs.model_id:
            return quote(spans)
        written = {sentence.span: sentence for sentence in self.written.get(node, ())}
        known = [span.number for span in spans[:MAX_SENTENCES]]
        if strange := written.keys() - {*known}:
            raise DataError(
                f"summary of node number {node}: expected spans {known}, found {sorted(strange)}; "
                "it was altered"
            )
        return tuple(written.get(s.number, quotation(s)) for s in spans[:MAX_SENTENCES])


def summary_line(partition: Path, run: str, clients: int) -> str:
    """Return counts of the clients' summaries on this machine in words; "" without summaries."""
    folders = (RunFolder(partition / f"client-{client}", run) for client in range(clients))
    every = [Summaries.load(folder.summaries_path) for folder in folders]
    known = [summaries.written for summaries in every if summaries is not None]
    if len(known) < clients:
        return ""
    sentences = sum(len(own) for written in known for own in written.values())
    return f"{counted(sentences, 'sentence')} written and checked, all other spans are quoted"
