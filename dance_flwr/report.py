"""What a client's round cost and produced."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PHASES = ("forward", "nodes", "text", "topology", "packs", "train")
COUNTS = (
    *("condensed-nodes", "evidence-neighbours", "evidence-chunks", "evidence-tokens"),
    "evidence-supervised",  # labelled nodes of the plain term
)


@dataclass
class Report:
    """What a round cost and produced: seconds by phase, and counts summed over the core.

    Every key is always there: Flower wants the same keys from all clients, whether or not a refresh was due.

    Attributes
    ----------
    statistics : float tensors that the method's own server side reads, by name; none for a method of sums
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    loss: float = 0.0
    statistics: "dict[str, Tensor]" = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the seconds of this block to phase `name`."""
        start = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - start
