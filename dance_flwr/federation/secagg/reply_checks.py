"""Check the replies to each stage of a masked sum against one table of rules.

These replies hold public keys, encrypted shares and masked integers, nothing of a client's data. A
reply that breaks a rule is an error of its sender, which counts as dropped out in that stage. No
check reads masked values: any integer is valid.
"""

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from dance_flwr.data.checks import MAX_CLASSES
from dance_flwr.federation.flower import FITRES, SECAGG_CONFIGS, SecAggKey, SecAggStage
from dance_flwr.federation.secagg.request import options_of
from dance_flwr.federation.secagg.vectors import MAX_BITS, MetricLayout
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.rules import (
    FLAG,
    Form,
    Rule,
    content_fault,
    list_of,
    short_repr,
    text,
    whole,
)
from dance_flwr.federation.wire.serialization import unpack
from dance_flwr.federation.wire.tensors import header_of

# Far beyond what an honest client sends, so that a reply cannot fill the server's memory.
_NAME, _MAX_METRICS, _MAX_NODES = 200, 1000, 100_000
_MAX_BYTES = 10_000  # of a key or a share
_INDEX, _BLOCK = 4, 16  # bytes of a share: its number, then one block per block of the secret


def _is_public_key(value: Any) -> bool:
    # Size before content: untrusted bytes are measured before they are parsed.
    if not isinstance(value, bytes) or len(value) > _MAX_BYTES:
        return False
    try:
        key = serialization.load_pem_public_key(value)
    except (ValueError, TypeError, UnicodeError):
        return False
    # Flower's clients exchange over P-384; a key of another curve makes every other client fail.
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp384r1":
        return False
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return value == key.public_bytes(serialization.Encoding.PEM, form)


def _is_share(value: Any) -> bool:
    return (
        isinstance(value, bytes)
        and _INDEX + _BLOCK <= len(value) <= _MAX_BYTES
        and (len(value) - _INDEX) % _BLOCK == 0
        # Share number 0 would be the secret itself.
        and any(value[:_INDEX])
    )


_PUBLIC_KEY = Rule("a public key of P-384", _is_public_key)
_SHARE = Rule("a share of a secret", _is_share)
_NODES = list_of(whole(-(2**63), 2**64), 0, _MAX_NODES)
SIGNED: dict[str, Rule] = {keys.CLIENT: whole(0, 2**31 - 1), keys.SIGNATURE: text(_NAME, bytes)}
_LAYOUT: dict[str, Rule] = {
    keys.NAMES: list_of(text(_NAME), 1, _MAX_METRICS),
    keys.LENGTHS: list_of(whole(0, MAX_CLASSES), 1, _MAX_METRICS),
    keys.MICRO: list_of(FLAG, 1, _MAX_METRICS),
    keys.OMITTED: FLAG,
}
_ALIKE = (keys.NAMES, keys.LENGTHS, keys.MICRO)
_PARAMETERS, _EXAMPLES, _METRICS, _STATUS = FITRES
# Stage -> the records of its answer and their entries.
_ANSWERS: dict[str, Form] = {
    SecAggStage.SETUP: {
        SECAGG_CONFIGS: (
            ConfigRecord,
            dict.fromkeys((SecAggKey.PUBLIC_KEY_1, SecAggKey.PUBLIC_KEY_2), _PUBLIC_KEY),
        )
    },
    SecAggStage.SHARE_KEYS: {
        SECAGG_CONFIGS: (
            ConfigRecord,
            {
                SecAggKey.DESTINATION_LIST: _NODES,
                SecAggKey.CIPHERTEXT_LIST: list_of(text(_MAX_BYTES, bytes), 0, _MAX_NODES),
            },
        )
    },
    SecAggStage.COLLECT_MASKED_VECTORS: {
        # The lengths of the two vectors follow from the request and the layout.
        SECAGG_CONFIGS: (
            ConfigRecord,
            {SecAggKey.MASKED_PARAMETERS: list_of(text(2**40, bytes), 2, 2)},
        ),
        keys.SECURE_LAYOUT: (ConfigRecord, _LAYOUT),
        # Constants of Flower's legacy answer.
        _PARAMETERS: (ArrayRecord, {}),
        _EXAMPLES: (MetricRecord, {"num_examples": whole(1, 1)}),
        _METRICS: (ConfigRecord, {}),
        _STATUS: (ConfigRecord, {"code": whole(0, 0), "message": text(0)}),
    },
    keys.SURVIVORS: {},
    SecAggStage.UNMASK: {
        SECAGG_CONFIGS: (
            ConfigRecord,
            {
                SecAggKey.NODE_ID_LIST: _NODES,
                SecAggKey.SHARE_LIST: list_of(_SHARE, 0, _MAX_NODES),
            },
        )
    },
}
_SIGNATURE: Form = {keys.SIGNED: (ConfigRecord, SIGNED)}
_SIGNS = (SecAggStage.SETUP, keys.SURVIVORS)  # the stages whose answers are signed


def masked_fault(request: Message, reply: Message) -> str:
    """Return the error in the reply to a stage, or "" if it is valid."""
    wanted: Any = request.content.config_records[SECAGG_CONFIGS]
    content, stage = reply.content, str(wanted.get(SecAggKey.STAGE))
    # Records, then entries, then what these must agree on: each check relies on those before it.
    form, optional = _ANSWERS.get(stage, {}), _SIGNATURE if stage in _SIGNS else {}
    if fault := content_fault(content, form, optional):
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
        return _unusual(layouts, "the metrics of most clients")
    if stage == SecAggStage.UNMASK:
        lengths = []
        for answer in answers:
            shares = map(len, answer[SecAggKey.SHARE_LIST])
            by_node = zip(answer[SecAggKey.NODE_ID_LIST], shares, strict=True)
            lengths.append(str(sorted(by_node)))
        return _unusual(lengths, "shares as long as those of most clients")
    return [""] * len(replies)


def _unusual(values: Sequence[str], expected: str) -> list[str]:
    """Return a fault for each value that is not the most frequent one."""
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
