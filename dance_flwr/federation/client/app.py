"""The ClientApp of a node, which logs its answers and hides the reasons of its refusals.

An error message such as "expected at least this client's 1200 nodes" reveals a number that no sum
would. Under masks every error is therefore the same sentence; the reason is in the node's own log.
"""

import logging
import time
from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from dance_flwr import events
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.client import demands_masks
from dance_flwr.federation.wire import keys, messages

LOG = logging.getLogger("flwr")
# Why (decision 8): the same for all refusals, so that a refusal tells one bit.
REFUSAL = "this client does not take part; the reason is in its own log"


class ReticentApp(ClientApp):
    """A ClientApp that answers every error with `REFUSAL` if the client demands masks.

    It is around the whole app, so it also catches what Flower raises for unknown messages.
    """

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        if not _reticent(context):
            return super().__call__(message, context)
        try:
            reply = super().__call__(message, context)
        except Exception as error:
            # Every kind, as the text of an unexpected error may hold numbers of the client as well.
            LOG.warning("%s: %s", type(error).__name__, error)
            return messages.error_reply(message, REFUSAL)
        return messages.error_reply(message, REFUSAL) if reply.has_error() else reply


def _reticent(context: Context) -> bool:
    """Whether this client demands masks, or has a configuration that does not say."""
    try:
        return demands_masks(context)
    except UserError:
        # A configuration that cannot be read may demand masks.
        return True


def log_answers(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Answer a message and log an event: a mod of the ClientApp."""
    config = messages.config_of(message) if message.has_content() else {}
    run = config.get(keys.RUN) or events.context_fact("run") or str(message.metadata.run_id)
    kind, begin = message.metadata.message_type, time.perf_counter()
    with events.log_context(
        run=run, round=config.get(keys.ROUND), client=context.node_config.get(keys.PARTITION_ID)
    ):
        try:
            reply = call_next(message, context)
        except Exception as error:
            # Raised again: `ReticentApp`, around this mod, decides what the server learns.
            LOG.debug("the traceback of this error", exc_info=True)
            reason = type(error).__name__
            events.emit(
                "message_failed", f"{kind}: {error}", logging.ERROR, kind=kind, reason=reason
            )
            raise
        seconds = time.perf_counter() - begin
        if reply.has_error():
            reason = f"{kind}: {reply.error.reason}"
            events.emit("message_failed", reason, logging.ERROR, kind=kind, seconds=seconds)
            # Events are visible in JSON only, and a refusal sends the operator to this log.
            if not events.structured():
                LOG.error("%s", reason)
        else:
            events.emit("message_answered", f"{kind} answered", kind=kind, seconds=seconds)
    return reply
