"""Short readable summaries of selected chunks."""

from collections.abc import Sequence
from typing import Protocol


class Summariser(Protocol):
    """Turns the selected chunks of one node into a short text, on the client's machine."""

    def summarise(self, chunks: Sequence[str], weights: Sequence[float]) -> str:
        """Return the summary of `chunks`, with one weight each."""
        ...


class ExtractiveSummariser:
    """The heaviest chunks verbatim, so that every word of a summary has a source span."""

    def __init__(self, most: int = 3) -> None:
        self.most = most

    def summarise(self, chunks: Sequence[str], weights: Sequence[float]) -> str:
        """Return the `most` heaviest chunks, heaviest first; equal weights keep their order."""
        order = sorted(range(len(chunks)), key=lambda i: -weights[i])[: self.most]
        return " ".join(" ".join(chunks[i].split()) for i in order)
