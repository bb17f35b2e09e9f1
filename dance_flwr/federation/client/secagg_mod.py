"""Secure aggregation at a client: answer the stages of SecAgg+ and mask the app's replies."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message

from dance_flwr.errors import UserError
from dance_flwr.federation import secagg_masks
from dance_flwr.federation.flower import (
    SECAGG_CONFIGS,
    SECAGG_STATE,
    SECAGG_STATE_STAGE,
    Code,
    FitRes,
    SecAggKey,
    SecAggStage,
    Status,
    bytes_to_ndarray,
    fitres_to_recorddict,
    ndarray_to_bytes,
    ndarrays_to_parameters,
    secaggplus_mod,
)
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.privacy.vectors import (
    MetricLayout,
    Vector,
    check_bounded,
    encode_integers,
    encode_update,
    to_grid,
)

Handler = Callable[[Message, Context], Message]


def secure_sum(message: Message, context: Context, handler: Handler) -> Message:
    """Run SecAgg+ around `handler` if the message is a stage of it: a mod of the ClientApp.

    Flower's own mod implements the protocol. This one checks the parameters of the server, packs
    the reply of `handler` with its weight and metrics into one vector, and deletes the keys of the
    round after the last stage.
    """
    stage = message.content.config_records.get(SECAGG_CONFIGS)
    if stage is None:
        return handler(message, context)
    secagg_masks.install()
    try:
        _check(stage)
        reply = secaggplus_mod(message, context, _masked(handler))
    except UserError as error:
        return messages.error_reply(message, str(error))
    _compact(reply)
    if stage_of(context) == SecAggStage.UNMASK:
        context.state.config_records[SECAGG_STATE] = ConfigRecord(
            {SECAGG_STATE_STAGE: SecAggStage.UNMASK}
        )
    return reply


def _compact(reply: Message) -> None:
    """Shrink masked integers from Flower's eight bytes to four; sums wrap at 2^32 as intended."""
    answer = reply.content.config_records[SECAGG_CONFIGS] if reply.has_content() else {}
    if SecAggKey.MASKED_PARAMETERS in answer:
        wide = [
            bytes_to_ndarray(part)
            for part in cast(list[bytes], answer[SecAggKey.MASKED_PARAMETERS])
        ]
        answer[SecAggKey.MASKED_PARAMETERS] = [
            ndarray_to_bytes(part.astype(np.uint32)) for part in wide
        ]


def demands_masks(context: Context) -> bool:
    """Whether this client answers under masks only, by the run config or its own node config."""
    return bool(
        context.run_config.get("privacy.secure-aggregation")
        or context.node_config.get(keys.DEMANDS_MASKS)
    )


def task_of(message: Message, context: Context) -> str:
    """Return the task of a message: "train", "evaluate", "weigh" or "query.exchange".

    Raises
    ------
    UserError : the message is unmasked, and this client answers under masks only
    """
    options = message.content.config_records.get(keys.SECURE_SUM)
    if options is None and demands_masks(context):
        raise UserError(
            f"secure aggregation: expected a masked {message.metadata.message_type}, found an "
            "unmasked one; set privacy.secure-aggregation = true for this run"
        )
    return str(options[keys.TASK]) if options is not None else message.metadata.message_type


def stage_of(context: Context) -> str:
    """Return the last SecAgg+ stage that this client answered."""
    record = context.state.config_records.get(SECAGG_STATE) or ConfigRecord({})
    return str(record.get(SECAGG_STATE_STAGE, SecAggStage.UNMASK))


def _check(stage: ConfigRecord) -> None:
    """Refuse requests that an honest server does not send.

    Raises
    ------
    UserError : the threshold would let half of the clients unmask another one, or the server
        requests both secrets of a client
    """
    kind = stage.get(SecAggKey.STAGE)
    if kind == SecAggStage.SETUP:
        shares, threshold = int(stage[SecAggKey.SHARE_NUMBER]), int(stage[SecAggKey.THRESHOLD])  # type: ignore[arg-type]
        if 2 * threshold <= shares:
            raise UserError(
                f"secure aggregation: expected more than half of {shares} shares as threshold, "
                f"found {threshold}; this client does not take part"
            )
    elif kind == SecAggStage.UNMASK:
        lists = (SecAggKey.ACTIVE_NODE_ID_LIST, SecAggKey.DEAD_NODE_ID_LIST)
        alive, dead = (set(cast(list[int], stage[key])) for key in lists)
        if alive & dead:
            raise UserError(
                "secure aggregation: expected a request for one secret of each client, found one "
                "for both of one; this client does not take part"
            )


def _masked(handler: Handler) -> Handler:
    """Return a handler that replies with a legacy `FitRes` of one vector, for Flower's mod."""

    def work(message: Message, context: Context) -> Message:
        reply = handler(message, context)
        if reply.has_error():
            raise UserError(str(reply.error.reason).strip())
        vector, layout = reply_vector(message, reply)
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), 1, {})
        content = fitres_to_recorddict(result, keep_input=False)
        content.config_records[keys.SECURE_LAYOUT] = layout
        return Message(content, reply_to=message)

    return work


def reply_vector(message: Message, reply: Message) -> tuple[Vector, ConfigRecord]:
    """Return a reply as one vector, and the names of its metrics.

    Raises
    ------
    UserError : the update exceeds the bound of this run
    """
    options: dict[str, Any] = dict(message.content.config_records[keys.SECURE_SUM])
    metrics = messages.metrics_of(reply.content)
    weight = metrics[keys.WEIGHT]
    if keys.LOSS in metrics:
        metrics[keys.LOSS] *= weight
    numbers = MetricLayout.of(metrics)
    parts = [encode_integers(numbers.pack(metrics))]
    if keys.ARRAYS in reply.content.array_records:
        state = state_of(reply.content.array_records[keys.ARRAYS])
        share = weight / max(options[keys.TOTAL_WEIGHT], 1)
        if share > 1:
            raise UserError(
                f"secure aggregation: expected at least this client's {weight} nodes in the "
                f"federation's total, found {options[keys.TOTAL_WEIGHT]}; it was not connected "
                "when "
                "the run started: start the run again"
            )
        update = encode_update(state, messages.model_of(message), share, options[keys.UPDATE_RANGE])
        check_bounded(update, share, options[keys.UPDATE_RANGE])
        parts.insert(0, update)
    layout: dict[str, Any] = {
        keys.NAMES: list(numbers.names),
        keys.LENGTHS: list(numbers.lengths),
        keys.MICRO: list(numbers.micro),
    }
    return to_grid(np.concatenate(parts), options[keys.LEVELS]), ConfigRecord(layout)
