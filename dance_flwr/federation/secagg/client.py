"""Secure aggregation at a client: answer the stages of SecAgg+, mask replies, check requests.

Flower's client counts the ids in a request; a list that names one client three times passes, and
the shares that come back unmask that client alone. `check_stage` compares sets instead, against the
active adversary of Bonawitz et al. 2017, "Practical Secure Aggregation".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message

from dance_flwr.errors import UserError
from dance_flwr.federation.flower import (
    SECAGG_CONFIGS,
    SECAGG_STATE,
    STATE_HELD,
    STATE_NODE,
    STATE_SHARES,
    STATE_STAGE,
    STATE_THRESHOLD,
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
from dance_flwr.federation.secagg.signatures import SumSigner, forget_signed
from dance_flwr.federation.secagg.sums import (
    MAX_BITS,
    MIN_CLIENTS,
    MetricLayout,
    SumOptions,
    check_bounded,
    encode_integers,
    options_of,
    pack_bits,
    refusal,
    request_digest,
)
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.methods.fixed_point import Integers, encode_update, to_steps

Handler = Callable[[Message, Context], Message]
# Whether the handler's reply will be masked; only the collect stage sets it, around the handler. A
# context variable, since the simulation answers for several clients in one process.
_COLLECTING: ContextVar[bool] = ContextVar("collecting", default=False)
# Flower's parameters of quantisation, in the order of `SumFormat.quantisation`.
_QUANTISATION = ("max_weight", "clipping_range", "target_range", "mod_range")
_SCALE = "dance-flwr-scale"  # of the run's first sum
_REFUSED = "dance-flwr-refused"  # whether an answer had to be refused in this run


def secure_sum(message: Message, context: Context, handler: Handler) -> Message:
    """Run SecAgg+ around `handler` if the message is a stage of it: a mod of the ClientApp.

    Flower's own mod implements the protocol. This one checks the requests of the server, signs and
    checks signatures where the node has keys, packs the reply of `handler` with its weight and
    metrics into one vector, and deletes the keys of the sum after its last stage. A refusal ends
    the sum at this client: a server cannot try again with other parameters.
    """
    stage = messages.record_in(message.content, SECAGG_CONFIGS, ConfigRecord)
    if stage is None or message.metadata.message_type != keys.TRAIN:  # as Flower's mod
        return handler(message, context)
    masks.install()  # why (decision 8): Flower's own masks have 32 bits
    # Why (decision 8): a refusal ends the sum. Without its keys, the server cannot try the stage
    # again with other parameters.
    over = True
    try:
        reply = _answer(stage, message, context, handler)
        over = _state(context).get(STATE_STAGE, SecAggStage.UNMASK) == SecAggStage.UNMASK
    except UserError as error:
        return messages.error_reply(message, str(error))
    finally:
        if over:
            # Keys, shares and what was signed. Flower's mod then accepts only a setup, which draws
            # new keys.
            ended = ConfigRecord({STATE_STAGE: SecAggStage.UNMASK})
            context.state.config_records[SECAGG_STATE] = ended
            forget_signed(context)
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
        signer.check_keys(_public_keys(stage))
    elif kind == keys.SURVIVORS:
        # Flower's mod does not know this stage.
        return signer.sign_survivors(*_survivors(stage))
    elif kind == SecAggStage.UNMASK:
        # The last check: with the shares of this answer the server removes the masks.
        signer.check_survivors(*_survivors(stage))
        # Before the shares leave, so that a client that is killed here has bound its set.
        bind_set(context)
    # Without a request, as shares are exchanged before clients know it.
    with masks.derivation(context.run_id, masks.SHARES):
        reply = secaggplus_mod(message, context, handler)
    return signer.sign_keys(reply) if kind == SecAggStage.SETUP else reply


def _collect(message: Message, context: Context, handler: Handler) -> Message:
    if (options := options_of(message)) is None:
        raise refusal("the options of a sum", "none")
    # These checks never read the client's data, so their refusals say nothing of it.
    if _REFUSED in context.state:
        raise refusal("a run in which every answer could be summed", "one that could not")
    # No mask or signature depends on the parameters of quantisation: if the vectors of all clients
    # but one are multiplied by 0, the sum of all is the vector of that one.
    state = _state(context)
    if tuple(state.get(name) for name in _QUANTISATION) != options.form.quantisation:
        raise refusal("the integers of the sum in its setup", "others")
    _check_scale(options, context)
    # Why (decision 8): masks of clients with different requests do not cancel.
    request = request_digest(message.content, run_config_of(context))
    with masks.derivation(context.run_id, masks.MASKS, request):
        reply: Message = secaggplus_mod(message, context, _masked(handler, options))
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


def _check_scale(options: SumOptions, context: Context) -> None:
    """Refuse another total weight, or another range of updates, than in the run's first sum.

    A refusal tells the server how the client's weight compares with the total, and its largest
    change with the range: this allows one guess per run instead of one per round.
    """
    # Under noise weights are 1 and updates are within the range: there is nothing to guess.
    private = context.run_config.get("privacy.dp", "none") != "none"
    if options.task != keys.TRAIN or private:
        return
    scale = [float(options.total_weight), float(options.bound)]
    first = context.state.config_records.setdefault(_SCALE, ConfigRecord({_SCALE: scale}))
    if first[_SCALE] != scale:
        raise refusal(f"total weight and range as before, {first[_SCALE]!r}", f"{scale}")


@contextmanager
def refusing_once(context: Context) -> Iterator[None]:
    """End the client's part in this run after an answer that cannot be made or summed.

    Such a failure may depend on the data and on the model that the server chose: with a weight of
    minus infinity, on whether a class is here. In every round it would be one bit per round.
    Errors of files and memory say nothing of the data.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise  # once there is space, the client takes part again
    except Exception:
        context.state.config_records[_REFUSED] = ConfigRecord({_REFUSED: True})
        raise


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


def _state(context: Context) -> ConfigRecord:
    # Of Flower's mod after earlier stages; empty before the first.
    return messages.record_in(context.state, SECAGG_STATE, ConfigRecord) or ConfigRecord({})


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
            numbers, layout = _reply_numbers(message, reply, options)
        # Flower multiplies by 1 / largest weight = 1 / (2 offset), exactly, and adds the offset.
        vector = options.form.wrap(numbers).astype(np.float64) * (2 * options.form.offset)
        # Why (decision 8): Flower sends weight and metrics in the clear. They are in the vector, so
        # the answer holds a weight of 1 and no metrics.
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), 1, {})
        content = fitres_to_recorddict(result, keep_input=False)
        content.config_records[keys.SECURE_LAYOUT] = layout.record()
        return Message(content, reply_to=message)

    return work


def _reply_numbers(
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
    # A reply may hold steps already, rounded or with discrete noise: integers instead of floats.
    if not any(state[name].is_floating_point() for name in start):
        return np.concatenate([state[name].numpy().ravel() for name in start])
    share = options.share(weight)
    update = encode_update(state, start, share, options.bound)
    # Why (decision 8): Flower would clip silently and change the mean.
    check_bounded(update, share, options.bound)
    return to_steps(update, options.form.levels)


def check_stage(stage: Any, state: Any, min_clients: int = 0) -> None:
    """Refuse requests that an honest server does not send.

    Parameters
    ----------
    stage : record of the request
    state : record of Flower's mod after the earlier stages of this round
    min_clients : fewest clients of a sum that stay, by the node's own terms

    Raises
    ------
    UserError : the request would let the server read fewer clients' sum than this client agreed to
    """
    kind = stage.get(SecAggKey.STAGE)
    if kind == SecAggStage.SETUP:
        shares, threshold = stage.get(SecAggKey.SHARE_NUMBER, 0), stage.get(SecAggKey.THRESHOLD, 0)
        if shares < MIN_CLIENTS:
            raise refusal(f"a sum of at least {MIN_CLIENTS} clients", f"one of {shares}")
        # Why (decision 8): with half of the shares as threshold, a server could let one half of the
        # clients remove the masks of some and the other half those of the rest.
        if not shares < 2 * threshold <= 2 * shares:
            raise refusal(f"more than half of {shares} shares as threshold", f"{threshold}")
        if threshold < (fewest := max(min_clients, MIN_CLIENTS)):
            raise refusal(
                f"at least {fewest} clients that stay ({keys.MIN_CLIENTS}) as threshold",
                f"{threshold}",
            )
    elif kind == SecAggStage.SHARE_KEYS:
        _check_count("keys", len(_public_keys(stage)), state, MIN_CLIENTS)
    elif kind == SecAggStage.COLLECT_MASKED_VECTORS:
        # The list names the other clients; this one is in the sum too.
        sources = [*stage.get(SecAggKey.SOURCE_LIST, []), state.get(STATE_NODE, 0)]
        _check_unique(sources)
        _check_count("clients that sent shares", len(sources), state)
    elif kind in (keys.SURVIVORS, SecAggStage.UNMASK):
        # The order is checked here, as Flower's mod does not know the stage of survivors: nothing
        # is signed or unmasked before the masked vector has left.
        if state.get(STATE_STAGE) != SecAggStage.COLLECT_MASKED_VECTORS:
            raise refusal("the stages of a sum in their order", f"{kind!r}")
        alive, dead = _survivors(stage)
        # Both secrets of one client remove every mask of its vector.
        if set(alive) & set(dead):
            raise refusal("a request for one secret of each client", "one for both of one")
        _check_unique([*alive, *dead])
        _check_count("living clients", len(alive), state)
        # As sets: other nodes of the same number would pass a count.
        held = set(state.get(STATE_HELD, []))
        if {*alive, *dead} != held:
            raise refusal(f"a request for the {len(held)} clients of this sum", "one for others")
    else:
        raise refusal("a stage of SecAgg+", f"{kind!r}")


def _public_keys(stage: Any) -> dict[int, Any]:
    """Return node -> its two public keys in a request to share keys."""
    names = [name for name in stage if name != SecAggKey.STAGE]
    _check_unique([int(name) for name in names])
    return {int(name): stage[name] for name in names}


def _survivors(stage: Any) -> tuple[list[int], list[int]]:
    """Return the living and the dead clients that a request names."""
    return stage.get(SecAggKey.ACTIVE_NODE_ID_LIST, []), stage.get(SecAggKey.DEAD_NODE_ID_LIST, [])


def _check_count(what: str, count: int, state: Any, minimum: int = 0) -> None:
    minimum, maximum = max(minimum, state.get(STATE_THRESHOLD, 0)), state.get(STATE_SHARES, 0)
    if not minimum <= count <= maximum:
        raise refusal(f"{minimum} to {maximum} {what}", f"{count}")


def _check_unique(ids: Sequence[int]) -> None:
    if len(set(ids)) < len(ids):
        raise refusal("every client once", "one more often")
