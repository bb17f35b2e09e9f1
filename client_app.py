"""ClientApp: message -> task -> reply.

A SuperNode starts a process for every message, and three of the four stages of secure aggregation
need no torch. Handlers therefore import what computes when they run.
"""

from collections.abc import Callable

from flwr.app import Context, Message

from dance_flwr import events
from dance_flwr.errors import UserError
from dance_flwr.federation.client.app import ReticentApp, log_answers
from dance_flwr.federation.client.sent import keep_sent
from dance_flwr.federation.node_config import client_number
from dance_flwr.federation.secagg.client import secure_sum
from dance_flwr.federation.secagg.signatures import signed_hello
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.serialization import answer_packed
from dance_flwr.fingerprint import PROTOCOL

events.install()
app = ReticentApp(mods=[log_answers, answer_packed, keep_sent])


@app.query(keys.action_of(keys.HELLO))
def hello(message: Message, context: Context) -> Message:
    """Answer which partition this node holds and its protocol, signed if it has a key."""
    return _answer(_hello, message, context)


@app.query(keys.action_of(keys.DESCRIBE))
def describe(message: Message, context: Context) -> Message:
    """Answer what the local data requires of the global model."""
    from dance_flwr.federation.client import handlers

    return _answer(handlers.describe, message, context)


@app.query(keys.action_of(keys.SEAL))
def seal(message: Message, context: Context) -> Message:
    """Answer a hash that fixes the evidence which the run has left here."""
    from dance_flwr.federation.client import handlers

    return _answer(handlers.seal, message, context)


@app.query(keys.action_of(keys.EXCHANGE))
def exchange(message: Message, context: Context) -> Message:
    """Run a step of the method's exchange before round 1."""
    from dance_flwr.federation.client import handlers

    return _answer(handlers.work, message, context)


@app.train(mods=[secure_sum])
def train(message: Message, context: Context) -> Message:
    """Train one round and upload the model, or contribute to another sum under masks."""
    from dance_flwr.federation.client import handlers

    return _answer(handlers.work, message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Count hits on the validation nodes; with the final model also test and write evidence."""
    from dance_flwr.federation.client import handlers

    return _answer(handlers.work, message, context)


def _answer(
    task: Callable[[Message, Context], Message], message: Message, context: Context
) -> Message:
    """Turn a `UserError` into an error reply of one line, which `log_answers` logs at the node."""
    try:
        return task(message, context)
    except UserError as error:
        return messages.error_reply(message, str(error))


def _hello(message: Message, context: Context) -> Message:
    answer = messages.Hello(
        partition=client_number(context.node_config),
        owns_data=keys.DATA_PATH in context.node_config,
        protocol=PROTOCOL,
    )
    return signed_hello(message, context, messages.hello_reply(message, answer))
