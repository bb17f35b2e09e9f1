"""One point of a check: what it found, in one line of plain words."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a point came out; only a PROBLEM keeps a node from joining."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "PROBLEM"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Point:
    """What a check found.

    Attributes
    ----------
    status : how it came out
    text : the whole message in one line
    expected, found, action : its parts where something is wrong; "" elsewhere
    """

    status: Status
    text: str
    expected: str = ""
    found: str = ""
    action: str = ""


def ok(text: str) -> Point:
    """Return a point that is as it should be."""
    return Point(Status.OK, text)


def unchecked(reason: str) -> Point:
    """Return a point that could not be checked, and why."""
    return Point(Status.UNCHECKED, reason)


def warning(expected: str, found: str, action: str) -> Point:
    """Return a point that the node can join with, and that somebody should look at."""
    return _wrong(Status.WARNING, expected, found, action)


def problem(expected: str, found: str, action: str) -> Point:
    """Return a point that keeps the node from joining."""
    return _wrong(Status.PROBLEM, expected, found, action)


def _wrong(status: Status, expected: str, found: str, action: str) -> Point:
    return Point(status, f"expected {expected}, found {found}; {action}", expected, found, action)
