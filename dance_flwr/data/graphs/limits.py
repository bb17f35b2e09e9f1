"""Bounds of what a foreign file may hold, checked while it is read.

A file of a few kilobytes can describe gigabytes: repeated values, compressed zeros, references to
one long string. So every reader counts what it decodes and stops at the first bound.

The bounds come from the environment, as `DANCE_FLWR_HOME` does, and not from an option of
`data import`: the same files are read again by every command that loads the graph, and a client's
tables by its SuperNode.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path

from dance_flwr.errors import DataError, UserError
from dance_flwr.escaping import one_line

VARIABLE = "DANCE_FLWR_LIMITS"
PORTION = 16 << 20  # bytes that a reader decodes at once, unless one value is longer
BLOCKS_AHEAD = 32  # of a CSV file, which Arrow reads in advance
# Compressed texts and masks are 5 to 50 times smaller, a bomb of zeros 1,000 times.
UNPACKED_FLOOR, UNPACKED_RATIO = 64 << 20, 50
_ESCAPED, _OTHERS = 12, 1 << 16  # bytes of a character in JSON; of the other values in a row
_SHOWN = 200  # characters of the names in a message


def _half_of_memory() -> int:
    """Return half of the memory that this process may use, in bytes."""
    import psutil

    total = int(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):  # of a container; "max" without a bound
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return total // 2


@dataclass(frozen=True)
class Limits:
    """The largest graph that is read.

    Attributes
    ----------
    nodes, edges : rows of a node table and of an edge table
    characters : length of one text, id, label or split
    columns : columns of a table, or attributes of a network
    memory : decoded bytes of one file; by default half of the machine's memory
    """

    nodes: int = 100_000_000
    edges: int = 5_000_000_000
    characters: int = 32_000_000
    columns: int = 10_000
    memory: int = field(default_factory=_half_of_memory)

    @property
    def line(self) -> int:
        """Maximum number of bytes of one row of a text file."""
        return min(_ESCAPED * self.characters + _OTHERS, self.memory // BLOCKS_AHEAD)


def limits() -> Limits:
    """Return the bounds of this process.

    Raises
    ------
    UserError : `DANCE_FLWR_LIMITS` names no bound or gives no positive number
    """
    return _parsed(os.environ.get(VARIABLE, ""))


@cache
def _parsed(text: str) -> Limits:
    chosen: dict[str, int] = {}
    names = [entry.name for entry in fields(Limits)]
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = part.partition("=")
        with suppress(ValueError, OverflowError):
            # By way of a float, so that `64e9` is a number.
            chosen[name.strip()] = int(float(number))
        if name.strip() not in names or chosen.get(name.strip(), 0) <= 0:
            raise UserError(
                f"{VARIABLE}: expected NAME=NUMBER, separated by commas, with a name of "
                f"{', '.join(names)}, found {part!r:.80}; correct it"
            )
    return Limits(**chosen)


class Meter:
    """Counts what is read from one file, and raises a `DataError` beyond a bound.

    Parameters
    ----------
    where : the file, for messages
    rows : what a row is, "nodes" or "edges"
    stored : bytes of the compressed file; its content may have at most 64 MiB or 50 times as many
    """

    def __init__(self, where: Path | str, rows: str = "nodes", stored: int | None = None) -> None:
        self.where, self._kind = str(where), rows
        self.limits = limits()
        self._rows = self._memory = 0
        self._packed = None if stored is None else max(UNPACKED_FLOOR, UNPACKED_RATIO * stored)

    def rows(self, number: int, *, declared: bool = False) -> None:
        """Count rows; `declared` only compares them with the bound."""
        # Declared rows are not added: they are counted when they are read.
        total = self._rows + number
        if total > getattr(self.limits, self._kind):
            raise self.refusal(self._kind, self._kind)
        self._rows = self._rows if declared else total

    def memory(self, number: int, *, declared: bool = False) -> None:
        """Count decoded bytes; `declared` only compares them with the bound."""
        total = self._memory + number
        if total > self.limits.memory:
            raise self.refusal("memory", "bytes in memory")
        if self._packed is not None and total > self._packed:
            raise DataError(
                f"{self.where}: expected at most {self._packed:,} bytes unpacked, found more; "
                "do not use this file"
            )
        self._memory = self._memory if declared else total

    def characters(self, longest: int) -> None:
        """Check the length of the longest value."""
        if longest > self.limits.characters:
            raise self.refusal("characters", "characters in one value")

    def columns(self, number: int) -> None:
        """Check the number of columns."""
        if number > self.limits.columns:
            raise self.refusal("columns", "columns")

    def line(self, size: int) -> None:
        """Check the bytes of one row of a text file, or of one tag."""
        bound = self.limits.line
        if size > bound:
            # Of the two bounds that make it, only raising the smaller one helps.
            name = "memory" if bound == self.limits.memory // BLOCKS_AHEAD else "characters"
            raise self.refusal(name, "bytes in one row", bound)

    def refusal(self, name: str, what: str, bound: int | None = None) -> DataError:
        """Return the error for a bound of this name that the file passes."""
        bound = getattr(self.limits, name) if bound is None else bound
        return DataError(
            f"{self.where}: expected at most {bound:,} {what}, found more; check where the file is "
            f"from, and if it is sound, read it with {VARIABLE}={name}=NUMBER in the environment"
        )


def listed(names: Iterable[object]) -> str:
    """Return names for a message: on one line, separated by commas, cut where they get long."""
    text = ""
    for name in names:
        text += f"{', ' if text else ''}{name}"
        if len(text) > _SHOWN:
            return one_line(text[:_SHOWN]) + " ..."
    return one_line(text)
