"""Rules for the records of untrusted messages: names, types, ranges and lengths of entries."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import Any

MAX_NUMBER = 2**53  # up to here whole numbers are exact in float64 and in JSON


@dataclass(frozen=True)
class Rule:
    """A condition on a value; `text` completes "expected NAME to be ..."."""

    text: str
    allows: Callable[[Any], bool] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


def whole(minimum: int = 0, maximum: int = MAX_NUMBER) -> Rule:
    """Return the rule of an integer within bounds; a bool is none."""
    text = f"a whole number from {minimum} to {maximum}"
    return Rule(text, lambda value: type(value) is int and minimum <= value <= maximum)


def real(minimum: float = -MAX_NUMBER, maximum: float = MAX_NUMBER) -> Rule:
    """Return the rule of a finite number within bounds; NaN is none."""

    def allows(value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and minimum <= value <= maximum

    return Rule(f"a number from {minimum:g} to {maximum:g}", allows)


def text(max_length: int, kind: type[str] | type[bytes] = str) -> Rule:
    """Return the rule of a string, or bytes, of bounded length."""
    what = f"{kind.__name__} of at most {max_length}"
    return Rule(what, lambda value: isinstance(value, kind) and len(value) <= max_length)


FLAG = Rule("true or false", lambda value: isinstance(value, bool))


def list_of(each: Rule, minimum: int, maximum: int) -> Rule:
    """Return the rule of a list of bounded length, with one rule for all its entries."""

    def allows(value: Any) -> bool:
        # The length first, so that a long list is not read to its end.
        bounded = isinstance(value, list) and minimum <= len(value) <= maximum
        return bounded and all(map(each.allows, value))

    count = minimum if minimum == maximum else f"{minimum} to {maximum}"
    return Rule(f"a list of {count} entries, each {each}", allows)


def entries_fault(
    entries: Mapping[str, Any], table: Mapping[str, Rule], optional: Collection[str] = ()
) -> str:
    """Return the error in the entries of a record, or "" if they are valid.

    Parameters
    ----------
    table : rule by name; other entries are errors
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


# Name of a record -> its type, and the rules of its entries; None = any entries.
Form = Mapping[str, tuple[type, Mapping[str, Rule] | None]]


def content_fault(content: Mapping[str, Any], required: Form, optional: Form | None = None) -> str:
    """Return the error in the records of a reply and their entries, or "" if they are valid."""
    known = {**required, **(optional or {})}
    if missing := sorted(required.keys() - content.keys()):
        return f"expected a record {missing[0]!r}, found none"
    # All records before any entry, as an unknown record may be large.
    for name, record in content.items():
        if name not in known:
            return f"expected only the records of its task, found {short_repr(name)}"
        kind, _ = known[name]
        if not isinstance(record, kind):
            return f"expected {name} as {kind.__name__}, found {type(record).__name__}"
    for name, record in content.items():
        _, rules = known[name]
        if rules is not None and (fault := entries_fault(record, rules)):
            return f"{name}: {fault}"
    return ""


def short_repr(value: Any) -> str:
    """Return a value as text of bounded length, for a message."""
    try:
        return shortened(value)
    except ValueError:  # Python writes no integer of thousands of digits
        return f"{type(value).__name__} of thousands of digits"
