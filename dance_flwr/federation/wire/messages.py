"""Build and read the messages between server and clients; the literal keys are in `keys`.

Down: the global model, the round, the name of the run. Up: the trained model, counts, seconds. If
the server of a method reads single uploads, its clients also send the statistics that its card
names, and the server sends each client what it computed for that client. Methods that exchange
tensors before round 1 send these in both directions. Nothing else travels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from typing import TYPE_CHECKING, Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.tensors import arrays_of, state_of

# A SuperNode starts a process for every message, and not all of them need torch.
if TYPE_CHECKING:
    from torch import Tensor

    from dance_flwr.methods.server_side import Upload
    from dance_flwr.metrics import Counts, Report, Tokens, Training


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
_LISTS = ("class_names", "reading_votes")  # of a schema
PER_CLASS = ("true_positives", "predicted", "actual")  # of `Counts`


# Configs and requests.


def run_config(run: str, partition_dir: str) -> dict[str, Any]:
    """Return the config that is part of every message of a run."""
    return {keys.RUN: run, keys.PARTITION_DIR: partition_dir}


def run_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a config that is in every message of a run, with the reading."""
    common = (keys.RUN, keys.PARTITION_DIR, keys.TEXT_POOLING, keys.EDGE_GATES)
    return {key: config[key] for key in common if key in config}


def query(kind: str, node: int, config: Mapping[str, Any]) -> Message:
    """Return a message of this kind to one node, with a config alone."""
    content = RecordDict({keys.CONFIG: ConfigRecord(dict(config))})
    return Message(content, dst_node_id=node, message_type=kind)


def exchange(node: int, config: Mapping[str, Any], step: int, tensors: ArrayRecord) -> Message:
    """Return EXCHANGE to one node: the number of a step and the tensors for this client."""
    settings = ConfigRecord({**config, keys.STEP: step})
    content = RecordDict({keys.CONFIG: settings, keys.EXCHANGED: tensors})
    return Message(content, dst_node_id=node, message_type=keys.EXCHANGE)


def evaluate(node: int, config: Mapping[str, Any], arrays: ArrayRecord) -> Message:
    """Return Flower's "evaluate" to one node."""
    content = RecordDict({keys.ARRAYS: arrays, keys.CONFIG: ConfigRecord(dict(config))})
    return Message(content, dst_node_id=node, message_type=keys.EVALUATE)


# Answers.


def hello_reply(message: Message, hello: Hello) -> Message:
    """Answer HELLO."""
    return _reply(message, {keys.CONFIG: ConfigRecord(asdict(hello))})


def read_hello(message: Message) -> Hello:
    """Read an answer to HELLO."""
    return Hello(**config_of(message))


def schema_reply(message: Message, schema: Schema) -> Message:
    """Answer DESCRIBE."""
    values = asdict(schema) | {name: list(getattr(schema, name)) for name in _LISTS}
    return _reply(message, {keys.CONFIG: ConfigRecord(values)})


def read_schema(message: Message) -> Schema:
    """Read an answer to DESCRIBE."""
    values = config_of(message)
    return Schema(**values | {name: tuple(values[name]) for name in _LISTS})


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
) -> Message:
    """Answer TRAIN: the model, its weight in the mean, loss, counts and seconds.

    Parameters
    ----------
    unclipped : 1.0 if the update was within the clipping norm, under adaptive clipping only
    """
    metrics: dict[str, Any] = {keys.WEIGHT: weight, keys.LOSS: report.loss}
    metrics |= {keys.UNCLIPPED: unclipped} if unclipped is not None else {}
    metrics |= report.counts
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
    metrics: dict[str, Any] = {keys.WEIGHT: sum(split.total for split in counts.values())}
    for split, values in counts.items():
        metrics[keys.total_of(split)] = values.total
        metrics |= {keys.correct_of(split, view): n for view, n in values.correct.items()}
        for name in PER_CLASS:
            metrics[keys.per_class(split, name)] = list(getattr(values, name))
        if values.calibration:
            metrics[keys.calibration_of(split)] = list(values.calibration)
    records: dict[str, Any] = {}
    if tokens is not None:
        numbers = asdict(tokens)
        names = {keys.LLM: numbers.pop("model"), keys.TOKENISER: numbers.pop("tokeniser")}
        metrics |= {keys.tokens_of(name): value for name, value in numbers.items()}
        records = {keys.CONFIG: ConfigRecord(names)}
    return _reply(message, {keys.METRICS: MetricRecord(metrics), **records})


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
    return dict(record_in(message.content, keys.CONFIG, ConfigRecord) or {})


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


def arrays_in(message: Message) -> ArrayRecord:
    """Return the model of a message, still serialised."""
    if (found := record_in(message.content, keys.ARRAYS, ArrayRecord)) is None:
        raise KeyError(keys.ARRAYS)
    return found


def _arrays(message: Message, name: str) -> ArrayRecord:
    return record_in(message.content, name, ArrayRecord) or ArrayRecord()


def model_of(message: Message) -> dict[str, Tensor]:
    """Return the model that came with a message."""
    return state_of(arrays_in(message))


def scales_of(message: Message) -> Tensor:
    """Return the scales beside an update in int8; empty where there are none."""
    import torch

    arrays = state_of(_arrays(message, keys.SCALES))
    return arrays.get(keys.STEPS, torch.zeros(0))


def statistics_of(message: Message) -> dict[str, Tensor]:
    """Return the statistics that came with an answer to TRAIN, empty where there are none."""
    return state_of(_arrays(message, keys.STATISTICS))


def payload_of(message: Message) -> dict[str, Tensor]:
    """Return what the server sent to this client alone, beside the model."""
    return state_of(_arrays(message, keys.SERVER_PAYLOAD))


def exchange_record(message: Message) -> ArrayRecord:
    """Return the tensors of EXCHANGE or of its answer, still serialised; empty without any."""
    return _arrays(message, keys.EXCHANGED)


def metrics_of(record: RecordDict) -> dict[str, Any]:
    """Return the metrics of a reply."""
    return dict(record[keys.METRICS])


def upload_of(reply: Message, client: int | None) -> Upload:
    """Return an answer to TRAIN as the method's server side reads it."""
    from dance_flwr.methods.server_side import Upload

    weight = int(metrics_of(reply.content)[keys.WEIGHT])
    return Upload(client, model_of(reply), weight, statistics_of(reply))


# Metrics of replies.


def sum_metrics(metrics_by_client: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the element-wise sum of the metrics of clients; "loss" becomes the weighted mean.

    The metrics of a single client are returned unchanged.
    """
    every = [dict(metrics) for metrics in metrics_by_client]
    # Unchanged: multiplying and dividing a loss may change its last bit.
    if len(every) == 1:
        return every[0]
    total: dict[str, Any] = {}
    for metrics in every:
        if keys.LOSS in metrics:
            # Means cannot be added; the sum is divided by all weights at the end.
            metrics[keys.LOSS] *= metrics[keys.WEIGHT]
        for key, value in metrics.items():
            old = total.get(key, [0] * len(value) if isinstance(value, list) else 0)
            lists = isinstance(value, list)
            total[key] = [a + b for a, b in zip(old, value, strict=True)] if lists else old + value
    if keys.LOSS in total:
        total[keys.LOSS] /= max(total[keys.WEIGHT], 1)
    return total


def read_counts(metrics: Mapping[str, Any], split: str, views: Iterable[str]) -> Counts:
    """Read the counts of one split from (summed) metrics."""
    from dance_flwr.metrics import Counts

    named = {view: keys.correct_of(split, view) for view in views}
    return Counts(
        correct={view: metrics[key] for view, key in named.items() if key in metrics},
        total=metrics[keys.total_of(split)],
        **{name: metrics[keys.per_class(split, name)] for name in PER_CLASS},
        calibration=metrics.get(keys.calibration_of(split), ()),
    )


def read_tokens(metrics: Mapping[str, Any], names: Mapping[str, Any]) -> Tokens:
    """Read the counts of tokens over a run from (summed) metrics."""
    from dance_flwr.metrics import TOKEN_COUNTS, Tokens

    return Tokens(
        **{name: metrics[keys.tokens_of(name)] for name in TOKEN_COUNTS},
        model=str(names.get(keys.LLM, "")),
        tokeniser=str(names.get(keys.TOKENISER, "")),
    )


def read_training(metrics: Mapping[str, Any]) -> Training:
    """Read the cost and the counts of a round of training from (summed) metrics.

    If a masked sum hides them, the loss is NaN, and there are no counts.
    """
    from dance_flwr.metrics import COUNTS, PHASES, Training

    if keys.LOSS not in metrics:
        return Training(loss=nan, seconds={}, counts={})
    return Training(
        loss=metrics[keys.LOSS],
        seconds={phase: metrics[keys.seconds_of(phase)] for phase in PHASES},
        counts={name: metrics[name] for name in COUNTS},
    )


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
