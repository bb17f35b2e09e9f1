"""`Finding`: the result of one check of a node, in one line."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Status of a finding; only a PROBLEM prevents a node from joining."""

    OK = "ok"
    WARNING = "warning"
    # In capitals, as the one status that prevents a node from joining.
    PROBLEM = "PROBLEM"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    Attributes
    ----------
    status : whether the check passed
    text : the message, in one line
    expected, found, action : parts of the message of a warning or problem, else ""
    """

    status: Status
    text: str
    expected: str = ""
    found: str = ""
    action: str = ""


def ok(text: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(Status.OK, text)


def unchecked(reason: str) -> Finding:
    """Return the finding of a check that could not be made, with the reason."""
    return Finding(Status.UNCHECKED, reason)


def warning(expected: str, found: str, action: str) -> Finding:
    """Return a finding that the operator should look at; the node can join nevertheless."""
    return _wrong(Status.WARNING, expected, found, action)


def problem(expected: str, found: str, action: str) -> Finding:
    """Return a finding that prevents the node from joining."""
    return _wrong(Status.PROBLEM, expected, found, action)


def _wrong(status: Status, expected: str, found: str, action: str) -> Finding:
    # As every error of the package: expected, found, what to do.
    return Finding(status, f"expected {expected}, found {found}; {action}", expected, found, action)
