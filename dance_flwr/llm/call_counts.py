"""Counts of a client's language model in one run: calls, tokens and milliseconds."""

import json
from collections.abc import Callable
from contextlib import nullcontext
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

    def save(self, path: Path) -> None:
        """Write the counts atomically."""
        write_json(path, asdict(self))

    def __add__(self, other: "CallCounts") -> "CallCounts":
        sums = {name: getattr(self, name) + getattr(other, name) for name in _counts()}
        model = _joined(self.model, other.model)
        return CallCounts(
            **sums, model=model, counted_by=_joined(self.counted_by, other.counted_by)
        )


def _counts() -> list[str]:
    return [item.name for item in fields(CallCounts) if item.name not in _NAMES]


def _joined(*names: str) -> str:
    """Join names of models, each once."""
    return _AND.join(dict.fromkeys(part for name in names for part in name.split(_AND) if part))


class SharedCallCounts:
    """The counts of a run on disk, which several processes of one client may update at once.

    Attributes
    ----------
    unwritten : what this process has counted since its last write, so that no count is lost
    """

    def __init__(self, path: Path | None, lock: Path, model: str, counted_by: str) -> None:
        self._path, self._lock = path, lock
        self._zeros = CallCounts(model=model, counted_by=counted_by)
        self._stored = CallCounts.load(path) if path else CallCounts()
        self.unwritten = replace(self._zeros)

    @property
    def counts(self) -> CallCounts:
        """All counts of the run, as far as this process knows them."""
        return self._stored + self.unwritten

    def update(self, change: Callable[[CallCounts], T]) -> T:
        """Apply `change` to the current counts, write them, and return its result.

        The current counts are those on disk plus what this process has not written yet.
        """
        # Read again under the lock: another process of this client may have written meanwhile.
        with private_lock(self._lock) if self._path else nullcontext():
            stored = CallCounts.load(self._path) if self._path else self._stored
            self._stored, self.unwritten = stored + self.unwritten, replace(self._zeros)
            result = change(self._stored)
            if self._path:
                self._stored.save(self._path)
        return result
