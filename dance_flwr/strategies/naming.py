"""Names of what belongs to one client in a flat record: "client-3/features"."""

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def prefix(client: int) -> str:
    """Return what the names of a client's entries begin with."""
    return f"client-{client}/"


def part(record: Mapping[str, Value], client: int) -> dict[str, Value]:
    """Return a client's own entries under the names that they have without the client."""
    own = prefix(client)
    return {name.removeprefix(own): value for name, value in record.items() if name.startswith(own)}


def named(entries: Mapping[str, Value], client: int) -> dict[str, Value]:
    """Return entries under the names that say whose they are."""
    return {prefix(client) + name: value for name, value in entries.items()}
