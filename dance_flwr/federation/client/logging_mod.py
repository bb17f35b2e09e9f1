"""Log the answers of a ClientApp."""

import logging
import time
from collections.abc import Callable
from typing import Any

from dance_flwr import events
from dance_flwr.federation.wire import keys, messages


def log_answers(message: Any, context: Any, answer: Callable[[Any, Any], Any]) -> Any:
    """Answer a message and log an event: a mod of the ClientApp."""
    config = messages.config_of(message) if message.has_content() else {}
    run = config.get(keys.RUN) or events.context_fact("run") or str(message.metadata.run_id)
    kind, begin = message.metadata.message_type, time.perf_counter()
    with events.log_context(
        run=run, round=config.get(keys.ROUND), client=context.node_config.get(keys.PARTITION_ID)
    ):
        try:
            reply = answer(message, context)
        except Exception as error:
            events.emit(
                "message_failed",
                f"{kind}: {error}",
                logging.ERROR,
                kind=kind,
                reason=type(error).__name__,
            )
            raise
        seconds = time.perf_counter() - begin
        if reply.has_error():
            events.emit(
                "message_failed",
                f"{kind}: {reply.error.reason}",
                logging.ERROR,
                kind=kind,
                seconds=seconds,
            )
        else:
            events.emit("message_answered", f"{kind} answered", kind=kind, seconds=seconds)
    return reply
