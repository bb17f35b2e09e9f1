"""Counts of the summaries of a run: sentences by kind, calls, tokens and seconds."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from dance_flwr.config.paths import LEDGER
from dance_flwr.data.card import run_folder
from dance_flwr.errors import counted
from dance_flwr.evidence.summaries.summary import MAX_SENTENCES, Summaries, share_line
from dance_flwr.llm.call_counts import CallCounts


@dataclass
class SummaryCounts:
    """Counts of the summaries of one or several clients.

    Attributes
    ----------
    nodes : number of core nodes with a summary
    kinds, reasons : number of sentences by kind, and of quotations by reason
    calls : calls of the language model
    """

    nodes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    calls: CallCounts = field(default_factory=CallCounts)

    @classmethod
    def of_client(cls, folder: Path) -> "SummaryCounts | None":
        """Count the summaries in the folder of a run at a client; None if there are none."""
        summaries = Summaries.load(folder / "evidence" / "summaries.json")
        if summaries is None:
            return None
        calls = CallCounts.load(folder / LEDGER)
        return cls(len(summaries.of_node), summaries.kinds, summaries.reasons, calls)

    def merge(self, other: "SummaryCounts") -> None:
        """Add the counts of another client."""
        self.nodes += other.nodes
        self.kinds += other.kinds
        self.reasons += other.reasons
        self.calls.change(other.calls, 1)

    def lines(self) -> list[str]:
        """Return the counts in words."""
        reasons = ", ".join(
            f"{name or 'as it is'} {count}" for name, count in self.reasons.most_common()
        )
        return [
            f"{self.nodes:,} core nodes, {share_line(self.kinds)}",
            f"  quoted because: {reasons or 'nothing was quoted'}",
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
    """Return counts of the clients on this machine in words; no line without summaries."""
    total, nodes = SummaryCounts(), []
    for client in range(clients):
        counts = SummaryCounts.of_client(run_folder(partition / f"client-{client}", run))
        if counts is None:
            return []
        nodes.append(str(counts.nodes))
        total.merge(counts)
    return [
        f"summaries   of {', '.join(nodes)} core nodes per client, at most {MAX_SENTENCES} "
        "sentences each",
        f"            {share_line(total.kinds)}",
        f"            {calls_line(total.calls)}",
    ]
