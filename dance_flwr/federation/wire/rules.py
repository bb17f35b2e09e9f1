"""Rules for the records that a stranger has filled: their names, and types, ranges, lengths."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any, Protocol

MAX_NUMBER = 2**53  # up to here whole numbers are exact in float64 and in JSON


class Rule(Protocol):
    """What a value must be; its text completes "expected NAME to be ..."."""

    def allows(self, value: Any) -> bool:
        """Whether this value keeps the rule."""
        ...


@dataclass(frozen=True)
class Whole:
    """An integer within bounds; no bool."""

    minimum: int = 0
    maximum: int = MAX_NUMBER

    def allows(self, value: Any) -> bool:
        """Whether this value keeps the rule."""
        # `type`, as True is an int for `isinstance`.
        return type(value) is int and self.minimum <= value <= self.maximum

    def __str__(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"


@dataclass(frozen=True)
class Real:
    """A finite number within bounds."""

    minimum: float = -MAX_NUMBER
    maximum: float = MAX_NUMBER

    def allows(self, value: Any) -> bool:
        """Whether this value keeps the rule; NaN is within no bounds."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.minimum <= value <= self.maximum

    def __str__(self) -> str:
        return f"a number from {self.minimum:g} to {self.maximum:g}"


@dataclass(frozen=True)
class Text:
    """A string, or bytes, of bounded length."""

    max_length: int
    kind: type[str] | type[bytes] = str

    def allows(self, value: Any) -> bool:
        """Whether this value keeps the rule."""
        return isinstance(value, self.kind) and len(value) <= self.max_length

    def __str__(self) -> str:
        return f"{self.kind.__name__} of at most {self.max_length}"


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def allows(self, value: Any) -> bool:
        """Whether this value keeps the rule."""
        return isinstance(value, bool)

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class ListOf:
    """A list of bounded length whose entries keep one rule."""

    each: Rule
    minimum: int
    maximum: int

    def allows(self, value: Any) -> bool:
        """Whether this value keeps the rule."""
        # The length first, so that a long list is not read to its end.
        whole = isinstance(value, list) and self.minimum <= len(value) <= self.maximum
        return whole and all(map(self.each.allows, value))

    def __str__(self) -> str:
        count = (
            self.minimum if self.minimum == self.maximum else f"{self.minimum} to {self.maximum}"
        )
        return f"a list of {count} entries, each {self.each}"


def entries_fault(
    entries: Mapping[str, Any], table: Mapping[str, Rule], optional: Collection[str] = ()
) -> str:
    """Return what is wrong with the entries of a record; "" where nothing is.

    Parameters
    ----------
    table : rule by name; every entry must have one
    optional : names that may be absent
    """
    # Names before values: a rule is looked up for names of the table alone.
    if missing := sorted(table.keys() - entries.keys() - set(optional)):
        return f"expected {', '.join(missing[:3])}, found no such entry"
    if unknown := sorted(map(str, entries.keys() - table.keys())):
        return f"expected only the entries of its task, found {short_repr(unknown[0])}"
    for name, value in entries.items():
        if not table[name].allows(value):
            return f"expected {name} to be {table[name]}, found {short_repr(value)}"
    return ""


def records_fault(
    content: Mapping[str, Any],
    required: Mapping[str, type],
    optional: Mapping[str, type] | None = None,
) -> str:
    """Return which record of a reply is missing, unknown or of another kind; "" if none is."""
    known = {**required, **(optional or {})}
    if missing := sorted(required.keys() - content.keys()):
        return f"expected a record {missing[0]!r}, found none"
    for name, record in content.items():
        if name not in known:
            return f"expected only the records of its task, found {short_repr(name)}"
        if not isinstance(record, known[name]):
            return f"expected {name} as {known[name].__name__}, found {type(record).__name__}"
    return ""


def short_repr(value: Any) -> str:
    """Return a value as text of bounded length, for a message."""
    try:
        return shortened(value)
    except ValueError:  # Python writes no integer of thousands of digits
        return f"{type(value).__name__} of thousands of digits"
