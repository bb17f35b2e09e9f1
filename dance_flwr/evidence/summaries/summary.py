"""Summaries of evidence packs: one short sentence for each of the heaviest selected spans.

A summary is a reading aid. It is no evidence, and nothing that predicts or measures reads it. The
summaries of a run's final core are in the client's folder, beside the packs and under their seal.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dance_flwr.dance.state import RunFolder
from dance_flwr.disk import write_json
from dance_flwr.errors import DataError, counted
from dance_flwr.escaping import one_line
from dance_flwr.evidence.pack import Packs

# Why a number (decision 26): files of a run outlive the release that wrote them.
FORMAT = 1
WRITTEN, QUOTED = "written", "quoted"
MAX_SENTENCES = 2  # of a summary
_KEYS = {"span", "kind", "author", "reason"}  # of a sentence in the file


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
    kind : "written" by a model; "quoted" = the whole span
    author : name of the model that wrote it; empty for "quoted"
    reason : why a span is quoted although a model was to write; empty where none was to
    """

    span: int
    text: str
    kind: str = QUOTED
    author: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """Origin of the sentence, in words."""
        if self.kind == WRITTEN:
            return f"written by {self.author}, checked against span {self.span}"
        return "quoted"


def quote(spans: Sequence[Span], reason: str = "") -> tuple[Sentence, ...]:
    """Return the extractive summary: the heaviest spans verbatim, at most `MAX_SENTENCES`.

    Examples
    --------
    >>> quote([Span(1, node=0, start=0, end=9, chunk=4, weight=1.0, text="two  words")])[0].text
    'two words'
    """
    return tuple(quotation(span, reason) for span in spans[:MAX_SENTENCES])


def quotation(span: Span, reason: str = "") -> Sentence:
    """Return a span verbatim, as a sentence on one line."""
    return Sentence(span.number, " ".join(span.text.split()), QUOTED, "", reason)


def spans_of(packs: Packs, row: int, texts: Sequence[str]) -> list[Span]:
    """Return the selected spans of a pack, heaviest first."""
    entries = packs.chunks_of(row)
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
    """Summaries of the packs of one refresh.

    Attributes
    ----------
    model_id : fingerprint of the model whose packs they are of
    of_node : local number of a node -> its sentences; a quotation has no text here
    """

    model_id: str
    of_node: Mapping[int, tuple[Sentence, ...]]

    @property
    def kinds(self) -> Counter[str]:
        """Number of sentences by kind."""
        return Counter(sentence.kind for _, sentence in self.sentences())

    def sentences(self) -> Iterator[tuple[int, Sentence]]:
        """Yield every sentence with its node."""
        for node, sentences in self.of_node.items():
            yield from ((node, sentence) for sentence in sentences)

    def save(self, path: Path) -> None:
        """Write the summaries atomically; quotations without their text, which the span has."""
        nodes = {
            str(node): [
                {key: getattr(sentence, key) for key in sorted(_KEYS)}
                # Why without the text: it is that of the span, and cannot differ from it.
                | ({} if sentence.kind == QUOTED else {"text": sentence.text})
                for sentence in sentences
            ]
            for node, sentences in self.of_node.items()
        }
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
            nodes = {
                int(node): tuple(_sentence(entry) for entry in entries)
                for node, entries in raw["nodes"].items()
            }
            return cls(str(raw["model_id"]), nodes)
        # RecursionError: JSON that is nested too deeply.
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}: expected summaries of format {FORMAT}, found others "
                f"({type(error).__name__}); copy the client's folder again, or run again"
            ) from None

    def of(self, packs: Packs, row: int, texts: list[str]) -> tuple[Sentence, ...]:
        """Return the summary of a pack, or the extractive summary if it has none."""
        node, spans = int(packs.nodes[row]), spans_of(packs, row, texts)
        # Summaries of another model are of other spans.
        if self.model_id != packs.model_id or node not in self.of_node:
            return quote(spans)
        sentences = self.of_node[node]
        if not all(1 <= sentence.span <= len(spans) for sentence in sentences):
            raise DataError(
                f"summary of node number {node}: expected spans 1 to {len(spans)}, found "
                f"{[sentence.span for sentence in sentences]}; it was altered"
            )
        return tuple(
            quotation(spans[s.span - 1], s.reason) if s.kind == QUOTED else s for s in sentences
        )


def _sentence(entry: Mapping[str, object]) -> Sentence:
    span, kind = entry["span"], str(entry["kind"])
    if not isinstance(span, int) or kind not in (WRITTEN, QUOTED):
        raise ValueError(f"span {span!r}, kind {kind!r}")
    text = "" if kind == QUOTED else str(entry["text"])
    return Sentence(span, text, kind, str(entry["author"]), str(entry["reason"]))


def share_line(kinds: Mapping[str, int]) -> str:
    """Return in words how many sentences a model wrote, and how many spans were quoted."""
    total = sum(kinds.values())
    if not total:
        return "no sentences"
    written = kinds.get(WRITTEN, 0) / total
    return f"{counted(total, 'sentence')}, {written:.0%} written and checked, the others quoted"


def summary_line(partition: Path, run: str, clients: int) -> str:
    """Return counts of the clients' summaries on this machine in words; "" without summaries."""
    folders = (RunFolder(partition / f"client-{client}", run) for client in range(clients))
    every = [Summaries.load(folder.summaries_path) for folder in folders]
    known = [summaries for summaries in every if summaries is not None]
    if len(known) < clients:
        return ""
    kinds = sum((summaries.kinds for summaries in known), start=Counter[str]())
    return f"{counted(sum(len(of.of_node) for of in known), 'core node')}: {share_line(kinds)}"
