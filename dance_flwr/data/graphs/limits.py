"""Bounds of what a file may hold, from the environment variable `DANCE_FLWR_LIMITS`.

They come from the environment, as `DANCE_FLWR_HOME` does, and not from an option of `data import`:
every command that loads a graph reads the same files again.
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
# Of one import, at least and for each byte of its files.
_MEMORY, _MEMORY_BY_BYTE = 1 << 30, 100
_SECONDS, _SECONDS_BY_BYTE = 60, 30 / (1 << 20)
_SHOWN = 200  # characters of the names in a message


def _half_of_memory() -> int:
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
    memory : bytes that reading may take; by default half of the machine's memory, and for an import
        at most 1 GiB and 100 bytes for each byte of the files
    seconds : processor time that reading may take; by default an hour, and for an import at most a
        minute and 30 seconds for each MiB of the files
    """

    nodes: int = 100_000_000
    edges: int = 5_000_000_000
    characters: int = 32_000_000
    columns: int = 10_000
    memory: int = field(default_factory=_half_of_memory)
    seconds: int = 3_600


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


def check(where: object, **counts: int) -> None:
    """Check counts against the bounds of the same names.

    Raises
    ------
    DataError : a count exceeds its bound
    """
    for name, count in counts.items():
        if count > getattr(limits(), name):
            raise exceeded(where, name)


def of_size(size: int) -> str:
    """Return the bounds of reading files of so many bytes, as `VARIABLE` has them.

    A small file needs little memory and time, whatever the machine has; the user's own bounds hold.
    """
    memory = min(Limits().memory, _MEMORY + _MEMORY_BY_BYTE * size)
    seconds = min(Limits().seconds, _SECONDS + int(_SECONDS_BY_BYTE * size))
    return f"memory={memory},seconds={seconds},{os.environ.get(VARIABLE, '')}"


def exceeded(where: object, name: str, bounds: str | None = None) -> DataError:
    """Return the error for a file that exceeds the bound of this name.

    Parameters
    ----------
    bounds : as of `of_size`; None for those of this process
    """
    bound = getattr(limits() if bounds is None else _parsed(bounds), name)
    what = {
        "characters": "characters in one value",
        "memory": "bytes in memory",
        "seconds": "seconds of processor time",
    }
    return DataError(
        f"{where}: expected at most {bound:,} {what.get(name, name)}, found "
        "more; check where the file is from, and if you trust it, read it with "
        f"{VARIABLE}={name}=NUMBER in the environment"
    )


def listed(names: Iterable[object]) -> str:
    """Return names for a message: on one line, separated by commas, cut where they get long."""
    text = ""
    for name in names:
        text += f"{', ' if text else ''}{name}"
        if len(text) > _SHOWN:
            return one_line(text[:_SHOWN]) + " ..."
    return one_line(text)
