"""Names of what belongs to one client in a flat record: "client-3/features"."""

from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")


def client_prefix(client: int) -> str:
    """Return what the names of a client's entries begin with."""
    return f"client-{client}/"


def entries_of(record: Mapping[str, Entry], client: int) -> dict[str, Entry]:
    """Return a client's own entries, under the names that they have without the client."""
    own = client_prefix(client)
    return {name.removeprefix(own): value for name, value in record.items() if name.startswith(own)}


def for_client(entries: Mapping[str, Entry], client: int) -> dict[str, Entry]:
    """Return entries under the names that say whose they are; the inverse of `entries_of`."""
    return {client_prefix(client) + name: value for name, value in entries.items()}
