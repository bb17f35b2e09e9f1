"""The history of a run: one JSON line per round in `history.jsonl`, readable during the run."""

import json
from dataclasses import dataclass, field
from pathlib import Path

# Names in JSON are texts; these dictionaries have numbers of clients.
_BY_CLIENT = ("bytes_down", "bytes_up", "absent")


@dataclass
class Round:
    """One row of a run's history.

    Attributes
    ----------
    loss : None where nothing was trained, or it is not finite
    val_accuracy : of the deployed prediction, None in rounds without validation; views : by view
    seconds : by phase, summed over clients, and of the method's own server side, if any
    round_seconds : wall clock, training and validation
    counts : of the refresh in this round, summed over clients; counts of the server side
    bytes_down, bytes_up : model bytes per client
    epsilon : of training nodes, spent up to this round; None without differential privacy
    absent : client -> why it did not take part: silent, not connected, failed, or its upload was
        invalid
    skipped : why the model is that of the round before; "" = it is not
    """

    round: int
    loss: float | None = None
    val_accuracy: float | None = None
    val_macro_f1: float | None = None
    views: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    train_seconds: float = 0.0
    round_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    bytes_down: dict[int, int] = field(default_factory=dict)
    bytes_up: dict[int, int] = field(default_factory=dict)
    epsilon: float | None = None
    absent: dict[int, str] = field(default_factory=dict)
    skipped: str = ""

    @classmethod
    def read(cls, line: str) -> "Round":
        """Return the row of one line of `history.jsonl`."""
        values = json.loads(line)
        by_client = {
            key: {int(c): value for c, value in values.get(key, {}).items()} for key in _BY_CLIENT
        }
        return cls(**values | by_client)

    @property
    def answered(self) -> list[int]:
        """The clients that were asked in this round and never failed."""
        return [
            client for client, size in self.bytes_down.items() if size and client not in self.absent
        ]


def whole_lines(path: Path) -> list[str]:
    """Return the complete lines of a file; none if the file does not exist.

    A last line without its end is omitted, as the server may still be writing it.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    # Bytes, as a line that is being written may end inside a character.
    return text[: text.rfind(b"\n") + 1].decode("utf-8").splitlines()
