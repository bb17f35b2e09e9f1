"""Counts of a client's language model in one run: calls, tokens and milliseconds."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Self, TypeVar

from dance_flwr.disk import private_lock, write_json

T = TypeVar("T")
_NAMES = ("model", "counted_by")
_AND = " + "  # between the names of two models


@dataclass
class CallCounts:
    """Calls and tokens of one client in one run.

    Attributes
    ----------
    fresh_calls, cached_calls : calls that a model answered, and those that the cache answered
    failed_calls : fresh and cached calls without a usable reply; their tokens are counted too
    capped_calls : calls that were not made, because a cap was reached or prompt and reply do not
        fit the context
    fresh_prompt, fresh_completion, cached_prompt, cached_completion : tokens
    milliseconds : of fresh calls
    resent_calls : attempts that a server may have read but did not answer; the tokens of their
        prompts are included in `fresh_prompt`
    estimated_calls : fresh calls whose tokens were counted by the client, since the server gave no
        plausible number
    model, counted_by : names of the models and of the tokenisers, joined by " + "
    """

    fresh_calls: int = 0
    cached_calls: int = 0
    failed_calls: int = 0
    capped_calls: int = 0
    fresh_prompt: int = 0
    fresh_completion: int = 0
    cached_prompt: int = 0
    cached_completion: int = 0
    milliseconds: int = 0
    resent_calls: int = 0
    estimated_calls: int = 0
    model: str = ""
    counted_by: str = ""

    @property
    def fresh_tokens(self) -> int:
        """Number of tokens that count towards the cap."""
        return self.fresh_prompt + self.fresh_completion

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the counts at `path`, zeros if the file is missing or damaged."""
        try:
            content = json.loads(path.read_text("utf-8"))
            counts = {name: content.get(name, 0) for name in _counts()}
            model, counted_by = (str(content.get(name, "")) for name in _NAMES)
        except (OSError, ValueError, AttributeError, RecursionError):
            return cls()
        # `type` and not `isinstance`, to which a JSON true is an integer.
        if not all(type(count) is int and count >= 0 for count in counts.values()):
            return cls()
        return cls(**counts, model=model, counted_by=counted_by)

    def name(self, model: str, counted_by: str) -> None:
        """Add the names of a model and of a tokeniser, if they are new."""
        self.model = _joined(self.model, model)
        self.counted_by = _joined(self.counted_by, counted_by)

    def save(self, path: Path) -> None:
        """Write the counts atomically."""
        write_json(path, asdict(self))

    def change(self, other: "CallCounts", sign: int) -> None:
        """Add other counts (`sign` = 1) or subtract them (`sign` = -1)."""
        for name in _counts():
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))


def _counts() -> list[str]:
    """Return the names of the numeric fields."""
    return [item.name for item in fields(CallCounts) if item.name not in _NAMES]


def _joined(names: str, name: str) -> str:
    """Return `names` joined with `name`, unless it is already among them."""
    known = [part for part in names.split(_AND) if part]
    return _AND.join(known if name in known else [*known, name])


class SharedCallCounts:
    """The counts of a run on disk, which several processes of one client may update at once.

    Each process adds what it has counted since its last write, so that no count is lost.
    """

    def __init__(self, path: Path | None, lock: Path, model: str, counted_by: str) -> None:
        self._path, self._lock, self._names = path, lock, (model, counted_by)
        self.counts = CallCounts.load(path) if path else CallCounts()
        self.counts.name(*self._names)
        self._written = replace(self.counts)

    def update(self, change: Callable[[CallCounts], T]) -> T:
        """Apply `change` to the current counts, write them, and return its result.

        The current counts are those on disk plus what this process has not written yet.
        """
        if self._path is None:
            return change(self.counts)

        # Read again under the lock: another process of this client may have written in the
        # meantime. Only what this process has counted since its last write is added, so that no
        # count of another is lost.
        with private_lock(self._lock):
            now = CallCounts.load(self._path)
            now.change(self.counts, 1)
            now.change(self._written, -1)
            now.name(*self._names)
            vars(self.counts).update(vars(now))
            result = change(self.counts)
            self.counts.save(self._path)
        self._written = replace(self.counts)
        return result
