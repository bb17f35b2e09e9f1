"""A node's record of what it sent, a line per answer, beside its data; refusals are in its log."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from flwr.app import Context, Message

from dance_flwr.errors import UserError, disk_of
from dance_flwr.federation.client.measured import read_measured
from dance_flwr.federation.flower import SecAggStage
from dance_flwr.federation.secagg.sums import kind_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.serialization import bytes_of

LOG = logging.getLogger("flwr")
FILE = "sent.jsonl"
# Terms of a node that bound an answer, by the task; those of a masked sum bound all of its stages.
_NOISE = (keys.MAX_EPSILON, keys.MIN_NOISE_MULTIPLIER)
_TRAINING = (keys.MAX_ROUNDS, keys.MAX_TRAININGS, keys.MAX_LOCAL_EPOCHS, keys.MAX_CHANGE)
_TERMS = {
    keys.TRAIN: (*_TRAINING, *_NOISE),
    keys.EXCHANGE: (keys.MAX_TRAININGS,),
    keys.EVALUATE: (keys.MAX_ROUNDS, keys.MAX_TRAININGS),
}
# Stages that send an update, one a round: others of a masked sum carry keys and shares.
_WHOLE = ("", SecAggStage.COLLECT_MASKED_VECTORS)
_MASKED = (keys.DEMANDS_MASKS, keys.MIN_CLIENTS)
# A round takes a few kB, so that tens of thousands fit; a server that asks on fills no disk.
MAX_BYTES = 256 << 20


def keep_sent(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Answer a message, and record the reply before it leaves: a mod of the ClientApp.

    A node without data of its own keeps no record: in a simulation the server has one.
    """
    if keys.DATA_PATH not in context.node_config:
        return call_next(message, context)
    config = messages.config_of(message) if message.has_content() else {}
    kind, stage = kind_of(message)
    reply = call_next(message, context)
    folder = Path(str(context.node_config[keys.DATA_PATH]))
    # Without data, a node can answer a greeting alone, which holds none.
    if folder.is_dir() and not reply.has_error():
        line = {
            "at": f"{datetime.now(UTC):%FT%TZ}",
            "id": message.metadata.run_id,
            "run": str(config.get(keys.RUN, "")),
            "folder": PurePath(str(context.run_config.get("out", ""))).name,
            "round": config.get(keys.ROUND),
            "type": kind,
            "stage": stage,
            "way": keys.UP,
            "dp": context.run_config.get("privacy.dp", "none"),
            "bytes": bytes_of(reply),
            "keys": messages.keys_in(reply),
            "allowed": _allowed_by(kind, stage, context.node_config),
        }
        line |= _spent(line, context, folder)
        try:
            with disk_of(folder):
                _append(folder / "runs" / FILE, line)
        except UserError as error:  # what is not on record does not leave
            return messages.error_reply(message, str(error))
        if kind == keys.TRAIN and stage in _WHOLE:
            LOG.info("round %s: sent %s bytes", line["round"], f"{line['bytes']:,}")
        # Under noise nobody else may know it.
        elif config.get(keys.FINAL) and (own := read_measured(folder, str(line["run"]))):
            LOG.info("the final model at this site: %s", own)
    return reply


def _allowed_by(kind: str, stage: str, node_config: Mapping[str, Any]) -> str:
    """Return the terms of the node that bound this kind of answer, with their values."""
    names = (*_TERMS.get(kind, ()), *(_MASKED if stage else ()))
    return ", ".join(f"{name} = {node_config[name]}" for name in names if name in node_config)


def _spent(line: Mapping[str, Any], context: Context, folder: Path) -> dict[str, Any]:
    """Return epsilon and delta of the run at this client after an update with its noise."""
    update = line["type"] == keys.TRAIN and line["stage"] in _WHOLE
    if not update or line["dp"] not in ("local", "distributed"):
        return {}
    # Imported here: no other message needs them.
    from dance_flwr.federation.privacy.accounting import PrivacyAccount, epsilon_of
    from dance_flwr.federation.secagg.signatures import ledger_folder

    cost = PrivacyAccount(ledger_folder(context.node_config) or folder).cost(line["run"])
    delta = float(context.run_config["privacy.delta"])
    return {"epsilon": round(epsilon_of(cost, delta), 4), "delta": delta}


def _append(path: Path, line: Mapping[str, Any]) -> None:
    text = json.dumps(line).encode() + b"\n"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    # One write of one line, as several processes of a node may append.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if (size := os.fstat(file).st_size) + len(text) > MAX_BYTES:
            raise UserError(
                f"{path}: expected a record of at most {MAX_BYTES:,} bytes, found {size:,}; move "
                "it elsewhere, and the node starts a new one"
            )
        os.write(file, text)
    finally:
        os.close(file)
