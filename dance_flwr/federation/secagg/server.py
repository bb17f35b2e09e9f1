"""Secure aggregation at the server: Flower's SecAgg+ workflow on the app's own messages.

`masked_sum` runs the stages; `masked_fault` and `unlike_faults` check the replies to each.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from dance_flwr.config.sections import FLOAT16, FLOAT32, INT8
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import QuorumError
from dance_flwr.federation.declarations import STAGE_ANSWERS
from dance_flwr.federation.flower import (
    MAIN_CONFIGS_RECORD,
    MAIN_PARAMS_RECORD,
    SECAGG_CONFIGS,
    FitIns,
    Parameters,
    SecAggKey,
    SecAggPlusWorkflow,
    SecAggStage,
    WorkflowKey,
    WorkflowState,
    ndarray_to_bytes,
    parameters_to_ndarrays,
)
from dance_flwr.federation.secagg import masks
from dance_flwr.federation.secagg.signatures import Claim, read_claim, with_claims
from dance_flwr.federation.secagg.sums import (
    CHUNK,
    DIGIT_BITS,
    MAX_BITS,
    MetricLayout,
    SumFormat,
    SumOptions,
    clients_to_stay,
    options_of,
    request_digest,
)
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import with_content
from dance_flwr.federation.wire.rules import content_fault, short_repr
from dance_flwr.federation.wire.serialization import unpack
from dance_flwr.federation.wire.tensors import arrays_of, header_of
from dance_flwr.methods.fixed_point import Integers, levels_for

# Why (decision 14): steps of a client of mean weight on each side of zero, the largest integer with
# a negative of 16 or 8 bits.
_STEPS = {FLOAT16: 2**15 - 1, INT8: 127}
Exchange = Callable[[list[Message]], list[Message]]
_ALIKE = (keys.NAMES, keys.LENGTHS, keys.MICRO)  # of the layouts of all clients of a sum
STAGES = ("setup", "share keys", "collect masked vectors", "sign the survivors", "unmask")
_BEFORE_MASKS = STAGES[:2]


@dataclass(frozen=True)
class MaskedSum:
    """The result of a masked sum.

    Attributes
    ----------
    clients : their number; numbers : the sum of their vectors
    layout : of the metrics at the end of the vectors
    omitted : whether a client left its metrics out, so that their sum is noise
    """

    clients: int
    numbers: Integers
    layout: MetricLayout
    omitted: bool

    def metrics(self, start: int, form: SumFormat) -> dict[str, Any]:
        """Return the sum of the metrics, whose digits begin at `start`."""
        return self.layout.unpack(decode_integers(self.numbers[start:], form))


def masked_sum(
    requests: Sequence[Message],
    options: SumOptions,
    config: RunConfig,
    run: int,
    exchange: Exchange,
) -> MaskedSum:
    """Sum the answers to these requests under masks.

    Parameters
    ----------
    requests : the app's message to each client
    config : of the run
    run : Flower's number of the run
    exchange : sends the messages of one stage and returns all replies, errors included

    Raises
    ------
    QuorumError : too few clients are left to remove the masks
    """
    contents = {
        message.metadata.dst_node_id: RecordDict(
            {**message.content, keys.SECURE_SUM: options.record()}
        )
        for message in requests
    }
    digest = request_digest(next(iter(contents.values())), config)
    workflow = _Workflow(contents, clients_to_stay(len(requests), config), options.form, exchange)
    # The server derives masks of clients that dropped out, in the same context.
    with masks.derivation(run, masks.MASKS, digest):
        workflow.run()
    # All layouts name the same metrics: `unlike_faults` has refused any other.
    layout = MetricLayout.of_record(workflow.layouts[0])
    omitted = any(bool(record[keys.OMITTED]) for record in workflow.layouts)
    return MaskedSum(workflow.clients, workflow.total, layout, omitted)


def sum_format(clients: int, precision: str) -> SumFormat:
    """Return levels and bits of a sum over M clients.

    float32: `levels_for` levels in 32 bits. Otherwise q = 2 M n with n = 127 (int8) or 32767
    (float16): a client of mean weight, s = 1 / M, has n steps up to R. Bits are the fewest with
    2^(b-1) > q / 2 + M, and digits those whose sum over M clients fits: 11 bits for int8 and 19 for
    float16 with 5 clients.
    """
    if precision == FLOAT32:
        return SumFormat(levels_for(clients), MAX_BITS, DIGIT_BITS)
    # Fewer levels for very many clients, so that Flower can store the sum.
    half = min(_STEPS[precision] * clients, 2 ** (MAX_BITS - 3))
    bits = (half + clients).bit_length() + 1
    return SumFormat(2 * half, bits, min(DIGIT_BITS, (2 ** (bits - 1) // clients).bit_length() - 1))


def decode_integers(total: Integers, form: SumFormat) -> list[int]:
    """Return the exact sum of each value over clients."""
    return [
        sum(int(digit) << (form.digit_bits * place) for place, digit in enumerate(row))
        for row in total.reshape(-1, form.digits)
    ]


class _Workflow(SecAggPlusWorkflow):  # type: ignore[misc]
    """Flower's SecAgg+ workflow over the app's own messages, with signatures and sums modulo 2^b.

    It is also what that workflow asks for: the legacy strategy, which names the nodes and takes
    the result, and the Grid, which forwards signatures, keeps the layouts of the vectors and
    unpacks their integers. Clients that signed their public keys sign in one more stage who is in
    the sum. Flower's quantisation keeps integers: it adds an offset and sums a factor of 1.

    Attributes
    ----------
    clients, total : number of the clients in the sum, and the sum of their integers
    layouts : of the metrics, by client
    """

    def __init__(
        self,
        contents: Mapping[int, RecordDict],
        threshold: int,
        form: SumFormat,
        exchange: Exchange,
    ) -> None:
        weight, clip, target, modulus = form.quantisation
        super().__init__(
            # Why (decision 8): fewer neighbours would only save seconds.
            num_shares=1.0,
            reconstruction_threshold=threshold,
            max_weight=weight,
            clipping_range=clip,
            quantization_range=1,
            modulus_range=modulus,
        )
        # Flower's constructor requires fewer levels than the modulus, so that no sum wraps.
        self.quantization_range = target
        self._contents, self._form, self._exchange = contents, form, exchange
        self._claims: dict[int, Claim] = {}
        self.layouts: list[ConfigRecord] = []
        self.clients, self.total = 0, np.zeros(0, np.int64)

    def run(self) -> None:
        """Run the stages."""
        # Flower needs a round and the parameters of a model; here every sum is a round of its own,
        # and the app's messages hold the parameters.
        records = {MAIN_CONFIGS_RECORD: ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})}
        content = RecordDict({**records, MAIN_PARAMS_RECORD: arrays_of({})})
        manager = SimpleNamespace(num_available=lambda: len(self._contents))
        context = SimpleNamespace(state=content, strategy=self, client_manager=manager)
        state = WorkflowState()
        steps = (
            self.setup_stage,
            self.share_keys_stage,
            self.collect_masked_vectors_stage,
            self.survivors_stage,
            self.unmask_stage,
        )
        for name, step in zip(STAGES, steps, strict=True):
            try:
                enough = step(self, context, state)
                # Why (decision 8): for a client that left before there were masks, Flower would use
                # shares that nobody holds, and lose the round.
                if name in _BEFORE_MASKS:
                    enough = enough and self._drop_absent(state)
            except ValueError as error:  # shares that do not fit together
                raise QuorumError(f"secure aggregation, stage {name!r}: {error}") from None
            # Why (decision 8): Flower would stop here and silently continue with the old model.
            if not enough:
                raise QuorumError(self._shortfall(name, state))

    def configure_fit(self, *_: Any) -> list[tuple[Any, Any]]:
        """Return the nodes; `_drop_absent` sets the instructions."""
        nothing = FitIns(Parameters([], ""), {})
        return [(SimpleNamespace(node_id=node), nothing) for node in self._contents]

    def aggregate_fit(self, _: int, results: list[tuple[Any, Any]], __: Any) -> tuple[None, None]:
        """Keep the sum of the clients' integers, of which the results hold the mean."""
        (mean,) = parameters_to_ndarrays(results[0][1].parameters)
        self.clients = len(results)
        scaled = mean.astype(np.float64) * (self.clients / (2 * self._form.offset))
        self.total = self._form.wrap(np.rint(scaled).astype(np.int64))
        return None, None

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Run one stage; `exchange` has the timeout."""
        sent = []
        for message in messages:
            stage = message.content.config_records[SECAGG_CONFIGS][SecAggKey.STAGE]
            checked = stage in (SecAggStage.SHARE_KEYS, SecAggStage.UNMASK)
            sent.append(with_claims(message, self._claims) if checked and self._claims else message)
        replies = self._exchange(sent)
        claims = {reply.metadata.src_node_id: read_claim(reply) for reply in replies}
        # Two stages are signed, and the second signatures replace the first.
        self._claims = {node: claim for node, claim in claims.items() if claim} or self._claims
        return [self._unpacked(reply) for reply in replies]

    def survivors_stage(self, _: Any, __: Any, state: Any) -> bool:
        """Let the clients that signed their keys sign who is in the sum.

        The sum does not change any more: a client that is silent here is only not asked again.
        """
        alive = sorted(state.active_node_ids)
        record: dict[str, Any] = {
            SecAggKey.STAGE: keys.SURVIVORS,
            SecAggKey.ACTIVE_NODE_ID_LIST: alive,
            SecAggKey.DEAD_NODE_ID_LIST: sorted(state.sampled_node_ids - state.active_node_ids),
        }
        requests = [
            Message(RecordDict({SECAGG_CONFIGS: ConfigRecord(record)}), node, keys.TRAIN)
            for node in alive
            if node in self._claims
        ]
        replies = self.send_and_receive(requests) if requests else []
        state.failures += [Exception(reply.error) for reply in replies if reply.has_error()]
        return True

    def _drop_absent(self, state: Any) -> bool:
        active = state.sampled_node_ids = set(state.active_node_ids)
        state.nid_to_fitins = {node: RecordDict(dict(self._contents[node])) for node in active}
        near = state.nid_to_neighbours
        state.nid_to_neighbours = {node: near[node] & active for node in near if node in active}
        return bool(active) and self._check_threshold(state)

    def _shortfall(self, stage: str, state: Any) -> str:
        errors = [error.args[0] if error.args else error for error in state.failures]
        reasons = sorted({str(getattr(error, "reason", error)) for error in errors})
        why = f"; {'; '.join(reasons)}" if reasons else ""
        return (
            f"secure aggregation, stage {stage!r}: expected at least {state.threshold} of "
            f"{len(self._contents)} "
            f"clients, found {len(state.active_node_ids)}{why}; the model of the last round is kept"
        )

    def _unpacked(self, reply: Message) -> Message:
        """Return a reply with integers of Flower's width; keep the layout of its vector."""
        if reply.has_error() or keys.SECURE_LAYOUT not in reply.content.config_records:
            return reply
        self.layouts.append(reply.content.config_records[keys.SECURE_LAYOUT])
        if (bits := self._form.bits) == MAX_BITS:
            return reply
        answer: dict[str, Any] = dict(reply.content.config_records[SECAGG_CONFIGS])
        packed = answer[SecAggKey.MASKED_PARAMETERS]
        answer[SecAggKey.MASKED_PARAMETERS] = [
            ndarray_to_bytes(unpack_bits(part, bits)) for part in packed
        ]
        return with_content(
            reply, RecordDict(dict(reply.content) | {SECAGG_CONFIGS: ConfigRecord(answer)})
        )


# Replies to the stages hold public keys, encrypted shares and masked integers, nothing of the data.
# One that breaks a rule is an error of its sender, which counts as dropped out in that stage.


def masked_fault(request: Message, reply: Message) -> str:
    """Return the error in the reply to a stage, or "" if it is valid."""
    wanted: Any = request.content.config_records[SECAGG_CONFIGS]
    content, stage = reply.content, str(wanted.get(SecAggKey.STAGE))
    # Records, then entries, then what these must agree on: each check relies on those before it.
    form = STAGE_ANSWERS.get(stage, {})
    if fault := content_fault(content, form):
        return fault
    answer: Any = content.config_records.get(SECAGG_CONFIGS, {})
    if stage == SecAggStage.SETUP:
        same = answer[SecAggKey.PUBLIC_KEY_1] == answer[SecAggKey.PUBLIC_KEY_2]
        return "expected two public keys, found one twice" if same else ""
    if stage == SecAggStage.SHARE_KEYS:
        # A client shares with the others, not with itself.
        others = {int(name) for name in wanted if name != SecAggKey.STAGE}
        lists = answer[SecAggKey.DESTINATION_LIST], answer[SecAggKey.CIPHERTEXT_LIST]
        return _each_once(*lists, others - {request.metadata.dst_node_id})
    if stage == SecAggStage.UNMASK:
        nodes = {*wanted[SecAggKey.ACTIVE_NODE_ID_LIST], *wanted[SecAggKey.DEAD_NODE_ID_LIST]}
        return _each_once(answer[SecAggKey.NODE_ID_LIST], answer[SecAggKey.SHARE_LIST], nodes)
    return _vectors_fault(request, content) if keys.SECURE_LAYOUT in form else ""


def unlike_faults(request: Message, replies: Sequence[Message]) -> list[str]:
    """Return the error in each of these valid replies given the others, or "" if there is none.

    The clients of a sum send different keys, one layout, and shares of one length: a reply that
    breaks this makes those of all others useless.
    """
    stage = request.content.config_records[SECAGG_CONFIGS].get(SecAggKey.STAGE)
    answers: list[Any] = [reply.content.config_records.get(SECAGG_CONFIGS, {}) for reply in replies]
    if stage == SecAggStage.SETUP:
        pairs = [set(answer.values()) for answer in answers]
        # Nobody can say which of two clients owns the key that both sent: both are out.
        seen = Counter(key for pair in pairs for key in pair)
        fault = "expected public keys of its own, found one of another client"
        return [fault if any(seen[key] > 1 for key in pair) else "" for pair in pairs]
    if stage == SecAggStage.COLLECT_MASKED_VECTORS:
        records = [reply.content.config_records[keys.SECURE_LAYOUT] for reply in replies]
        layouts = [str([record[name] for name in _ALIKE]) for record in records]
        return unusual(layouts, "the metrics of most clients")
    if stage == SecAggStage.UNMASK:
        lengths = []
        for answer in answers:
            shares = map(len, answer[SecAggKey.SHARE_LIST])
            by_node = zip(answer[SecAggKey.NODE_ID_LIST], shares, strict=True)
            lengths.append(str(sorted(by_node)))
        return unusual(lengths, "shares as long as those of most clients")
    return [""] * len(replies)


def unpack_bits(data: bytes, bits: int) -> NDArray[np.int64]:
    """Return the numbers of `pack_bits`, from 0 to 2^bits - 1; [n] int64."""
    # Checked before an array of this size is allocated.
    count = struct.unpack_from("<Q", data)[0] if len(data) >= 8 else -1
    if len(data) != 8 + -(-count * bits // 8):
        raise ValueError(
            f"expected numbers of {bits} bits after their count, found {len(data)} bytes"
        )
    numbers = np.zeros(count, np.int64)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        first = 8 + start * bits // 8
        octets = np.frombuffer(data, np.uint8, -(-size * bits // 8), first)
        each = np.unpackbits(octets, count=size * bits, bitorder="little").reshape(size, bits)
        wide = np.zeros((size, MAX_BITS), np.uint8)
        wide[:, :bits] = each
        packed = np.packbits(wide, axis=1, bitorder="little")
        numbers[start : start + size] = packed.view("<u4").ravel()
    return numbers


def unusual(values: Sequence[str], expected: str) -> list[str]:
    """Return an error for each value that is not that of most, and "" for the others."""
    usual = Counter(values).most_common(1)
    return ["" if v == usual[0][0] else f"expected {expected}, found others" for v in values]


def _each_once(nodes: Sequence[int], values: Sequence[bytes], expected: set[int]) -> str:
    if len(values) != len(nodes) or len(set(nodes)) != len(nodes) or set(nodes) != expected:
        return (
            f"expected one entry for each of {len(expected)} nodes, found {short_repr(list(nodes))}"
        )
    return ""


def _vectors_fault(request: Message, content: RecordDict) -> str:
    """Return an error unless masked vectors are as long as the request and the layout say."""
    layout: Any = content.config_records[keys.SECURE_LAYOUT]
    options = options_of(request)
    assert options is not None  # it is this server's own request
    if len({len(layout[name]) for name in _ALIKE}) > 1:
        return "expected a length and a kind of each metric, found more or fewer"
    # A sum of counts has no model: its vector holds the numbers alone.
    weights = 0
    if options.task == keys.TRAIN:
        arrays = unpack(request).content.array_records[keys.ARRAYS].values()
        weights = sum(prod(array.shape) for array in arrays)
    numbers = MetricLayout.of_record(layout).size * options.form.digits
    vectors: Any = content.config_records[SECAGG_CONFIGS][SecAggKey.MASKED_PARAMETERS]
    for vector, count in zip(vectors, (1, weights + numbers), strict=True):
        front, size = _front(count, options.form.bits)
        if len(vector) != size or not vector.startswith(front):
            return (
                f"expected {count} masked integers of {options.form.bits} bits, found other bytes"
            )
    return ""


def _front(count: int, bits: int) -> tuple[bytes, int]:
    """Return the first bytes of n masked integers of b bits, and the number of all bytes."""
    if bits < MAX_BITS:
        return count.to_bytes(8, "little"), 8 + -(-count * bits // 8)
    # The header is compared with the only one that honest clients write, never parsed.
    header = header_of("uint32", (count,))
    return header, len(header) + 4 * count
