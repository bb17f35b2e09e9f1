"""Replies of a client that lies: alterations of what an honest one sends."""

from flwr.app import ConfigRecord, RecordDict

import client_app
from dance_flwr.federation.wire import keys, messages


def records(**changed):
    """An alteration that sets records by name; None takes one away."""

    def change(reply):
        content = dict(reply.content) | changed
        kept = {name: record for name, record in content.items() if record is not None}
        return messages.with_content(reply, RecordDict(kept))

    return change


def entries(record, kind=ConfigRecord, **changes):
    """An alteration that sets entries of a record, or what functions make of them; None removes."""

    def change(reply):
        found = dict(reply.content.get(record, {}))
        for name, value in changes.items():
            found[name] = value(found[name]) if callable(value) else value
        kept = {name: value for name, value in found.items() if value is not None}
        return records(**{record: kind(kept)})(reply)

    return change


def described(**changes):
    """An alteration of what a client says of itself or its data."""
    return entries(keys.CONFIG, **changes)


def crash(reply):
    raise ValueError("y" * 10**6)


def unlike(clients, rounds, change=None):
    """A ClientApp whose clients of these numbers alter their models of these rounds, or fail."""

    def app(message, context):
        theirs = context.node_config[keys.PARTITION_ID] in clients
        trains = theirs and message.metadata.message_type == keys.TRAIN
        if not trains or messages.config_of(message).get(keys.ROUND) not in rounds:
            return client_app.app(message, context)
        if change is None:
            raise RuntimeError("out\nof luck")
        return change(client_app.app(message, context))

    return app
