"""Short readable summaries of selected chunks."""

from collections.abc import Sequence
from typing import Protocol


class Summariser(Protocol):
    """Turns the selected chunks of one node into a short text, on the client's own machine."""

    def summarise(self, chunks: Sequence[str], weights: Sequence[float]) -> str:
        """Return the summary; `chunks` and `weights` run in parallel."""
        ...


class ExtractiveSummariser:
    """The heaviest chunks as they stand in the source, so that every word of a summary has a span."""

    def __init__(self, most: int = 3) -> None:
        self.most = most

    def summarise(self, chunks: Sequence[str], weights: Sequence[float]) -> str:
        """Return the `most` heaviest chunks, heaviest first; equal weights in the given order."""
        order = sorted(range(len(chunks)), key=lambda i: -weights[i])[: self.most]
        return " ".join(" ".join(chunks[i].split()) for i in order)
