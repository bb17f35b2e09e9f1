"""Build the messages between server and clients, and read requests; `keys` has the literal keys.

Down: the global model, the round, the name of the run. Up: the trained model, counts, seconds. If
the server of a method reads single uploads, its clients also send the statistics that its card
names, and the server sends each client what it computed for that client. Methods that exchange
tensors before round 1 send these in both directions. Nothing else travels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.tensors import arrays_of, state_of

# A SuperNode starts a process for every message, and not all of them need torch.
if TYPE_CHECKING:
    from torch import Tensor

    from dance_flwr.metrics import Counts, Report, Tokens


@dataclass(frozen=True)
class Hello:
    """A client's answer to HELLO: its partition, whether it holds its own data, its PROTOCOL."""

    partition: int
    owns_data: bool
    protocol: int


@dataclass(frozen=True)
class Schema:
    """What the data of a client requires of the global model, and its votes on the reading.

    Sizes and votes are withheld under masks, which give only their sums.
    """

    class_names: tuple[str, ...]
    text_dim: int
    clients: int
    num_nodes: int
    encoder_sha256: str
    encoder_tokens: int
    device: str
    data_sha256: str
    reading_votes: tuple[int, ...] = ()


_Record = TypeVar("_Record", ArrayRecord, ConfigRecord, MetricRecord)
LISTS = ("class_names", "reading_votes")  # of a schema
PER_CLASS = ("true_positives", "predicted", "actual")  # of `Counts`


# Configs and requests.


def run_config(run: str, partition_dir: str) -> dict[str, Any]:
    """Return the config that is part of every message of a run."""
    return {keys.RUN: run, keys.PARTITION_DIR: partition_dir}


def query(kind: str, node: int, config: Mapping[str, Any]) -> Message:
    """Return a message of this kind to one node, with a config alone."""
    content = RecordDict({keys.CONFIG: ConfigRecord(dict(config))})
    return Message(content, dst_node_id=node, message_type=kind)


def evaluate(node: int, config: Mapping[str, Any], arrays: ArrayRecord) -> Message:
    """Return Flower's "evaluate" to one node."""
    content = RecordDict({keys.ARRAYS: arrays, keys.CONFIG: ConfigRecord(dict(config))})
    return Message(content, dst_node_id=node, message_type=keys.EVALUATE)


# Answers.


def hello_reply(message: Message, hello: Hello) -> Message:
    """Answer HELLO."""
    return _reply(message, {keys.CONFIG: ConfigRecord(asdict(hello))})


def schema_reply(message: Message, schema: Schema) -> Message:
    """Answer DESCRIBE."""
    values = asdict(schema) | {name: list(getattr(schema, name)) for name in LISTS}
    return _reply(message, {keys.CONFIG: ConfigRecord(values)})


def seal_reply(message: Message, digest: str) -> Message:
    """Answer SEAL with the hash of the client's evidence, "" if its method keeps none."""
    return _reply(message, {keys.CONFIG: ConfigRecord({keys.EVIDENCE_SHA256: digest})})


def exchange_reply(message: Message, tensors: Mapping[str, Tensor]) -> Message:
    """Answer EXCHANGE."""
    return _reply(message, {keys.EXCHANGED: arrays_of(tensors)})


def train_reply(
    message: Message,
    state: Mapping[str, Tensor],
    weight: int,
    report: Report,
    unclipped: float | None = None,
    validated: Mapping[str, Counts] | None = None,
) -> Message:
    """Answer TRAIN: the model, its weight in the mean, loss, counts and seconds.

    Parameters
    ----------
    unclipped : 1.0 if the update was within the clipping norm, under adaptive clipping only
    validated : counts of the model that was sent, by split, if the message asked for them
    """
    metrics: dict[str, Any] = {keys.WEIGHT: weight, keys.LOSS: report.loss}
    metrics |= {keys.UNCLIPPED: unclipped} if unclipped is not None else {}
    metrics |= report.counts | _numbers(validated or {})
    metrics |= {keys.seconds_of(phase): value for phase, value in report.seconds.items()}
    records = {keys.STATISTICS: arrays_of(report.statistics)} if report.statistics else {}
    return _reply(
        message, {keys.ARRAYS: arrays_of(state), keys.METRICS: MetricRecord(metrics), **records}
    )


def with_scales(reply: Message, scales: Tensor) -> Message:
    """Return an answer to TRAIN with the scales of an update in int8; unchanged without any."""
    if not len(scales):
        return reply
    records = dict(reply.content) | {keys.SCALES: arrays_of({keys.STEPS: scales})}
    return with_content(reply, RecordDict(records))


def weigh_reply(
    message: Message, weight: int, nodes: int, tokens: int, votes: Sequence[int]
) -> Message:
    """Answer "weigh", under masks only: the client's weight, nodes, encoded tokens and votes."""
    metrics: dict[str, Any] = {keys.WEIGHT: weight, keys.NODES: nodes}
    metrics[keys.ENCODER_TOKENS] = tokens
    metrics |= {keys.READING_VOTES: list(votes)} if votes else {}
    return _reply(message, {keys.METRICS: MetricRecord(metrics)})


def evaluate_reply(
    message: Message, counts: Mapping[str, Counts], tokens: Tokens | None = None
) -> Message:
    """Answer EVALUATE with counts per split; for the final model also with tokens of the run."""
    metrics = _numbers(counts) | {keys.WEIGHT: sum(split.total for split in counts.values())}
    records: dict[str, Any] = {}
    if tokens is not None:
        numbers = asdict(tokens)
        names = {keys.LLM: numbers.pop("model"), keys.TOKENISER: numbers.pop("tokeniser")}
        metrics |= {keys.tokens_of(name): value for name, value in numbers.items()}
        records = {keys.CONFIG: ConfigRecord(names)}
    return _reply(message, {keys.METRICS: MetricRecord(metrics), **records})


def _numbers(counts: Mapping[str, Counts]) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for split, values in counts.items():
        metrics[keys.total_of(split)] = values.total
        metrics |= {keys.correct_of(split, view): n for view, n in values.correct.items()}
        for name in PER_CLASS:
            metrics[keys.per_class(split, name)] = list(getattr(values, name))
        if values.calibration:
            metrics[keys.calibration_of(split)] = list(values.calibration)
    return metrics


def losses_reply(message: Message, losses: list[int], nodes: int, seconds: float) -> Message:
    """Answer with the losses of mixtures, their number of validation nodes, and the seconds."""
    numbers = {keys.WEIGHT: nodes, keys.seconds_of("train"): seconds}
    return _reply(message, {keys.METRICS: MetricRecord({**numbers, keys.LOSSES: losses})})


def error_reply(message: Message, reason: str) -> Message:
    """Answer with an error that a user can correct."""
    return Message(Error(keys.USER_ERROR, reason), reply_to=message)


# What a message holds.


def record_in(content: RecordDict, name: str, kind: type[_Record]) -> _Record | None:
    """Return the record of this name and type, None without one.

    Flower's `config_records` and `array_records` copy and check all records whenever they are read.
    """
    found = content.get(name)
    return found if isinstance(found, kind) else None


def config_of(message: Message) -> dict[str, Any]:
    """Return the config that came with a message; empty when there is none."""
    record = record_in(message.content, keys.CONFIG, ConfigRecord)
    # By its items, as a copy of a record itself calls Flower for each key.
    return dict(record.items()) if record else {}


def keys_in(message: Message) -> dict[str, list[str]]:
    """Return the keys that a message holds, by record, and no values."""
    # SecAgg+ uses numbers of nodes as keys; a record of messages names no clients.
    return {
        name: sorted({keys.NODE if str(key).lstrip("-").isdigit() else str(key) for key in record})
        for name, record in (message.content.items() if message.has_content() else ())
    }


def record_digest(totals: Mapping[tuple[str, str], Sequence[int]]) -> str:
    """Return 12 hex digits of sha256 of a client's record, which client and server each keep.

    Parameters
    ----------
    totals : (task, stage of a masked sum) -> numbers of answers without an error, and of bytes
    """
    lines = sorted([*kind, *numbers] for kind, numbers in totals.items())
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:12]


def arrays_in(message: Message, name: str = keys.ARRAYS) -> ArrayRecord:
    """Return a model of a message, still serialised."""
    if (found := record_in(message.content, name, ArrayRecord)) is None:
        raise KeyError(name)
    return found


def arrays_under(message: Message, name: str) -> ArrayRecord:
    """Return the tensors of a record, still serialised; empty without it."""
    return record_in(message.content, name, ArrayRecord) or ArrayRecord()


def model_of(message: Message) -> dict[str, Tensor]:
    """Return the model that came with a message."""
    return state_of(arrays_in(message))


def payload_of(message: Message) -> dict[str, Tensor]:
    """Return what the server sent to this client alone, beside the model."""
    return state_of(arrays_under(message, keys.SERVER_PAYLOAD))


def exchange_record(message: Message) -> ArrayRecord:
    """Return the tensors of EXCHANGE or of its answer, still serialised; empty without any."""
    return arrays_under(message, keys.EXCHANGED)


def metrics_of(record: RecordDict) -> dict[str, Any]:
    """Return the metrics of a reply."""
    return dict(record[keys.METRICS].items())


# Messages from messages.


def with_content(message: Message, content: RecordDict) -> Message:
    """Return a message with the same metadata and another content."""
    copy: Message = Message(content, metadata=message.metadata)  # type: ignore[call-overload]  # Flower's own keyword
    return copy


def with_error(message: Message, code: int, reason: str) -> Message:
    """Return a message with the same metadata and an error in the place of its content."""
    copy: Message = Message(Error(code, reason), metadata=message.metadata)  # type: ignore[call-overload]  # as above
    return copy


def with_arrays(message: Message, arrays: ArrayRecord) -> Message:
    """Return a message with another model."""
    return with_content(message, RecordDict(dict(message.content) | {keys.ARRAYS: arrays}))


def _reply(message: Message, records: Mapping[str, Any]) -> Message:
    return Message(RecordDict(dict(records)), reply_to=message)
