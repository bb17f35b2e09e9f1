"""Secure aggregation at a client: answers SecAgg+ stages, and masks whatever the app would have replied."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, bytes_to_ndarray, ndarray_to_bytes, ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, RECORD_KEY_STATE, Key, Stage
from flwr.compat.common.recorddict_compat import fitres_to_recorddict

from dance_flwr import messages
from dance_flwr.errors import UserError
from dance_flwr.privacy import masks
from dance_flwr.privacy.vectors import Numbers, Vector, check_bounded, encode_integers, encode_update, to_grid

Handler = Callable[[Message, Context], Message]
SUM, LAYOUT = "secure-sum", "layout"


def secure_sum(message: Message, context: Context, handler: Handler) -> Message:
    """Flower mod: SecAgg+ around `handler` where the server runs its stages, refusal where it must but does not.

    Flower's own mod does the protocol. Around it: the server's parameters are checked, the reply of `handler` becomes
    one vector with its weight and metrics inside, and the round's keys are forgotten after the last stage.
    """
    stage = message.content.config_records.get(RECORD_KEY_CONFIGS)
    if stage is None:
        return handler(message, context)
    masks.install()
    try:
        _check(stage)
        reply = secaggplus_mod(message, context, _masked(handler))
    except UserError as error:
        return messages.error_reply(message, str(error))
    _compact(reply)
    if stage_of(context) == Stage.UNMASK:
        context.state.config_records[RECORD_KEY_STATE] = ConfigRecord({"current_stage": Stage.UNMASK})
    return reply


def _compact(reply: Message) -> None:
    """Send masked integers in four bytes instead of Flower's eight; their sums wrap at 2^32, as they should."""
    answer = reply.content.config_records[RECORD_KEY_CONFIGS] if reply.has_content() else {}
    if Key.MASKED_PARAMETERS in answer:
        wide = [bytes_to_ndarray(part) for part in cast(list[bytes], answer[Key.MASKED_PARAMETERS])]
        answer[Key.MASKED_PARAMETERS] = [ndarray_to_bytes(part.astype(np.uint32)) for part in wide]


def demands_masks(context: Context) -> bool:
    """Whether this client answers under masks only: the run says so, or its own operator in the node config."""
    return bool(context.run_config.get("privacy.secure-aggregation") or context.node_config.get("secure-aggregation"))


def task_of(message: Message, context: Context) -> str:
    """Return what the server asks: "train", "evaluate", "weigh" or "query.exchange".

    Raises
    ------
    UserError : it asks in the open what this client only says under a mask
    """
    options = message.content.config_records.get(SUM)
    if options is None and demands_masks(context):
        raise UserError(
            f"secure aggregation: expected a masked {message.metadata.message_type}, found one in the open; set "
            "privacy.secure-aggregation = true for this run"
        )
    return str(options["task"]) if options is not None else message.metadata.message_type


def stage_of(context: Context) -> str:
    """Return the SecAgg+ stage that this client answered last."""
    record = context.state.config_records.get(RECORD_KEY_STATE) or ConfigRecord({})
    return str(record.get("current_stage", Stage.UNMASK))


def _check(stage: ConfigRecord) -> None:
    """Refuse what an honest server does not ask.

    Raises
    ------
    UserError : a threshold at which half of the clients could unmask another; both secrets of one client
    """
    kind = stage.get(Key.STAGE)
    if kind == Stage.SETUP:
        shares, threshold = int(stage[Key.SHARE_NUMBER]), int(stage[Key.THRESHOLD])  # type: ignore[arg-type]
        if 2 * threshold <= shares:
            raise UserError(
                f"secure aggregation: expected more than half of {shares} shares as threshold, found {threshold}"
            )
    elif kind == Stage.UNMASK:
        alive, dead = (set(stage[key]) for key in (Key.ACTIVE_NODE_ID_LIST, Key.DEAD_NODE_ID_LIST))  # type: ignore[arg-type]
        if alive & dead:
            raise UserError("secure aggregation: expected one secret of each client, found a request for both of one")


def _masked(handler: Handler) -> Handler:
    """Return a handler whose reply is a legacy `FitRes` of one vector, as Flower's mod expects it."""

    def work(message: Message, context: Context) -> Message:
        reply = handler(message, context)
        if reply.has_error():
            raise UserError(str(reply.error.reason).strip())
        vector, layout = reply_vector(message, reply)
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), 1, {})
        content = fitres_to_recorddict(result, keep_input=False)
        content.config_records[LAYOUT] = layout
        return Message(content, reply_to=message)

    return work


def reply_vector(message: Message, reply: Message) -> tuple[Vector, ConfigRecord]:
    """Return a reply as one vector, and the names of its metrics.

    Raises
    ------
    UserError : the update lies beyond the bound of this run
    """
    options: dict[str, Any] = dict(message.content.config_records[SUM])
    metrics = messages.metrics_of(reply.content)
    weight = metrics[messages.WEIGHT]
    if "loss" in metrics:
        metrics["loss"] *= weight
    numbers = Numbers.of(metrics)
    parts = [encode_integers(numbers.pack(metrics))]
    if messages.ARRAYS in reply.content.array_records:
        state = messages.state_of(reply.content.array_records[messages.ARRAYS])
        share = weight / max(options["total-weight"], 1)
        if share > 1:
            raise UserError(
                f"secure aggregation: expected at least this client's {weight} nodes in the federation's total, found "
                f"{options['total-weight']}; was it away when the run began? Start the run again"
            )
        update = encode_update(state, messages.model_of(message), share, options["update-range"])
        check_bounded(update, share, options["update-range"])
        parts.insert(0, update)
    layout: dict[str, Any] = {
        "names": list(numbers.names),
        "lengths": list(numbers.lengths),
        "micro": list(numbers.micro),
    }
    return to_grid(np.concatenate(parts), options["levels"]), ConfigRecord(layout)
