"""Declare the records of a message: what each entry discloses, and the values that it may have."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from reprlib import repr as shortened
from typing import Any, NamedTuple

MAX_NUMBER = 2**53  # up to here whole numbers are exact in float64 and in JSON


@dataclass(frozen=True)
class Rule:
    """A condition on a value; `text` completes "expected NAME to be ..."."""

    text: str
    type: str
    allows: Callable[[Any], bool] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


def whole(minimum: int = 0, maximum: int = MAX_NUMBER) -> Rule:
    """Return the rule of an integer within bounds; a bool is not one."""
    text = f"a whole number from {minimum} to {maximum}"
    return Rule(text, "int", lambda value: type(value) is int and minimum <= value <= maximum)


def real(minimum: float = -MAX_NUMBER, maximum: float = MAX_NUMBER) -> Rule:
    """Return the rule of a finite number within bounds; NaN is not one."""

    def allows(value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and minimum <= value <= maximum

    return Rule(f"a number from {minimum:g} to {maximum:g}", "float", allows)


def text(max_length: int, kind: type[str] | type[bytes] = str) -> Rule:
    """Return the rule of a string, or bytes, of bounded length."""
    what, name = f"{kind.__name__} of at most {max_length}", kind.__name__
    return Rule(what, name, lambda value: isinstance(value, kind) and len(value) <= max_length)


FLAG = Rule("true or false", "bool", lambda value: isinstance(value, bool))
ANY = Rule("anything", "", lambda value: True)


def list_of(each: Rule, minimum: int, maximum: int) -> Rule:
    """Return the rule of a list of bounded length, with one rule for all its entries."""

    def allows(value: Any) -> bool:
        # The length first, so that a long list is not read to its end.
        bounded = isinstance(value, list) and minimum <= len(value) <= maximum
        return bounded and all(map(each.allows, value))

    count = minimum if minimum == maximum else f"{minimum} to {maximum}"
    text = f"a list of {count} entries, each {each}"
    return Rule(text, f"list of {each.type}", allows)


class Kind(StrEnum):
    """What an entry tells whoever reads it."""

    CONSTANT = "constant"
    PUBLIC = "public by the terms"
    NOISY = "noisy"
    MASKED = "masked"  # uniform, or hidden by a salt, for whoever lacks the secrets of others
    WITHHELD = "withheld"
    PLAIN = "plain number"


class Disclosure(NamedTuple):
    """The content of an entry, and its readers.

    Attributes
    ----------
    what : the content, in a few words
    readers : who can read it
    kind : its class without differential privacy
    assumption : the condition under which nobody else can, or what can be inferred from it
    brief : the content in a list of everything that left a client; "" = no client sends it
    under : (value of `privacy.dp`, class) where the class is another one
    """

    what: str
    readers: str
    kind: Kind = Kind.PUBLIC
    assumption: str = ""
    brief: str = ""
    under: tuple[tuple[str, Kind], ...] = ()


class Entry(NamedTuple):
    """An entry of a record."""

    told: Disclosure
    rule: Rule = ANY
    optional: bool = False


Table = dict[str, Entry]


class Record(NamedTuple):
    """A record of a message: its type, and its entries or, of tensors of any name, what they tell.

    Attributes
    ----------
    of : the type of Flower's record
    content : entries by key, or the disclosure of all tensors
    optional : whether a message may lack it
    """

    of: type
    content: Table | Disclosure
    optional: bool = False


Form = dict[str, Record]  # a message: its records by name


def each(names: Iterable[str], told: Disclosure, rule: Rule = ANY) -> Table:
    """Return the same entry under each of these names."""
    return dict.fromkeys(names, Entry(told, rule))


def content_fault(content: Mapping[str, Any], form: Form) -> str:
    """Return the error in the records of a message and their entries, or "" if they are valid."""
    required = {name for name, record in form.items() if not record.optional}
    if missing := sorted(required - content.keys()):
        return f"expected a record {missing[0]!r}, found none"
    # All records before any entry, as an unknown record may be large.
    for name, found in content.items():
        if name not in form:
            return f"expected only the records of its task, found {short_repr(name)}"
        if not isinstance(found, form[name].of):
            return f"expected {name} as {form[name].of.__name__}, found {type(found).__name__}"
    for name, found in content.items():
        entries = form[name].content
        if isinstance(entries, dict) and (fault := entries_fault(found, entries)):
            return f"{name}: {fault}"
    return ""


def entries_fault(entries: Mapping[str, Any], declared: Table) -> str:
    """Return the error in the entries of a record, or "" if they are valid."""
    # Names before values: a rule is looked up for declared names alone.
    required = {name for name, entry in declared.items() if not entry.optional}
    if missing := sorted(required - entries.keys()):
        return f"expected {', '.join(missing[:3])}, found no such entry"
    if unknown := sorted(map(str, entries.keys() - declared.keys())):
        return f"expected only the entries of its task, found {short_repr(unknown[0])}"
    for name, value in entries.items():
        if not (rule := declared[name].rule).allows(value):
            return f"expected {name} to be {rule}, found {short_repr(value)}"
    return ""


def short_repr(value: Any) -> str:
    """Return a value as text of bounded length, for a message."""
    try:
        return shortened(value)
    except ValueError:  # Python writes no integer of thousands of digits
        return f"{type(value).__name__} of thousands of digits"
