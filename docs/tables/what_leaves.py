"""The table of what leaves a client in docs/privacy.md, from the messages of two runs.

`python -m docs.tables.what_leaves [KEY=VALUE ...]` makes the runs and prints the table: two rounds
of the default method in this process, without secure aggregation and with it. With `entries` it
prints every entry of every message with its class instead, of any run.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flwr.app import Message

from dance_flwr.config.text import read_config
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.federation.declarations import disclosure, entries
from dance_flwr.federation.flower import SECAGG_CONFIGS, SecAggKey
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import config_of
from dance_flwr.federation.wire.rules import Kind

HEADINGS = ("what leaves", "keys", "when", "of it under secure aggregation")
_SUM, _SAME, _ZERO, _NOTHING = "the sum over clients", "the same", "withheld", "nothing"
_FIRST, _LAST = "before round 1", "with the final model"
_ROUNDS = 2
_TENSORS = {record for _, record, key, _ in entries() if key == "*"}
_MIN_GROUP = 3  # keys that share a prefix and are written as one


@dataclass
class _Sent:
    """One key of replies: when it was sent, and whether ever with another value than 0."""

    times: set[int | str] = field(default_factory=set)
    filled: bool = False


@dataclass
class _Record:
    """What the replies of a run held: by record and key, and the names in its masked sums."""

    sent: dict[tuple[str, str], _Sent] = field(default_factory=dict)
    summed: set[tuple[str, str]] = field(default_factory=set)
    rounds: set[int] = field(default_factory=set)


def table(plain: Iterable[Message], masked: Iterable[Message]) -> str:
    """Return what clients send as a Markdown table; keys that hold the same share a row.

    Parameters
    ----------
    plain, masked : all messages of a run without secure aggregation, and of one with it

    Raises
    ------
    UserError : a key is not described
    """
    clear, sums = _record(plain), _record(masked)
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (record, key), sent in clear.sent.items():
        row = (
            disclosure(record, key, keys.UP).what,
            _when(sent.times, clear.rounds),
            _left((record, key), clear, sums),
        )
        rows.setdefault(row, []).append(f"{record}.*" if record in _TENSORS else key)
    lines = [[what, _shortened(names), when, left] for (what, when, left), names in rows.items()]
    grid = [HEADINGS, ["---"] * len(HEADINGS), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in grid)


def _record(messages: Iterable[Message]) -> _Record:
    """Return what the replies among these messages held."""
    record, requests = _Record(), dict[str, Message]()
    for message in messages:
        if not message.metadata.src_node_id:
            requests[message.metadata.message_id] = message
        elif message.has_content():
            _add(message, requests[message.metadata.reply_to_message_id], record)
    return record


def _add(reply: Message, request: Message, to: _Record) -> None:
    config = config_of(request)
    round_ = config.get(keys.ROUND)
    last = config.get(keys.FINAL) or reply.metadata.message_type == keys.SEAL
    time = _LAST if last else _FIRST if round_ is None else int(round_)
    if isinstance(time, int):
        to.rounds.add(time)
    for record, values in reply.content.items():
        for key, value in values.items():
            sent = to.sent.setdefault((record, str(key)), _Sent())
            sent.times.add(time)
            sent.filled |= record in _TENSORS or value not in (0, 0.0, "", [])
    layout: Mapping[str, Any] = reply.content.config_records.get(keys.SECURE_LAYOUT, {})
    to.summed |= {(keys.METRICS, name) for name in layout.get(keys.NAMES, ())}
    stage: Mapping[str, Any] = reply.content.config_records.get(SECAGG_CONFIGS, {})
    if SecAggKey.MASKED_PARAMETERS in stage:
        options = request.content.config_records[keys.SECURE_SUM]
        if options[keys.TASK] == keys.TRAIN:
            start = request.content.array_records[keys.ARRAYS]
            to.summed |= {(keys.ARRAYS, str(name)) for name in start}


def _when(times: set[int | str], rounds: set[int]) -> str:
    inside = times & rounds
    words = [f"once, {_FIRST}"] if _FIRST in times else []
    if inside:
        words.append("in every round" if inside == rounds else "in some rounds")
    return " and ".join([*words, *([_LAST if words else f"once, {_LAST}"] * (_LAST in times))])


def _left(pair: tuple[str, str], clear: _Record, sums: _Record) -> str:
    """Return what of a (record, key) the server reads under secure aggregation."""
    if pair in sums.sent:
        return _ZERO if clear.sent[pair].filled and not sums.sent[pair].filled else _SAME
    return _SUM if pair in sums.summed else _NOTHING


def _shortened(names: Sequence[str]) -> str:
    """Return names as code; those that share a first word are written as `word-{a,b,c}`."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(name.partition("-")[0], []).append(name)
    parts: list[str] = []
    for word, group in groups.items():
        if len(group) >= _MIN_GROUP:
            ends = ",".join(sorted(name.removeprefix(f"{word}-") for name in group))
            parts.append(f"{word}-{{{ends}}}")
        else:
            parts += group
    return ", ".join(f"`{part}`" for part in parts)


def messages_of(config: RunConfig) -> list[Message]:
    """Run the two apps in this process; return all messages, each request before its reply."""
    import server_app
    from client_app import app
    from dance_flwr.runs.simulation.in_process import InProcessGrid

    messages: list[Message] = []
    with TemporaryDirectory() as folder:
        config = replace(config, out=folder)
        grid = InProcessGrid(app, flatten(config), config.clients, on_message=messages.append)
        server_app.run(grid, config, "what-leaves", Path(folder))
    return messages


def classes() -> str:
    """Return every entry of every message with its class as a Markdown table."""
    rows = [("message", "way", "record", "key", "class"), ("---",) * 5]
    for (kind, stage, way), record, key, (told, *_) in entries():
        # These numbers are in masked vectors only.
        own = Kind.MASKED if kind == keys.WEIGH else told.kind
        private = [f"{other} under privacy.dp = {dp}" for dp, other in told.under]
        message = " / ".join(filter(None, (kind, stage)))
        rows.append((message, way, record, key, "; ".join([own, *private])))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(pairs: Sequence[str]) -> None:
    """Make both runs with these KEY=VALUE pairs and print the table, or that of all entries."""
    if pairs == ["entries"]:
        print(classes())
        return
    masks = {"privacy.secure-aggregation": True}
    runs = [
        messages_of(read_config([], pairs, {"rounds": _ROUNDS, **more})) for more in ({}, masks)
    ]
    print(table(*runs))


if __name__ == "__main__":
    main(sys.argv[1:])
