"""A ClientApp whose refusals tell a server nothing: one sentence under masks, whatever the reason.

The text of an error is an answer too: "expected at least this client's 1200 nodes" gives a number
that no sum would. The reason is in the node's own log.
"""

import logging

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.client import demands_masks
from dance_flwr.federation.wire import messages

LOG = logging.getLogger("flwr")
REFUSAL = "this client does not take part; the reason is in its own log"


class ReticentApp(ClientApp):
    """A ClientApp that answers every error with `REFUSAL` where the client demands masks.

    Around the whole app: also what Flower raises for a message that no handler takes.
    """

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        if not _reticent(context):
            return super().__call__(message, context)
        try:
            reply = super().__call__(message, context)
        except Exception as error:
            LOG.warning("%s: %s", type(error).__name__, error)
            LOG.debug("the traceback of this error", exc_info=True)
            return messages.error_reply(message, REFUSAL)
        return messages.error_reply(message, REFUSAL) if reply.has_error() else reply


def _reticent(context: Context) -> bool:
    """Whether this client demands masks, or has a configuration that does not say."""
    try:
        return demands_masks(context)
    except UserError:
        return True
