"""Replies of a client that lies: alterations of what an honest one sends."""

from flwr.app import RecordDict

from dance_flwr.federation.wire import messages


def records(**changed):
    """An alteration that sets records by name; None takes one away."""

    def change(reply):
        content = dict(reply.content) | changed
        kept = {name: record for name, record in content.items() if record is not None}
        return messages.with_content(reply, RecordDict(kept))

    return change
