"""Check replies against one table of records, entries, types, ranges and lengths by task.

`polling.ask` turns a reply that breaks it into an error of its sender. What a server knows only
after a round's replies are read (shapes of the model, norms, statistics) is in `validation`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from dance_flwr.client_data.reading_probe import MAX_PROBED
from dance_flwr.config.sections import INT8
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.checks import MAX_CLASS_NAME, MAX_CLASSES
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.secagg.reply_checks import SIGNED, masked_fault, unlike_faults
from dance_flwr.federation.server.count_checks import MAX_TOKENS, CountRules
from dance_flwr.federation.server.reading import vote_size
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.rules import (
    FLAG,
    MAX_NUMBER,
    Rule,
    entries_fault,
    list_of,
    real,
    records_fault,
    short_repr,
    text,
    whole,
)
from dance_flwr.federation.wire.tensors import array_fault
from dance_flwr.fingerprint import PROTOCOL
from dance_flwr.methods import final_views, get_spec
from dance_flwr.methods.contract import Uplink
from dance_flwr.metrics import COUNTS, PHASES
from dance_flwr.nn.mixture import MAX_LOSS, candidates

MAX_NODES = 2**31 - 1  # of one client
_MAX_ARRAYS, _NAME = 100_000, 200  # _NAME: characters
_NODES = whole(0, MAX_NODES)
# By the annotation of a field, so that a field that is added to an answer has a rule.
_BY_TYPE: dict[str, Rule] = {
    "int": whole(),
    "bool": FLAG,
    "str": text(_NAME),
    "tuple[str, ...]": list_of(text(MAX_CLASS_NAME), 1, MAX_CLASSES),
    "tuple[int, ...]": list_of(whole(0, MAX_PROBED), 0, 0),
}
_NAMES: dict[str, Rule] = dict.fromkeys((keys.LLM, keys.TOKENISER), text(_NAME))
_SEAL: dict[str, Rule] = {keys.EVIDENCE_SHA256: text(64)}


def _table_of(answer: type) -> dict[str, Rule]:
    return {field.name: _BY_TYPE[str(field.type)] for field in fields(answer)}


_HELLO = _table_of(messages.Hello)
_SCHEMA = _table_of(messages.Schema) | {"text_dim": whole(1), keys.SCHEMA_NODES: _NODES}


def hello_fault(request: Message, reply: Message) -> str:
    """Return what is wrong with an answer to HELLO, before anything of a client is known."""
    return _whole_fault(request, reply) or _greeting_fault(reply.content)


def refused(reply: Message, fault: str) -> Message:
    """Return the error that stands in the place of a reply."""
    return messages.with_error(reply, keys.INVALID_REPLY, fault)


class ReplyChecks:
    """The checks of the replies of one run."""

    def __init__(self, config: RunConfig) -> None:
        self._config, spec = config, get_spec(config.method)
        # Under masks their sum alone is known, as that of the sizes.
        votes = 0 if config.privacy.secure_aggregation else vote_size(config)
        self._schema_rules = _SCHEMA | {
            "reading_votes": list_of(whole(0, MAX_PROBED), votes, votes)
        }
        self._views = (*final_views(config), "deployed")
        self._reads_each = spec.uplink is Uplink.EACH
        self._nodes: dict[int, int] = {}
        self._classes = 0

    def learn(self, schemas: Mapping[int, messages.Schema]) -> None:
        """Bound later replies by what clients described."""
        self._nodes = {node: schema.num_nodes for node, schema in schemas.items()}
        self._classes = max((len(schema.class_names) for schema in schemas.values()), default=0)

    def fault(self, request: Message, reply: Message) -> str:
        """Return what is wrong with a reply that is no error; "" where nothing is.

        In a stage of a masked sum no number of one client is seen; `masked_fault` checks the rest.
        """
        if fault := _whole_fault(request, reply):
            return fault
        # By the request, which is the server's own: a reply does not choose its rules.
        if SECAGG_CONFIGS in request.content.config_records:
            return masked_fault(request, reply)
        kind, content, node = (
            request.metadata.message_type,
            reply.content,
            request.metadata.dst_node_id,
        )
        if kind == keys.HELLO:
            return _greeting_fault(content)
        if kind == keys.DESCRIBE:
            return records_fault(content, {keys.CONFIG: ConfigRecord}) or entries_fault(
                messages.config_of(reply), self._schema_rules
            )
        if kind == keys.SEAL:
            return records_fault(content, {keys.CONFIG: ConfigRecord}) or entries_fault(
                messages.config_of(reply), _SEAL
            )
        if kind == keys.EXCHANGE:
            return records_fault(content, {keys.EXCHANGED: ArrayRecord})
        if kind == keys.TRAIN:
            return self._training_fault(content, node)
        if kind == keys.EVALUATE and messages.config_of(request).get(keys.PERSONALISE, False):
            return records_fault(content, {keys.METRICS: MetricRecord}) or losses_fault(
                messages.metrics_of(content), self._config, self._nodes.get(node, MAX_NODES)
            )
        if kind == keys.EVALUATE:
            final = messages.config_of(request).get(keys.FINAL, False)
            return self._counts_fault(content, node, ("val", "test") if final else ("val",))
        return ""

    def alike(self, request: Message, replies: Sequence[Message]) -> list[Message]:
        """Return answers to one batch with an error for each that does not fit those of most."""
        if request.metadata.message_type == keys.EVALUATE:
            return self._of_same_views(replies)
        if SECAGG_CONFIGS not in request.content.config_records:
            return list(replies)
        valid = [reply for reply in replies if not reply.has_error()]
        # By identity, as two replies may be equal.
        faults = dict(zip(map(id, valid), unlike_faults(request, valid), strict=True))
        return [
            refused(reply, fault) if (fault := faults.get(id(reply), "")) else reply
            for reply in replies
        ]

    def _of_same_views(self, replies: Sequence[Message]) -> list[Message]:
        """Return answers to EVALUATE with an error for each whose views are not those of most.

        A method may predict fewer views than it has, but all clients of a run the same ones: what
        is summed over some of them would have the wrong number of nodes.
        """
        names = [
            frozenset(messages.metrics_of(reply.content))
            if reply.has_content() and keys.METRICS in reply.content.metric_records
            else None
            for reply in replies
        ]
        counted = Counter(each for each in names if each is not None).most_common(1)
        # A sum over replies of different views would count other nodes in each.
        usual = counted[0][0] if counted else None
        return [
            reply
            if each is None or each == usual
            else refused(
                reply, f"expected the counts of most clients, found {short_repr(sorted(each))}"
            )
            for reply, each in zip(replies, names, strict=True)
        ]

    def _training_fault(self, content: RecordDict, node: int) -> str:
        privacy, table = self._config.privacy, _training_table()
        nodes = self._nodes.get(node, MAX_NODES)
        # A client may have no labelled node, or no node at all.
        least = int(nodes > 0 and self._config.aggregate_weight != "labelled")
        # Why (decision 9): under differential privacy, all clients weigh the same.
        table[keys.WEIGHT] = whole(least, nodes) if privacy.dp == "none" else whole(1, 1)
        if privacy.dp != "none" and privacy.clipping == "adaptive":
            table[keys.UNCLIPPED] = real(0, 1)
        records = {keys.ARRAYS: ArrayRecord, keys.METRICS: MetricRecord}
        # A method of sums sends no statistics: what its spec does not declare is refused.
        optional: dict[str, type] = {keys.STATISTICS: ArrayRecord} if self._reads_each else {}
        if self._config.upload_precision == INT8:
            optional[keys.SCALES] = ArrayRecord
        return records_fault(content, records, optional) or entries_fault(
            messages.metrics_of(content), table
        )

    def _counts_fault(self, content: RecordDict, node: int, splits: Sequence[str]) -> str:
        final, records = "test" in splits, dict[str, type]({keys.METRICS: MetricRecord})
        records |= {keys.CONFIG: ConfigRecord} if final else {}
        if fault := records_fault(content, records):
            return fault
        if final and (fault := entries_fault(content.config_records[keys.CONFIG], _NAMES)):
            return fault
        # No more than the client described before the run: a later lie contradicts an earlier one.
        nodes = whole(0, self._nodes.get(node, MAX_NODES))
        metrics = messages.metrics_of(content)
        calibrated = self._config.privacy.dp == "none"
        rules = CountRules(self._views, nodes, self._classes, whole(0, MAX_TOKENS), calibrated)
        return rules.fault(metrics, splits)


def total_fault(
    metrics: Mapping[str, Any], task: str, config: RunConfig, largest: int = MAX_NUMBER
) -> str:
    """Return what is wrong with the sum of metrics over clients, where single ones are masked.

    Parameters
    ----------
    task : TRAIN, EVALUATE or WEIGH
    largest : sum of all clients' weights (TRAIN) or nodes (EVALUATE)
    """
    if task == keys.WEIGH:
        names = (keys.WEIGHT, keys.NODES, keys.ENCODER_TOKENS)
        sums: dict[str, Rule] = dict.fromkeys(names, whole())
        sums[keys.WEIGHT] = whole(1)
        if votes := vote_size(config):
            sums[keys.READING_VOTES] = list_of(whole(0, config.clients * MAX_PROBED), votes, votes)
        return entries_fault(metrics, sums)
    if task == keys.TRAIN:
        # Bounded for all clients together: under masks nobody sees whose number is false.
        table = _training_table() | {keys.WEIGHT: whole(1, largest)}
        if config.privacy.dp != "none" and config.privacy.clipping == "adaptive":
            table[keys.UNCLIPPED] = real()
        return entries_fault(metrics, table)
    if keys.LOSSES in metrics:
        return losses_fault(metrics, config, largest)
    views = (*final_views(config), "deployed")
    splits = [split for split in ("val", "test") if keys.total_of(split) in metrics]
    rules = CountRules(views, whole(0, largest), calibrated=config.privacy.dp == "none")
    return rules.fault(metrics, splits or ["val"])


def losses_fault(metrics: Mapping[str, Any], config: RunConfig, nodes: int) -> str:
    """Return what is wrong with the losses of mixtures on at most so many nodes."""
    scored = metrics.get(keys.WEIGHT)
    largest = MAX_LOSS * (scored if isinstance(scored, int) else 0)
    each = list_of(whole(0, largest), *[len(candidates(config.personal))] * 2)
    table: dict[str, Rule] = {keys.WEIGHT: whole(0, nodes), keys.LOSSES: each}
    return entries_fault(metrics, table | {keys.seconds_of("train"): real(0)})


def _training_table() -> dict[str, Rule]:
    table: dict[str, Rule] = {keys.LOSS: real(), **{name: whole() for name in COUNTS}}
    return table | {keys.seconds_of(phase): real(0) for phase in PHASES}


def _whole_fault(request: Message, reply: Message) -> str:
    """Return a fault of any reply: another task, no content, or arrays that cannot be read."""
    kind = request.metadata.message_type
    if reply.metadata.message_type != kind or not reply.has_content():
        return f"expected an answer to {kind}, found {short_repr(reply.metadata.message_type)}"
    # Sizes before content: no array is read whose bytes are not those of its type and shape.
    for record in reply.content.array_records.values():
        if len(record) > _MAX_ARRAYS:
            return f"expected at most {_MAX_ARRAYS} arrays, found {len(record)}"
        for name, array in record.items():
            if len(name) > _NAME:
                return f"expected names of at most {_NAME} characters, found {len(name)}"
            if fault := array_fault(array):
                return f"{short_repr(name)}: {fault}"
    return ""


def _greeting_fault(content: RecordDict) -> str:
    # Why (decision 26): a greeting of another protocol may have other entries; what all have says
    # who sent it, and `join` refuses it with a line that says what to install.
    stated = dict(content.config_records.get(keys.CONFIG, {}))
    common = {name: stated.get(name) for name in (keys.PARTITION, keys.PROTOCOL)}
    rules = {name: _HELLO[name] for name in common}
    if common[keys.PROTOCOL] != PROTOCOL and not entries_fault(common, rules):
        return ""
    records, signed = {keys.CONFIG: ConfigRecord}, content.config_records.get(keys.SIGNED)
    return (
        records_fault(content, records, {keys.SIGNED: ConfigRecord})
        or entries_fault(content.config_records[keys.CONFIG], _HELLO)
        or ("" if signed is None else entries_fault(signed, SIGNED))
    )
