"""A client's measurement of the final model on its own test nodes, in a file that stays with it.

Under differential privacy no count of test nodes leaves a client: only this file says whether the
model is of use to it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dance_flwr.data.card import ClientCard, run_folder
from dance_flwr.disk import write_json
from dance_flwr.errors import UserError, reason_of

if TYPE_CHECKING:  # a report reads the file without torch
    from dance_flwr.metrics import Counts

MEASURED = "measured.json"


@dataclass(frozen=True)
class Measured:
    """Hits on the test nodes of a client, and its largest class.

    Attributes
    ----------
    client : its number
    nodes, correct : test nodes, and those that are predicted correctly
    largest, largest_nodes : name of the class with most test nodes, and their number
    """

    client: int
    nodes: int
    correct: int
    largest: str
    largest_nodes: int

    def __str__(self) -> str:
        if not self.nodes:
            return "no test nodes"
        return (
            f"{self.correct / self.nodes:.1%} of {self.nodes:,} test nodes; "
            f"{self.largest_nodes / self.nodes:.1%} if all were called {self.largest}, its largest "
            "class"
        )

    @classmethod
    def of(cls, test: Counts, card: ClientCard) -> Measured:
        """Return the measurement by the counts of a client's test nodes."""
        place = max(range(len(test.actual)), key=test.actual.__getitem__)
        largest = card.class_names[place], test.actual[place]
        return cls(card.client, test.total, test.correct["deployed"], *largest)

    def keep(self, client_folder: Path, run: str) -> None:
        """Store the measurement in the client's folder of the run."""
        write_json(run_folder(client_folder, run) / MEASURED, asdict(self))


def read_measured(client_folder: Path, run: str) -> Measured | None:
    """Return a client's measurement at the end of a run; None without one."""
    path = run_folder(client_folder, run) / MEASURED
    if not path.is_file():
        return None
    try:
        return Measured(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path}: expected what the client measured, found {reason_of(error)}; remove the "
            "file, or run again"
        ) from None
