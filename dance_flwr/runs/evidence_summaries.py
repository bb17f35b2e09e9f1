"""What the summaries of a finished run say, in numbers: kept and quoted, grounding, tokens."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dance_flwr.config.paths import LEDGER
from dance_flwr.data.card import run_folder
from dance_flwr.errors import UserError
from dance_flwr.evidence.grounding import Measures, measure
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.summaries.file import Summaries, share_line
from dance_flwr.evidence.summaries.quotes import (
    EXCERPT,
    MOST,
    QUOTED,
    WRITTEN,
    ExtractiveSummariser,
    Sentence,
    Span,
    spans_of,
)
from dance_flwr.llm.call_counts import CallCounts
from dance_flwr.runs.evidence import EvidenceRun


@dataclass
class _Study:
    """Counts of some clients.

    Attributes
    ----------
    nodes : core nodes with a summary
    kinds, reasons : sentences by kind, quotations by reason
    by_kind : measures of all sentences against their spans, by kind
    control : of the extractive summary, which quotes the same spans
    ledger : of the language model
    """

    nodes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    by_kind: dict[str, list[Measures]] = field(default_factory=dict)
    control: list[Measures] = field(default_factory=list)
    ledger: CallCounts = field(default_factory=CallCounts)

    def add(self, spans: Sequence[Span], summary: Sequence[Sentence]) -> None:
        """Count the summary of one pack."""
        self.nodes += 1
        for sentence in summary:
            self.kinds[sentence.kind] += 1
            self.reasons[sentence.reason or "as it is"] += sentence.kind == QUOTED
            found = measure(sentence.text, spans[sentence.span - 1].text)
            self.by_kind.setdefault(sentence.kind, []).append(found)
        for sentence in ExtractiveSummariser().summarise(spans):
            self.control.append(measure(sentence.text, spans[sentence.span - 1].text))

    def lines(self) -> list[str]:
        """Return the counts in words."""
        names = {WRITTEN: "written", EXCERPT: "quoted in part", QUOTED: "quoted"}
        whole = [found for kind in names for found in self.by_kind.get(kind, [])]
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
            *(f"{name:20} {_means(found)}" for name, found in rows.items()),
            f"  {ledger_line(self.ledger)}",
        ]


def study_summaries(run: Path, client_folder: Path | None, say: Callable[[str], None]) -> None:
    """Print what the summaries of a run's final cores are made of, by client and together.

    Parameters
    ----------
    client_folder : folder of the one client to read; None = all clients of the run's partition
    say : receives the lines

    Raises
    ------
    UserError : the run wrote no summaries
    """
    opened, total = EvidenceRun.open(run, client_folder), _Study()
    for client in opened.clients:
        data = opened.data(client)
        store = opened.store(data)
        if (summaries := Summaries.load(store.summaries_path)) is None:
            raise UserError(
                f"{store.summaries_path}: expected the summaries of a run with "
                "llm.summaries = core, found none; run it with --set llm.summaries=core"
            )
        packs, texts, own = Packs.load(store.final_path), data.texts(), _Study()
        own.ledger = CallCounts.load(store.folder / LEDGER)
        total.ledger.change(own.ledger, 1)
        for row in range(len(packs.nodes)):
            spans, summary = spans_of(packs, row, texts), summaries.of(packs, row, texts)
            own.add(spans, summary)
            total.add(spans, summary)
        say(f"client {data.card.client}: {own.lines()[0]}; {ledger_line(own.ledger)}")
    for line in total.lines():
        say(line)


def ledger_line(ledger: CallCounts) -> str:
    """Return calls, tokens and seconds of a language model in words."""
    return (
        f"{ledger.fresh_calls:,} fresh calls, {ledger.cached_calls:,} cached, "
        f"{ledger.failed_calls:,} unusable, {ledger.capped_calls:,} not made at a cap; "
        f"{ledger.fresh_prompt:,} prompt and {ledger.fresh_completion:,} reply tokens in "
        f"{ledger.milliseconds / 1000:.1f} s"
    )


def run_lines(partition: Path, run: str, clients: int) -> list[str]:
    """Return one line of counts for the clients of a run on this machine; none without summaries.

    Parameters
    ----------
    partition : folder of the clients' folders
    """
    kinds: Counter[str] = Counter()
    ledger, nodes = CallCounts(), []
    for client in range(clients):
        folder = run_folder(partition / f"client-{client}", run)
        found = Summaries.load(folder / "evidence" / "summaries.json")
        if found is None:
            return []
        nodes.append(len(found.of_node))
        kinds += found.kinds
        ledger.change(CallCounts.load(folder / LEDGER), 1)
    counts = ", ".join(str(count) for count in nodes)
    return [
        f"summaries   of {counts} core nodes per client, at most {MOST} sentences each",
        f"            {share_line(kinds)}",
        f"            {ledger_line(ledger)}",
    ]


def _means(found: Sequence[Measures]) -> str:
    if not found:
        return "none"
    words = np.mean([one.words for one in found])
    content = np.mean([one.share_of_words for one in found])
    bigrams = np.mean([one.share_of_bigrams for one in found])
    return f"{words:5.1f} words, content words {content:.2f} and bigrams {bigrams:.2f} in the span"
