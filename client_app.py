"""ClientApp: message -> task -> reply.

A SuperNode starts a process for every message, and three of the four stages of secure aggregation
need no torch: what computes is imported by the handler that needs it.
"""

import logging
from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from dance_flwr import events
from dance_flwr.errors import UserError
from dance_flwr.federation.client.logging_mod import answering
from dance_flwr.federation.client.secagg_mod import secure_sum
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.serialization import answer_packed
from dance_flwr.fingerprint import code_fingerprint

LOG = logging.getLogger("flwr")
events.install()
app = ClientApp(mods=[answering, answer_packed])


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Say which partition this node holds and which code it runs."""
    return messages.hello_reply(
        message,
        messages.Hello(
            partition=int(context.node_config.get(keys.PARTITION_ID, 0)),
            owns_data=keys.DATA_PATH in context.node_config,
            code=code_fingerprint(),
        ),
    )


@app.query("describe")
def describe(message: Message, context: Context) -> Message:
    """Say what the local data asks of the global model."""
    from dance_flwr.federation.client import handlers

    return _answer(handlers.describe, message, context)


@app.query("exchange")
def exchange(message: Message, context: Context) -> Message:
    """Make a step of what the method's clients exchange before round 1."""
    from dance_flwr.federation.client import handlers

    return _answer(handlers.work, message, context)


@app.train(mods=[secure_sum])
def train(message: Message, context: Context) -> Message:
    """Run one round of the method and upload the model, or answer another sum under masks."""
    from dance_flwr.federation.client import handlers

    return _answer(handlers.work, message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Count hits on the local graph; with the final model also on the test nodes, leaving evidence
    behind.
    """
    from dance_flwr.federation.client import handlers

    return _answer(handlers.work, message, context)


def _answer(
    task: Callable[[Message, Context], Message], message: Message, context: Context
) -> Message:
    """Turn a user's error into an error reply of one line, which the node's own log has too."""
    try:
        return task(message, context)
    except UserError as error:
        LOG.warning("%s", error)
        return messages.error_reply(message, str(error))
