"""Secure aggregation at a client: answer the stages of SecAgg+ and mask the app's replies."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message

from dance_flwr.errors import UserError
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
from dance_flwr.federation.node_config import run_config_of, terms_of
from dance_flwr.federation.secagg import masks
from dance_flwr.federation.secagg.masks import bind_set, hide_numbers
from dance_flwr.federation.secagg.request import (
    SumOptions,
    check_quantisation,
    check_scale,
    check_stage,
    check_unrefused,
    options_of,
    public_keys,
    refusal,
    refusing_once,
    request_digest,
    survivors,
)
from dance_flwr.federation.secagg.signatures import SumSigner, forget_signed
from dance_flwr.federation.secagg.vectors import (
    MAX_BITS,
    MetricLayout,
    check_bounded,
    encode_integers,
    pack_bits,
)
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.methods.fixed_point import Integers, encode_update, to_steps

Handler = Callable[[Message, Context], Message]
# Whether the handler's reply will be masked; only the collect stage sets it, around the handler. A
# context variable, since the simulation answers for several clients in one process.
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
    masks.install()  # why (decision 8): Flower's own masks have 32 bits
    # Why (decision 8): a refusal ends the sum. Without its keys, the server cannot try the stage
    # again with other parameters.
    over = True
    try:
        reply = _answer(stage, message, context, handler)
        over = stage_of(context) == SecAggStage.UNMASK
    except UserError as error:
        return messages.error_reply(message, str(error))
    finally:
        if over:
            _forget(context)
    return reply


def _answer(stage: ConfigRecord, message: Message, context: Context, handler: Handler) -> Message:
    kind = stage.get(SecAggKey.STAGE)
    # Before Flower's mod, which counts ids and would accept a list with one client three times.
    check_stage(stage, _state(context), terms_of(context.node_config).min_clients)
    signer = SumSigner(message, context)
    if kind == SecAggStage.COLLECT_MASKED_VECTORS:
        return _collect(message, context, handler)
    if kind == SecAggStage.SHARE_KEYS:
        # Before any secret is shared, as shares are encrypted for these keys.
        signer.check_keys(public_keys(stage))
    elif kind == keys.SURVIVORS:
        # Flower's mod does not know this stage.
        return signer.sign_survivors(*survivors(stage))
    elif kind == SecAggStage.UNMASK:
        # The last check: with the shares of this answer the server removes the masks.
        signer.check_survivors(*survivors(stage))
        # Before the shares leave, so that a client that is killed here has bound its set.
        bind_set(context)
    # Without a request, as shares are exchanged before clients know it.
    with masks.derivation(context.run_id, masks.SHARES):
        reply = secaggplus_mod(message, context, handler)
    return signer.sign_keys(reply) if kind == SecAggStage.SETUP else reply


def _collect(message: Message, context: Context, handler: Handler) -> Message:
    """Run the handler and mask its reply."""
    if (options := options_of(message)) is None:
        raise refusal("the options of a sum", "none")
    # These checks never read the client's data, so their refusals say nothing of it.
    check_unrefused(context)
    check_quantisation(options, _state(context))
    check_scale(options, context)
    # Why (decision 8): masks of clients with different requests do not cancel.
    request = request_digest(message.content, run_config_of(context))
    with masks.derivation(context.run_id, masks.MASKS, request):
        reply = secaggplus_mod(message, context, _masked(handler, options))
    # Weights and counts are the same in every round, so the difference of two sums would be one
    # client's; masks of SecAgg+ alone do not prevent that (docs/privacy.md).
    hide_numbers(message, reply, context, request)
    # Flower's integers have eight bytes; their lowest b bits suffice, as sums wrap at 2^b.
    answer: Any = reply.content.config_records[SECAGG_CONFIGS]
    bits, vectors = options.form.bits, map(bytes_to_ndarray, answer[SecAggKey.MASKED_PARAMETERS])
    answer[SecAggKey.MASKED_PARAMETERS] = [
        pack_bits(vector, bits) if bits < MAX_BITS else ndarray_to_bytes(vector.astype(np.uint32))
        for vector in vectors
    ]
    return reply


def _forget(context: Context) -> None:
    """Delete the keys and shares of the sum, and what was signed in it."""
    # After the last stage Flower's mod accepts only a setup, which draws new keys.
    over = ConfigRecord({SECAGG_STATE_STAGE: SecAggStage.UNMASK})
    context.state.config_records[SECAGG_STATE] = over
    forget_signed(context)


def demands_masks(context: Context) -> bool:
    """Whether this client answers under masks only, by the run config or its own node config."""
    by_run = context.run_config.get("privacy.secure-aggregation")
    return bool(by_run) or terms_of(context.node_config).masks


def task_of(message: Message, context: Context) -> str:
    """Return the task of a message: "train", "evaluate", "weigh" or "query.exchange".

    Raises
    ------
    UserError : the reply would be unmasked, and this client answers under masks only, or the
        message asks for a masked sum
    """
    options = options_of(message)
    # A message may lie about masks; only the collect stage sets this variable.
    if not _COLLECTING.get() and (options is not None or demands_masks(context)):
        raise UserError(
            f"secure aggregation: expected a masked {message.metadata.message_type}, found an "
            "unmasked one; set privacy.secure-aggregation = true for this run"
        )
    return options.task if options is not None else message.metadata.message_type


def stage_of(context: Context) -> str:
    """Return the last SecAgg+ stage that this client answered."""
    return str(_state(context).get(SECAGG_STATE_STAGE, SecAggStage.UNMASK))


def _state(context: Context) -> ConfigRecord:
    """Return the state of Flower's mod after earlier stages; empty before the first."""
    return context.state.config_records.get(SECAGG_STATE) or ConfigRecord({})


def _masked(handler: Handler, options: SumOptions) -> Handler:
    """Return a handler that replies with a legacy `FitRes` of one vector, for Flower's mod."""

    def work(message: Message, context: Context) -> Message:
        # Reset in any case, as the process may answer for others.
        token = _COLLECTING.set(True)
        try:
            with refusing_once(context):
                reply = handler(message, context)
        finally:
            _COLLECTING.reset(token)
        if reply.has_error():  # of the disk, the device or the node's terms, not of the model
            raise UserError(str(reply.error.reason).strip())
        with refusing_once(context):
            numbers, layout = reply_numbers(message, reply, options)
        # Flower multiplies by 1 / largest weight = 1 / (2 offset), exactly, and adds the offset.
        vector = options.form.wrap(numbers).astype(np.float64) * (2 * options.form.offset)
        # Why (decision 8): Flower sends weight and metrics in the clear. They are in the vector, so
        # the answer holds a weight of 1 and no metrics.
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), 1, {})
        content = fitres_to_recorddict(result, keep_input=False)
        content.config_records[keys.SECURE_LAYOUT] = layout.record()
        return Message(content, reply_to=message)

    return work


def reply_numbers(
    message: Message, reply: Message, options: SumOptions
) -> tuple[Integers, MetricLayout]:
    """Return a reply as one vector of integers, and the layout of its metrics."""
    metrics = messages.metrics_of(reply.content)
    weight = metrics[keys.WEIGHT]
    if keys.LOSS in metrics:
        # A mean cannot be summed: the server divides the sum of weighted losses by that of weights.
        metrics[keys.LOSS] *= weight
    layout = MetricLayout.of(metrics)
    parts = [encode_integers(layout.pack(metrics), options.form)]
    if keys.ARRAYS in reply.content.array_records:
        state = state_of(reply.content.array_records[keys.ARRAYS])
        parts.insert(0, _update_steps(state, messages.model_of(message), weight, options))
    return np.concatenate(parts), layout


def _update_steps(
    state: Mapping[str, Any], start: Mapping[str, Any], weight: int, options: SumOptions
) -> Integers:
    """Return the update in steps of the sum."""
    # A reply may hold steps already, rounded or with discrete noise: integers instead of floats.
    if not any(state[name].is_floating_point() for name in start):
        return np.concatenate([state[name].numpy().ravel() for name in start])
    share = options.share(weight)
    update = encode_update(state, start, share, options.bound)
    # Why (decision 8): Flower would clip silently and change the mean.
    check_bounded(update, share, options.bound)
    return to_steps(update, options.form.levels)
