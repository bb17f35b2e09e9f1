"""Statistics of the summaries of a run: kinds of sentences, grounding, tokens and seconds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.paths import LEDGER
from dance_flwr.dance.state import RunFolder
from dance_flwr.data.card import run_folder
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.summaries.grounding import Measures, measure
from dance_flwr.evidence.summaries.summary import (
    EXCERPT,
    MAX_SENTENCES,
    QUOTED,
    WRITTEN,
    Sentence,
    Span,
    Summaries,
    quote,
    share_line,
    spans_of,
)
from dance_flwr.llm.call_counts import CallCounts


@dataclass
class SummaryCounts:
    """Counts over the summaries of one or several clients.

    Attributes
    ----------
    nodes : core nodes with a summary
    kinds, reasons : sentences by kind, quotations by reason
    by_kind : measures of all sentences against their spans, by kind
    control : those of the extractive summary of the same packs
    calls : of the language model
    """

    nodes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    by_kind: dict[str, list[Measures]] = field(default_factory=dict)
    control: list[Measures] = field(default_factory=list)
    calls: CallCounts = field(default_factory=CallCounts)

    @classmethod
    def of_client(cls, folder: RunFolder, data: ClientData) -> "SummaryCounts":
        """Count the summaries of the final core of a client."""
        if (summaries := Summaries.load(folder.summaries_path)) is None:
            raise UserError(
                f"{folder.summaries_path}: expected the summaries of a run with "
                "llm.summaries = core, found none; run it with --set llm.summaries=core"
            )
        counts, texts = cls(calls=CallCounts.load(folder.folder / LEDGER)), data.texts()
        packs = Packs.load(folder.final_path)
        for row in range(len(packs.nodes)):
            counts.add(spans_of(packs, row, texts), summaries.of(packs, row, texts))
        return counts

    def add(self, spans: Sequence[Span], summary: Sequence[Sentence]) -> None:
        """Count the summary of one pack."""
        self.nodes += 1
        for sentence in summary:
            self.kinds[sentence.kind] += 1
            self.reasons[sentence.reason or "as it is"] += sentence.kind == QUOTED
            measures = measure(sentence.text, spans[sentence.span - 1].text)
            self.by_kind.setdefault(sentence.kind, []).append(measures)
        # The control: what the measures are of spans verbatim.
        for sentence in quote(spans):
            self.control.append(measure(sentence.text, spans[sentence.span - 1].text))

    def merge(self, other: "SummaryCounts") -> None:
        """Add the counts of another client."""
        self.nodes += other.nodes
        self.kinds += other.kinds
        self.reasons += other.reasons
        for kind, measures in other.by_kind.items():
            self.by_kind.setdefault(kind, []).extend(measures)
        self.control += other.control
        self.calls.change(other.calls, 1)

    def lines(self) -> list[str]:
        """Return the counts in words."""
        names = {WRITTEN: "written", EXCERPT: "quoted in part", QUOTED: "quoted"}
        whole = [measures for kind in names for measures in self.by_kind.get(kind, [])]
        rows = {
            **{f"  {name}": self.by_kind.get(kind, []) for kind, name in names.items()},
            "  all sentences": whole,
            "  extractive control": self.control,
        }
        reasons = ", ".join(
            f"{name} {count}" for name, count in self.reasons.most_common() if count
        )
        return [
            f"{self.nodes:,} core nodes, {share_line(self.kinds)}",
            f"  quoted because: {reasons or 'nothing was quoted'}",
            *(f"{name:20} {_means(measures)}" for name, measures in rows.items()),
            f"  {calls_line(self.calls)}",
        ]


def calls_line(calls: CallCounts) -> str:
    """Return calls, tokens and seconds of a language model in words."""
    return (
        f"{counted(calls.fresh_calls, 'fresh call')}, {calls.cached_calls:,} cached, "
        f"{calls.failed_calls:,} "
        f"unusable, {calls.capped_calls:,} not made at a cap; {calls.fresh_prompt:,} prompt and "
        f"{calls.fresh_completion:,} reply tokens in {calls.milliseconds / 1000:.1f} s"
    )


def summary_lines(partition: Path, run: str, clients: int) -> list[str]:
    """Return one line of counts for the clients on this machine; none without summaries."""
    kinds: Counter[str] = Counter()
    calls, nodes = CallCounts(), []
    for client in range(clients):
        folder = run_folder(partition / f"client-{client}", run)
        summaries = Summaries.load(folder / "evidence" / "summaries.json")
        if summaries is None:
            return []
        nodes.append(len(summaries.of_node))
        kinds += summaries.kinds
        calls.change(CallCounts.load(folder / LEDGER), 1)
    counts = ", ".join(str(count) for count in nodes)
    return [
        f"summaries   of {counts} core nodes per client, at most {MAX_SENTENCES} sentences each",
        f"            {share_line(kinds)}",
        f"            {calls_line(calls)}",
    ]


def _means(measures: Sequence[Measures]) -> str:
    if not measures:
        return "none"
    words = np.mean([one.words for one in measures])
    content = np.mean([one.share_of_words for one in measures])
    bigrams = np.mean([one.share_of_bigrams for one in measures])
    return f"{words:5.1f} words, content words {content:.2f} and bigrams {bigrams:.2f} in the span"
