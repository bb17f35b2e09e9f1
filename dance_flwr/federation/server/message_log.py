"""A log of the messages between server and clients: kinds, keys, counts and bytes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message

from dance_flwr.federation.flower import SECAGG_CONFIGS, SecAggKey
from dance_flwr.federation.wire.keys import NODE
from dance_flwr.federation.wire.serialization import bytes_of

DOWN, UP = "to clients", "to the server"


@dataclass
class Entry:
    """Totals over all messages of one kind.

    Attributes
    ----------
    type : Flower's message type
    stage : of secure aggregation, otherwise ""
    way : DOWN or UP
    keys : keys that occurred, by record; numbers of nodes are written as "<node>"
    count, errors, bytes : of messages, of errors among them, and of their arrays and byte strings
    """

    type: str
    stage: str
    way: str
    keys: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0
    errors: int = 0
    bytes: int = 0


@dataclass
class Traffic:
    """Model bytes between the server and each client since the last `take`."""

    down: dict[int, int] = field(default_factory=dict)
    up: dict[int, int] = field(default_factory=dict)

    def take(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return (down, up) in bytes per client and start again from zero."""
        traffic = dict(sorted(self.down.items())), dict(sorted(self.up.items()))
        self.down, self.up = {}, {}
        return traffic


class MessageLog:
    """Entries by kind, in the order of their first messages."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str], Entry] = {}
        self._stage_of: dict[str, str] = {}

    def add(self, batch: Iterable[Message], way: str) -> None:
        """Record messages that were sent (DOWN) or received (UP)."""
        for message in batch:
            kind = message.metadata.message_type
            stage = self._stage(message, way)
            entry = self._entries.setdefault((kind, stage, way), Entry(kind, stage, way))
            # Counts alone, and no values: the log is part of every result (docs/privacy.md).
            entry.count += 1
            entry.errors += message.has_error()
            entry.bytes += bytes_of(message)
            for name, record in message.content.items() if message.has_content() else ():
                seen = entry.keys.setdefault(name, [])
                # SecAgg+ uses numbers of nodes as keys; the log names no clients.
                new = {
                    NODE if str(key).lstrip("-").isdigit() else str(key) for key in record
                } - set(seen)
                entry.keys[name] = sorted([*seen, *new])

    def rows(self) -> list[dict[str, Any]]:
        """Return the entries as plain dictionaries."""
        return [vars(entry) | {"keys": dict(entry.keys)} for entry in self._entries.values()]

    def restore(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace all entries by those of `rows`."""
        entries = [Entry(**row) for row in rows]
        self._entries = {(entry.type, entry.stage, entry.way): entry for entry in entries}

    def _stage(self, message: Message, way: str) -> str:
        """Return the stage of a request; a reply belongs to the last stage asked of its node."""
        node = str(message.metadata.dst_node_id if way == DOWN else message.metadata.src_node_id)
        if way == DOWN:
            record = message.content.config_records.get(SECAGG_CONFIGS)
            self._stage_of[node] = str(record[SecAggKey.STAGE]) if record is not None else ""
        return self._stage_of.get(node, "")
