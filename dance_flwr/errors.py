"""Errors that a user can correct, one line each, and the words that lines are made of."""

import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit

from dance_flwr.escaping import escaped

_LISTED = 40  # more names than this are no list that anybody reads
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Of a place that is closed to this user. Any other error is no matter of the disk.
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}
TOO_MANY = {errno.EMFILE, errno.ENFILE}  # open files


class UserError(Exception):
    """A mistake that the user can correct; the command line prints it and exits with code 2.

    The message is one line: what was expected, what was found, and what to do.
    """

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook prints instead of a traceback: IPython asks for this method."""
        return [f"{type(self).__name__}: {escaped(str(self))}"]


class DataError(UserError):
    """A graph, a partition or a text bank on disk is missing, malformed or altered."""


class ConfigError(UserError):
    """One or more configuration values are invalid.

    Attributes
    ----------
    problems : one line per value; the message joins them with semicolons
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        more = f"; and {len(problems) - _LISTED} more" if problems[_LISTED:] else ""
        super().__init__("; ".join(problems[:_LISTED]) + more)


class QuorumError(UserError):
    """A round received fewer valid replies than the run requires."""


class ResumeError(UserError):
    """A run cannot be resumed from where it stopped."""


class ProtocolError(UserError):
    """A client speaks another protocol than the server."""


def near(name: str, known: Iterable[str]) -> str:
    """Return the known name most similar to this one, ignoring case; "" if none is."""
    from difflib import get_close_matches

    word, by_case = name.casefold(), {each.casefold(): each for each in known}

    def likeness(other: str) -> int:
        both_ways = (word, other), (word[::-1], other[::-1])
        ends = sum(len(os.path.commonprefix(pair)) for pair in both_ways)  # noqa: RUF071, no paths
        ends += len(other) * other.startswith(word)
        return ends + 2 * (sorted(word) == sorted(other)) - abs(len(word) - len(other))

    similar = get_close_matches(word, by_case)
    return by_case[max(similar, key=likeness)] if similar else ""


def meant(similar: Iterable[str]) -> str:
    """Return a question to append, such as "; did you mean 'a'?"; "" without similar names."""
    names = dict.fromkeys(filter(None, similar))
    return f"; did you mean {' and '.join(map(repr, names))}?" if names else ""


def unknown(what: str, names: Sequence[str], known: Iterable[str], other: str = "") -> str:
    """Return one line about unknown names, with the choices if there are few.

    Parameters
    ----------
    what : the option or key; other : what else is allowed there
    """
    choices = list(known)
    expected = f"one of {', '.join(choices)}" if len(choices) <= _LISTED else "a known name"
    found = ", ".join(map(repr, names))
    similar = meant(near(name, choices) for name in names)
    return f"{what}: expected {expected}{other}, found {found}{similar}"


def reason_of(error: Exception) -> str:
    """Return what is wrong with a file, in words: no name of a class of Python."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, KeyError):
        return f"none of {error}"
    if isinstance(error, TypeError | AttributeError):
        return "entries of another kind"
    return str(error)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, as in "1 client" and "2,708 clients".

    Parameters
    ----------
    plural : of the noun; "" = with an s
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def in_the_way(folder: Path) -> Path | None:
    """Return the file that is where `folder` or one above it would be; None if there is none."""
    existing = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), None)
    return None if existing is None or existing.is_dir() else existing


@contextmanager
def disk_of(folder: Path) -> Iterator[None]:
    """Turn an error of the disk about `folder` inside the block into one line.

    Raises
    ------
    UserError : the disk is full, or this user may not write to the folder; the line names the
        folder, what is free and what to do
    """
    try:
        yield
    except OSError as error:
        place = error.filename and Path(os.fsdecode(error.filename))  # a full disk names no file
        if place and not place.is_relative_to(folder):
            raise
        if error.errno in TOO_MANY:
            most = getrlimit(RLIMIT_NOFILE)[0]
            line = f"{folder}: expected at most {most} open files, found more; raise `ulimit -n`"
        elif _is_full(error):
            line = (
                f"{folder}: expected room for the files of a round, found {_free(folder)} "
                f"({error.strerror or error}); make room there (old runs in {folder / 'runs'} can "
                "be deleted), the node then takes part again without a restart"
            )
        elif error.errno in _CLOSED:
            line = (
                f"{error.filename or folder}: expected read and write access to the folder, "
                f"found {error.strerror!r}; change its owner to the SuperNode's user (chown) and "
                "mount it read-write"
            )
        else:
            raise
        raise UserError(line) from None


def refusal(error: OSError) -> str:
    """Return one line about a full or closed disk for a command; "" for any other error."""
    if _is_full(error):
        again = (
            "free some space or set DANCE_FLWR_HOME to a folder on another disk, then run the same "
            "command again: it reuses every file that is complete"
        )
        if notes := getattr(error, "__notes__", []):  # how to resume a run
            again = "; ".join(["free some space", *notes])
        found = f"expected room to write, found none ({error.strerror or error})"
        return f"{error.filename or 'the output disk'}: {found}; {again}"
    if error.errno in _CLOSED:
        return (  # an error of Arrow has no file name; its text names the file
            f"{error.filename or 'the output'}: expected read and write access for this user, "
            f"found {error.strerror!r}; choose another folder (of prepared data: DANCE_FLWR_HOME) "
            "or change its owner (chown)"
        )
    if error.errno == errno.ENOTDIR and error.filename:
        place = in_the_way(Path(os.fsdecode(error.filename)))
        return f"{place}: expected a folder, found a file; choose another path"
    if error.errno == errno.ENAMETOOLONG:
        return f"{error.filename}: expected a shorter name, as this disk takes; choose another"
    return ""


def _is_full(error: OSError) -> bool:
    """Whether there was no room; NumPy reports byte counts instead of the system's error number."""
    return error.errno in _FULL or (error.errno is None and " requested and " in str(error))


def _free(folder: Path) -> str:
    with suppress(OSError):
        if (files := os.statvfs(folder)).f_files and not files.f_favail:
            return "no inode free"
        return f"{shutil.disk_usage(folder).free / 1e6:.1f} MB free"
    return "none"
