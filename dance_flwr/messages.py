"""The only module that knows the keys of Flower's records: what travels between server and clients.

Down: the global model, the round, the run's name. Up: the trained model, counts and seconds; of
methods whose server reads single uploads also the statistics that their card names, and down what such a server makes
of them for one client. Both ways, where a method's clients exchange tensors before round 1: those. Nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from numpy.lib import format as npy

if TYPE_CHECKING:  # a SuperNode starts a process for every message: what needs no torch must not import it
    from torch import Tensor

    from dance_flwr.evaluate import Counts
    from dance_flwr.report import Report
    from dance_flwr.site import Site

ARRAYS, CONFIG, METRICS, STATISTICS, GIVEN = "arrays", "config", "metrics", "statistics", "given"
WEIGHT, UNCLIPPED, NORM, FIRST = "num-examples", "unclipped", "clipping-norm", "first"
HELLO, DESCRIBE, EXCHANGE = "query.hello", "query.describe", "query.exchange"
EXCHANGED = "exchanged"
USER_ERROR = 1000


@dataclass(frozen=True)
class Hello:
    """A client's first words: which partition it holds, whether it brings its own data, which code it runs."""

    partition: int
    owns_data: bool
    code: str


@dataclass(frozen=True)
class Schema:
    """What a client's data asks of the global model."""

    class_names: tuple[str, ...]
    text_dim: int
    clients: int
    num_nodes: int
    encoder_sha256: str
    encoder_tokens: int
    device: str


def schema_of(site: Site, sizes: bool = True) -> Schema:
    """Return what a site's data asks of the global model; without `sizes` the counts of nodes and tokens are 0."""
    from dance_flwr.device import device_label

    card = site.card
    return Schema(
        class_names=card.class_names,
        text_dim=site.text_dim,
        clients=card.clients,
        num_nodes=card.num_nodes if sizes else 0,
        encoder_sha256=site.encoder_sha256,
        encoder_tokens=int(site.bank.tokens.sum()) if sizes else 0,
        device=device_label(site.device),
    )


def query(kind: str, node: int, config: Mapping[str, Any]) -> Message:
    """Return a query of this kind to one node."""
    return Message(RecordDict({CONFIG: ConfigRecord(dict(config))}), dst_node_id=node, message_type=kind)


def config_of(message: Message) -> dict[str, Any]:
    """Return the config that came with a message; empty when there is none."""
    return dict(message.content.config_records.get(CONFIG, {}))


def exchange(node: int, config: Mapping[str, Any], tensors: ArrayRecord) -> Message:
    """Return EXCHANGE to one node: a step of the method's exchange, with what the server has for this client."""
    return Message(
        RecordDict({CONFIG: ConfigRecord(dict(config)), EXCHANGED: tensors}), dst_node_id=node, message_type=EXCHANGE
    )


def exchange_reply(message: Message, tensors: Mapping[str, Tensor]) -> Message:
    """Answer EXCHANGE."""
    return _reply(message, {EXCHANGED: arrays_of(tensors)})


def exchanged(message: Message) -> ArrayRecord:
    """Return the tensors of EXCHANGE or of an answer to it, still as they travel; none where the record is missing."""
    return message.content.array_records.get(EXCHANGED, ArrayRecord())


def hello_reply(message: Message, hello: Hello) -> Message:
    """Answer HELLO."""
    return _reply(message, {CONFIG: ConfigRecord(asdict(hello))})


def schema_reply(message: Message, schema: Schema) -> Message:
    """Answer DESCRIBE."""
    values = asdict(schema) | {"class_names": list(schema.class_names)}
    return _reply(message, {CONFIG: ConfigRecord(values)})


def read_hello(message: Message) -> Hello:
    """Read an answer to HELLO."""
    return Hello(**config_of(message))


def read_schema(message: Message) -> Schema:
    """Read an answer to DESCRIBE."""
    values = config_of(message)
    return Schema(**values | {"class_names": tuple(values["class_names"])})


def arrays_of(state: Mapping[str, Tensor]) -> ArrayRecord:
    """Return a model's state dict as an ArrayRecord, on the CPU."""
    return ArrayRecord({name: _array_of(tensor) for name, tensor in state.items()})


def _array_of(tensor: Tensor) -> Array:
    """Return what Flower's `Array(tensor)` is, byte for byte; Flower's grows a buffer, ten times as slow at 16 MB."""
    array, header = tensor.detach().cpu().numpy(), BytesIO()
    array = array if array.flags.c_contiguous else array.copy(order="C")
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(array))
    data = b"".join((header.getvalue(), array.reshape(-1).view("u1").data))
    return Array(dtype=str(array.dtype), shape=tuple(array.shape), stype="numpy.ndarray", data=data)


def state_of(arrays: ArrayRecord) -> dict[str, Tensor]:
    """Return an ArrayRecord as a state dict."""
    return dict(arrays.to_torch_state_dict())


def model_of(message: Message) -> dict[str, Tensor]:
    """Return the global model that came with a message."""
    return state_of(message.content.array_records[ARRAYS])


def statistics_of(message: Message) -> dict[str, Tensor]:
    """Return the statistics that came with an answer to TRAIN, empty where there are none."""
    return state_of(message.content.array_records.get(STATISTICS, ArrayRecord()))


def given_of(message: Message) -> dict[str, Tensor]:
    """Return what the server sent beside the model for this client alone, empty where there is nothing."""
    return state_of(message.content.array_records.get(GIVEN, ArrayRecord()))


def train_reply(
    message: Message, state: Mapping[str, Tensor], weight: int, report: Report, unclipped: float | None = None
) -> Message:
    """Answer TRAIN: the updated model, its weight in the mean, loss, counts, seconds by phase, bit of the clipping.

    Statistics that the method's own server side reads come in a record of their own.
    """
    metrics: dict[str, Any] = {WEIGHT: weight, "loss": report.loss}
    metrics |= {UNCLIPPED: unclipped} if unclipped is not None else {}
    metrics |= report.counts | {f"seconds-{phase}": value for phase, value in report.seconds.items()}
    records = {STATISTICS: arrays_of(report.statistics)} if report.statistics else {}
    return _reply(message, {ARRAYS: arrays_of(state), METRICS: MetricRecord(metrics), **records})


def weigh_reply(message: Message, weight: int, nodes: int, tokens: int) -> Message:
    """Answer "weigh": the client's weight in the mean, its nodes and encoded tokens; only ever sent under a mask."""
    return _reply(message, {METRICS: MetricRecord({WEIGHT: weight, "nodes": nodes, "encoder-tokens": tokens})})


def evaluate_reply(message: Message, counts: Mapping[str, Counts]) -> Message:
    """Answer EVALUATE: counts per split, and nothing per node."""
    metrics: dict[str, Any] = {WEIGHT: sum(split.total for split in counts.values())}
    for split, values in counts.items():
        metrics[f"{split}-total"] = values.total
        metrics |= {f"{split}-correct-{view}": hits for view, hits in values.correct.items()}
        for name in ("true_positives", "predicted", "actual"):
            metrics[f"{split}-{name.replace('_', '-')}"] = list(getattr(values, name))
    return _reply(message, {METRICS: MetricRecord(metrics)})


def error_reply(message: Message, reason: str) -> Message:
    """Answer with an error that a user can mend."""
    return Message(Error(USER_ERROR, reason), reply_to=message)


def metrics_of(record: RecordDict) -> dict[str, Any]:
    """Return the metrics of a reply."""
    return dict(record.metric_records[METRICS])


def sum_metrics(records: Iterable[RecordDict]) -> dict[str, Any]:
    """Add the metrics of all clients, element by element; "loss" becomes the weighted mean."""
    total: dict[str, Any] = {}
    for record in records:
        metrics = metrics_of(record)
        if "loss" in metrics:
            metrics["loss"] *= metrics[WEIGHT]
        for key, value in metrics.items():
            old = total.get(key, [0] * len(value) if isinstance(value, list) else 0)
            total[key] = [a + b for a, b in zip(old, value, strict=True)] if isinstance(value, list) else old + value
    if "loss" in total:
        total["loss"] /= max(total[WEIGHT], 1)
    return total


def read_counts(metrics: Mapping[str, Any], split: str) -> Counts:
    """Read the counts of one split from (summed) metrics."""
    from dance_flwr.evaluate import Counts

    prefix = f"{split}-correct-"
    return Counts(
        correct={key.removeprefix(prefix): value for key, value in metrics.items() if key.startswith(prefix)},
        total=metrics[f"{split}-total"],
        true_positives=metrics[f"{split}-true-positives"],
        predicted=metrics[f"{split}-predicted"],
        actual=metrics[f"{split}-actual"],
    )


def bytes_of(message: Message) -> int:
    """Return the payload of a message in bytes: its arrays, and byte strings such as masked vectors and keys."""
    if not message.has_content():
        return 0
    arrays = sum(len(array.data) for record in message.content.array_records.values() for array in record.values())
    values = [value for record in message.content.config_records.values() for value in record.values()]
    strings = [part for value in values for part in (value if isinstance(value, list) else [value])]
    return arrays + sum(len(part) for part in strings if isinstance(part, bytes))


def with_content(message: Message, content: RecordDict) -> Message:
    """Return a message with the same sender, receiver and type, and another content."""
    copy: Message = Message(content, metadata=message.metadata)  # type: ignore[call-overload]  # Flower's own keyword
    return copy


def without_statistics(message: Message) -> Message:
    """Return a message with its statistics taken out: Flower's own strategies read one ArrayRecord and refuse two."""
    records = {name: record for name, record in message.content.items() if name != STATISTICS}
    return with_content(message, RecordDict(records))


def with_model(message: Message, state: Mapping[str, Tensor]) -> Message:
    """Return a message that brings this model in the place of its own."""
    return with_content(message, RecordDict(dict(message.content) | {ARRAYS: arrays_of(state)}))


def with_metrics(message: Message, more: Mapping[str, Any]) -> Message:
    """Return a message whose metrics also hold these."""
    metrics = MetricRecord(metrics_of(message.content) | dict(more))
    return with_content(message, RecordDict(dict(message.content) | {METRICS: metrics}))


def _reply(message: Message, records: Mapping[str, Any]) -> Message:
    return Message(RecordDict(dict(records)), reply_to=message)
