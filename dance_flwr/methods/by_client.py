"""Names of the entries of one client, or of one kind, in a flat record: "client-3/features"."""

from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")


def client_prefix(client: int) -> str:
    """Return the prefix of the names of a client's entries."""
    return f"client-{client}/"


def entries_under(record: Mapping[str, Entry], prefix: str) -> dict[str, Entry]:
    """Return the entries whose names start with `prefix`, named without it."""
    return {
        name.removeprefix(prefix): entry
        for name, entry in record.items()
        if name.startswith(prefix)
    }


def entries_of(record: Mapping[str, Entry], client: int) -> dict[str, Entry]:
    """Return the entries of one client, named without the client."""
    return entries_under(record, client_prefix(client))


def for_client(entries: Mapping[str, Entry], client: int) -> dict[str, Entry]:
    """Return entries named with their client; the inverse of `entries_of`."""
    return {client_prefix(client) + name: entry for name, entry in entries.items()}
