"""Secure aggregation at a client: answer the stages of SecAgg+ and mask the app's replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message

from dance_flwr.errors import UserError
from dance_flwr.federation import secagg_masks
from dance_flwr.federation.client.run_config import run_config_of
from dance_flwr.federation.client.secagg_checks import (
    check_quantisation,
    check_scale,
    check_stage,
    check_unrefused,
    checked_format,
    public_keys,
    refusing_once,
    survivors,
)
from dance_flwr.federation.client.signing import SumSigner, forget_signed
from dance_flwr.federation.client.sum_numbers import hide_numbers
from dance_flwr.federation.client.terms import terms_of
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
from dance_flwr.federation.secagg_request import request_digest
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.privacy.bits import pack_bits
from dance_flwr.privacy.vectors import (
    WIDEST,
    Integers,
    MetricLayout,
    check_bounded,
    encode_integers,
    encode_update,
    to_steps,
)

if TYPE_CHECKING:
    from torch import Tensor

Handler = Callable[[Message, Context], Message]
# Whether what the handler returns will be masked: set around it by the collect stage alone.
_COLLECTING: ContextVar[bool] = ContextVar("collecting", default=False)


def secure_sum(message: Message, context: Context, handler: Handler) -> Message:
    """Run SecAgg+ around `handler` if the message is a stage of it: a mod of the ClientApp.

    Flower's own mod implements the protocol. This one checks the requests of the server, signs and
    checks signatures where the node has keys, packs the reply of `handler` with its weight and
    metrics into one vector, and deletes the keys of the sum after its last stage. A refusal ends
    the sum at this client: a server cannot try again with other parameters.
    """
    stage = message.content.config_records.get(SECAGG_CONFIGS)
    if stage is None or message.metadata.message_type != keys.TRAIN:  # as Flower's mod
        return handler(message, context)
    secagg_masks.install()
    over = True
    try:
        reply = _answer(stage, message, context, handler)
        over = stage_of(context) == SecAggStage.UNMASK
    except UserError as error:
        return messages.error_reply(message, str(error))
    finally:
        if over:
            _forget(context)
    _compact(message, reply)
    return reply


def _answer(stage: ConfigRecord, message: Message, context: Context, handler: Handler) -> Message:
    """Answer one stage.

    Raises
    ------
    UserError : the server asks for what this client refuses
    """
    kind = stage.get(SecAggKey.STAGE)
    check_stage(stage, _state(context), terms_of(context.node_config).min_clients)
    signer = SumSigner(message, context)
    if kind == SecAggStage.SHARE_KEYS:
        signer.check_keys(public_keys(stage))
    elif kind == keys.SURVIVORS:
        return signer.sign_survivors(*survivors(stage))
    elif kind == SecAggStage.UNMASK:
        signer.check_survivors(*survivors(stage))
    collects, asked = kind == SecAggStage.COLLECT_MASKED_VECTORS, ""
    if collects:
        check_unrefused(context)
        check_quantisation(sum_options(message), _state(context))
        check_scale(sum_options(message), context)
        asked = request_digest(message.content, run_config_of(context))
    purpose = secagg_masks.MASKS if collects else secagg_masks.SHARES
    with secagg_masks.derivation(context.run_id, purpose, asked):
        reply = secaggplus_mod(message, context, _masked(handler))
    if collects:
        hide_numbers(message, reply, context, asked)
    return signer.sign_keys(reply) if kind == SecAggStage.SETUP else reply


def _forget(context: Context) -> None:
    """Delete the keys and shares of the sum, and what was signed in it."""
    over = ConfigRecord({SECAGG_STATE_STAGE: SecAggStage.UNMASK})
    context.state.config_records[SECAGG_STATE] = over
    forget_signed(context)


def _compact(message: Message, reply: Message) -> None:
    """Shrink masked integers from Flower's eight bytes to b bits; sums wrap at 2^b as intended."""
    answer = reply.content.config_records.get(SECAGG_CONFIGS)
    if answer and SecAggKey.MASKED_PARAMETERS in answer:
        wide = [
            bytes_to_ndarray(part)
            for part in cast(list[bytes], answer[SecAggKey.MASKED_PARAMETERS])
        ]
        bits = int(sum_options(message)[keys.BITS])
        answer[SecAggKey.MASKED_PARAMETERS] = [
            pack_bits(part, bits) if bits < WIDEST else ndarray_to_bytes(part.astype(np.uint32))
            for part in wide
        ]


def demands_masks(context: Context) -> bool:
    """Whether this client answers under masks only, by the run config or its own node config.

    Raises
    ------
    UserError : a value in the node config is not what its key expects
    """
    asked = context.run_config.get("privacy.secure-aggregation")
    return bool(asked) or terms_of(context.node_config).masks


def task_of(message: Message, context: Context) -> str:
    """Return the task of a message: "train", "evaluate", "weigh" or "query.exchange".

    Whether the reply will be masked is what the protocol says, not the message.

    Raises
    ------
    UserError : the reply would be unmasked, and this client answers under masks only, or the
        message asks for a masked sum
    """
    options = message.content.config_records.get(keys.SECURE_SUM)
    if not _COLLECTING.get() and (options is not None or demands_masks(context)):
        raise UserError(
            f"secure aggregation: expected a masked {message.metadata.message_type}, found an "
            "unmasked one; set privacy.secure-aggregation = true for this run"
        )
    return str(options[keys.TASK]) if options is not None else message.metadata.message_type


def stage_of(context: Context) -> str:
    """Return the last SecAgg+ stage that this client answered."""
    return str(_state(context).get(SECAGG_STATE_STAGE, SecAggStage.UNMASK))


def _state(context: Context) -> ConfigRecord:
    """Return what Flower's mod stored in earlier stages; empty before the first."""
    return context.state.config_records.get(SECAGG_STATE) or ConfigRecord({})


def _masked(handler: Handler) -> Handler:
    """Return a handler that replies with a legacy `FitRes` of one vector, for Flower's mod."""

    def work(message: Message, context: Context) -> Message:
        token = _COLLECTING.set(True)
        try:
            with refusing_once(context):
                reply = handler(message, context)
        finally:
            _COLLECTING.reset(token)
        if reply.has_error():  # of the disk, the device or the node's terms, not of the model
            raise UserError(str(reply.error.reason).strip())
        with refusing_once(context):
            numbers, layout = reply_numbers(message, reply)
        form = checked_format(sum_options(message))
        # With twice the offset as largest weight, Flower multiplies by 1 / (2 offset), exactly, and
        # stores what is left of the number as it is, plus the offset.
        vector = form.wrap(numbers).astype(np.float64) * (2 * form.offset)
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), 1, {})
        content = fitres_to_recorddict(result, keep_input=False)
        content.config_records[keys.SECURE_LAYOUT] = layout
        return Message(content, reply_to=message)

    return work


def sum_options(message: Message) -> dict[str, Any]:
    """Return the options of the masked sum that a message asks for; empty without masks."""
    return dict(message.content.config_records.get(keys.SECURE_SUM, {}))


def share_of(weight: int, options: Mapping[str, Any]) -> float:
    """Return s = w / W.

    Raises
    ------
    UserError : the client weighs more than all together
    """
    share = weight / max(options[keys.TOTAL_WEIGHT], 1)
    if share > 1:
        raise UserError(
            f"secure aggregation: expected at least this client's {weight} nodes in the "
            f"federation's total, found {options[keys.TOTAL_WEIGHT]}; it was not connected when "
            "the run started: start the run again"
        )
    return float(share)


def reply_numbers(message: Message, reply: Message) -> tuple[Integers, ConfigRecord]:
    """Return a reply as one vector of integers, and the names of its metrics.

    Raises
    ------
    UserError : the update exceeds the bound of this run
    """
    options = sum_options(message)
    form, metrics = checked_format(options), messages.metrics_of(reply.content)
    weight = metrics[keys.WEIGHT]
    if keys.LOSS in metrics:
        metrics[keys.LOSS] *= weight
    numbers = MetricLayout.of(metrics)
    parts = [encode_integers(numbers.pack(metrics), form)]
    if keys.ARRAYS in reply.content.array_records:
        state = state_of(reply.content.array_records[keys.ARRAYS])
        parts.insert(0, _update(state, message, share_of(weight, options), options))
    layout: dict[str, Any] = {
        keys.NAMES: list(numbers.names),
        keys.LENGTHS: list(numbers.lengths),
        keys.MICRO: list(numbers.micro),
    }
    return np.concatenate(parts), ConfigRecord(layout)


def _update(
    state: Mapping[str, Tensor], message: Message, share: float, options: Mapping[str, Any]
) -> Integers:
    """Return the update in steps of the sum; a reply may hold them in the place of a model."""
    start = messages.model_of(message)
    if not any(state[name].is_floating_point() for name in start):
        return np.concatenate([state[name].numpy().ravel() for name in start])
    update = encode_update(state, start, share, options[keys.UPDATE_RANGE])
    check_bounded(update, share, options[keys.UPDATE_RANGE])
    return to_steps(update, options[keys.LEVELS])
