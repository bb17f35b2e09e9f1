"""A node's own record of what it sent: one line per reply, kept beside the data."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import Context, Message

from dance_flwr.errors import UserError
from dance_flwr.federation.flower import SECAGG_CONFIGS, SecAggKey, SecAggStage
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.serialization import bytes_of

LOG = logging.getLogger("flwr")
FILE = "sent.jsonl"
_UNRECORDED = "this node cannot record what it sends; the reason is in its own log"


def keep_sent(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Answer a message, and record the reply before it leaves: a mod of the ClientApp.

    A node without data of its own keeps no record: in a simulation the server has one.
    """
    config = messages.config_of(message) if message.has_content() else {}
    stage = message.content.config_records.get(SECAGG_CONFIGS) if message.has_content() else None
    named = str(stage[SecAggKey.STAGE]) if stage else ""
    reply = call_next(message, context)
    if data := context.node_config.get(keys.DATA_PATH):
        line = {
            "at": f"{datetime.now(UTC):%FT%TZ}",
            "id": message.metadata.run_id,
            "run": str(config.get(keys.RUN, "")),
            "round": config.get(keys.ROUND),
            "type": message.metadata.message_type,
            "stage": named,
            "way": keys.UP,
            "dp": context.run_config.get("privacy.dp", "none"),
            "bytes": bytes_of(reply),
            "error": reply.error.reason if reply.has_error() else "",
            "keys": messages.keys_in(reply),
        }
        try:
            _append(Path(str(data)) / "runs" / FILE, line)
        except OSError as error:
            # What is not on record does not leave. The place is the node's own business.
            LOG.error("%s: expected to record a message, found %s", data, error)
            return messages.error_reply(message, _UNRECORDED)
        # One line a round: other stages of a masked sum carry keys and shares.
        if line["type"] == keys.TRAIN and named in ("", SecAggStage.COLLECT_MASKED_VECTORS):
            LOG.info("round %s: sent %s bytes", line["round"], f"{line['bytes']:,}")
    return reply


def _append(path: Path, line: Mapping[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    # One write of one line, as several processes of a node may append.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


def read_sent(client_folder: Path, run: str = "") -> list[dict[str, Any]]:
    """Return the record of a run, by default of the newest one; its name is in every line.

    Parameters
    ----------
    run : the run's name, or its number in Flower

    Raises
    ------
    UserError : there is no such run in the record, or a line cannot be read
    """
    path = client_folder / "runs" / FILE
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        # Greetings and stages of masks name Flower's number of the run alone.
        names = {line["id"]: line["run"] for line in lines if line["run"]}
        wanted = [
            number
            for number in dict.fromkeys(line["id"] for line in lines)
            if not run or run in (names.get(number), str(number))
        ]
        found = [line for line in lines if wanted and line["id"] == wanted[-1]]
    except FileNotFoundError:
        raise UserError(
            f"{path}: expected the record of what this site sent, found none; it begins with the "
            "first message that `dance-flwr site start` answers"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: expected a record of messages, found {error!r:.80}") from None
    if not found:
        known = ", ".join(names.values()) or "none"
        raise UserError(f"{path}: expected run {run!r} in the record, found {known}")
    return [line | {"run": names.get(line["id"], str(line["id"]))} for line in found]
