"""Checks of replies at the server: records, entries and ranges by task, then uploads as tensors.

`polling.ask` turns a reply that breaks a rule into an error of its sender. Metrics are checked for
one client, or as their sum over clients under masks, which hide single ones.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import sqrt
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from dance_flwr import events
from dance_flwr.client_data.reading_probe import MAX_PROBED
from dance_flwr.config.sections import FLOAT32, INT8
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.checks import MAX_CLASS_NAME, MAX_CLASSES
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.privacy.dp import clip, update_bound
from dance_flwr.federation.privacy.quantiser import (
    Quantised,
    dequantise,
    expected_types,
    scales_fault,
)
from dance_flwr.federation.secagg.reply_checks import SIGNED, masked_fault, unlike_faults
from dance_flwr.federation.server.reading import vote_size
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.counts import PER_CLASS
from dance_flwr.federation.wire.rules import (
    FLAG,
    MAX_NUMBER,
    Form,
    Rule,
    content_fault,
    entries_fault,
    list_of,
    real,
    short_repr,
    text,
    whole,
)
from dance_flwr.federation.wire.tensors import array_fault
from dance_flwr.fingerprint import PROTOCOL
from dance_flwr.methods import final_views, get_spec
from dance_flwr.methods.contract import Uplink
from dance_flwr.methods.server_side import ServerSide, State, Upload
from dance_flwr.methods.upload_checks import NormHistory, model_fault, norm_bounds, update_norm
from dance_flwr.metrics import COUNTS, PHASES, TOKEN_COUNTS
from dance_flwr.nn.calibration import BINS, TEMPERATURES
from dance_flwr.nn.mixture import MAX_LOSS, THOUSANDTHS, candidates

LOG = logging.getLogger("flwr")
MAX_NODES = 2**31 - 1  # of one client
MAX_TOKENS = 2**40  # of one client in one run; as many calls or milliseconds
_MAX_ARRAYS, _NAME = 100_000, 200  # _NAME: characters
# By the annotation of a field, so that a field that is added to an answer has a rule.
_BY_TYPE: dict[str, Rule] = {
    "int": whole(),
    "bool": FLAG,
    "str": text(_NAME),
    "tuple[str, ...]": list_of(text(MAX_CLASS_NAME), 1, MAX_CLASSES),
    "tuple[int, ...]": list_of(whole(0, MAX_PROBED), 0, 0),
}


def _table_of(answer: type) -> dict[str, Rule]:
    return {field.name: _BY_TYPE[str(field.type)] for field in fields(answer)}


# What each answer holds; `ReplyChecks` adds what depends on the run or on the client.
_HELLO = _table_of(messages.Hello)
_SCHEMA = _table_of(messages.Schema)
_SCHEMA |= {"text_dim": whole(1), keys.SCHEMA_NODES: whole(0, MAX_NODES)}
_SEAL: Form = {keys.CONFIG: (ConfigRecord, {keys.EVIDENCE_SHA256: text(64)})}
_EXCHANGE: Form = {keys.EXCHANGED: (ArrayRecord, None)}
_TRAINING: dict[str, Rule] = {
    keys.LOSS: real(),
    **dict.fromkeys(COUNTS, whole()),
    **dict.fromkeys(map(keys.seconds_of, PHASES), real(0)),
}
_COUNTS: Form = {keys.METRICS: (MetricRecord, None)}  # see `CountRules`
_MODEL_NAMES: Form = {
    keys.CONFIG: (ConfigRecord, dict.fromkeys((keys.LLM, keys.TOKENISER), text(_NAME)))
}
# Split -> the largest sum of a node, and how many sums there are.
_CALIBRATION = {
    "val": (MAX_LOSS, len(TEMPERATURES)),
    "test": (2 * THOUSANDTHS, len(TEMPERATURES) * BINS),
}


def hello_fault(request: Message, reply: Message) -> str:
    """Return the error in an answer to HELLO, or "" if it is valid."""
    return _whole_fault(request, reply) or _greeting_fault(reply.content)


class ReplyChecks:
    """The checks of the replies of one run."""

    def __init__(self, config: RunConfig) -> None:
        self._config, spec = config, get_spec(config.method)
        # Under masks only the sum of the votes is known, as that of the sizes.
        votes = 0 if config.privacy.secure_aggregation else vote_size(config)
        rules = _SCHEMA | {"reading_votes": list_of(whole(0, MAX_PROBED), votes, votes)}
        self._schema: Form = {keys.CONFIG: (ConfigRecord, rules)}
        # A method of sums sends no statistics: what its spec does not declare is refused.
        extra = [keys.STATISTICS] if spec.uplink is Uplink.EACH else []
        extra += [keys.SCALES] if config.upload_precision == INT8 else []
        self._beside_model: Form = dict.fromkeys(extra, (ArrayRecord, None))
        self._views = (*final_views(config), "deployed")
        self._nodes: dict[int, int] = {}
        self._classes = 0

    def learn(self, schemas: Mapping[int, messages.Schema]) -> None:
        """Bound later replies by what clients described."""
        self._nodes = {node: schema.num_nodes for node, schema in schemas.items()}
        self._classes = max((len(schema.class_names) for schema in schemas.values()), default=0)

    def fault(self, request: Message, reply: Message) -> str:
        """Return the error in a reply, or "" if it is valid.

        A stage of a masked sum shows no number of one client; `masked_fault` checks the rest.
        """
        if fault := _whole_fault(request, reply):
            return fault
        # By the request, which is the server's own: a reply does not choose its rules.
        if SECAGG_CONFIGS in request.content.config_records:
            return masked_fault(request, reply)
        kind, content = request.metadata.message_type, reply.content
        # No more than the client described before the run: a later lie contradicts an earlier one.
        nodes = self._nodes.get(request.metadata.dst_node_id, MAX_NODES)
        if kind == keys.HELLO:
            return _greeting_fault(content)
        if kind == keys.DESCRIBE:
            return content_fault(content, self._schema)
        if kind == keys.SEAL:
            return content_fault(content, _SEAL)
        if kind == keys.EXCHANGE:
            return content_fault(content, _EXCHANGE)
        if kind == keys.TRAIN:
            rules = _TRAINING | self._weight_rules(nodes)
            form: Form = {keys.ARRAYS: (ArrayRecord, None), keys.METRICS: (MetricRecord, rules)}
            return content_fault(content, form, self._beside_model)
        if kind != keys.EVALUATE:
            return ""
        config = messages.config_of(request)
        metrics: Mapping[str, Any] = content.metric_records.get(keys.METRICS, {})
        if config.get(keys.PERSONALISE, False):
            rules = _losses_rules(metrics, self._config, nodes)
            return content_fault(content, {keys.METRICS: (MetricRecord, rules)})
        final = config.get(keys.FINAL, False)
        calibrated = self._config.privacy.dp == "none"
        tokens = whole(0, MAX_TOKENS)
        counts = CountRules(self._views, whole(0, nodes), self._classes, tokens, calibrated)
        return content_fault(content, {**_COUNTS, **(_MODEL_NAMES if final else {})}) or (
            counts.fault(metrics, ("val", "test") if final else ("val",))
        )

    def alike(self, request: Message, replies: Sequence[Message]) -> list[Message]:
        """Return the replies to one batch, with an error for each that differs from the majority.

        Answers to EVALUATE must count the same views, as a sum over some views in some replies has
        the wrong number of nodes; those of a masked stage must fit together.
        """
        masked = SECAGG_CONFIGS in request.content.config_records
        if request.metadata.message_type != keys.EVALUATE and not masked:
            return list(replies)
        valid = [reply for reply in replies if not reply.has_error()]
        if request.metadata.message_type == keys.EVALUATE:
            names = [sorted(messages.metrics_of(reply.content)) for reply in valid]
            usual = Counter(map(tuple, names)).most_common(1)
            found = [
                ""
                if tuple(each) == usual[0][0]
                else f"expected the counts of most clients, found {short_repr(each)}"
                for each in names
            ]
        else:
            found = unlike_faults(request, valid)
        # By identity, as two replies may be equal.
        faults = dict(zip(map(id, valid), found, strict=True))
        return [
            messages.with_error(reply, keys.INVALID_REPLY, fault)
            if (fault := faults.get(id(reply), ""))
            else reply
            for reply in replies
        ]

    def _weight_rules(self, nodes: int) -> dict[str, Rule]:
        privacy = self._config.privacy
        # Why (decision 9): under differential privacy, all clients weigh the same.
        if privacy.dp != "none":
            bit = {keys.UNCLIPPED: real(0, 1)} if privacy.clipping == "adaptive" else {}
            return {keys.WEIGHT: whole(1, 1), **bit}
        # A client may have no labelled node, or no node at all.
        least = int(nodes > 0 and self._config.aggregate_weight != "labelled")
        return {keys.WEIGHT: whole(least, nodes)}


def total_fault(
    metrics: Mapping[str, Any], task: str, config: RunConfig, largest: int = MAX_NUMBER
) -> str:
    """Return the error in the sum of metrics over clients, or "" if it is valid.

    Parameters
    ----------
    task : TRAIN, EVALUATE or WEIGH
    largest : sum of all clients' weights (TRAIN) or nodes (EVALUATE)
    """
    if task == keys.WEIGH:
        sums = {keys.WEIGHT: whole(1), keys.NODES: whole(), keys.ENCODER_TOKENS: whole()}
        if votes := vote_size(config):
            sums[keys.READING_VOTES] = list_of(whole(0, config.clients * MAX_PROBED), votes, votes)
        return entries_fault(metrics, sums)
    if task == keys.TRAIN:
        # Bounded for all clients together: under masks nobody sees whose number is false.
        table = _TRAINING | {keys.WEIGHT: whole(1, largest)}
        if config.privacy.dp != "none" and config.privacy.clipping == "adaptive":
            table[keys.UNCLIPPED] = real()
        return entries_fault(metrics, table)
    if keys.LOSSES in metrics:
        return entries_fault(metrics, _losses_rules(metrics, config, largest))
    views = (*final_views(config), "deployed")
    splits = [split for split in ("val", "test") if keys.total_of(split) in metrics]
    rules = CountRules(views, whole(0, largest), calibrated=config.privacy.dp == "none")
    return rules.fault(metrics, splits or ["val"])


@dataclass(frozen=True)
class CountRules:
    """The rules of an answer to EVALUATE, of one client or summed over several.

    Attributes
    ----------
    views : that it may count; it must count "deployed"
    nodes : rule for every count of nodes
    classes : their number; 0 = unknown
    tokens : rule for every count of tokens over the run; they come with the test split
    calibrated : whether sums for the calibration come with them, too
    """

    views: Sequence[str]
    nodes: Rule
    classes: int = 0
    tokens: Rule = field(default_factory=whole)
    calibrated: bool = False

    def fault(self, metrics: Mapping[str, Any], splits: Sequence[str]) -> str:
        """Return the error in an answer that must count these splits, or "" if it is valid."""
        by_class = list_of(self.nodes, self.classes, self.classes or MAX_CLASSES)
        table: dict[str, Rule] = {keys.WEIGHT: self.nodes}
        optional = {keys.correct_of(split, view) for split in splits for view in self.views}
        # A method may count fewer views than it has, but the deployed one is what is validated.
        optional -= {keys.correct_of(split, "deployed") for split in splits}
        # Tokens of the run come once, with the counts of the final model.
        if "test" in splits:
            table |= {keys.tokens_of(name): self.tokens for name in TOKEN_COUNTS}
            for split, (largest, size) in _CALIBRATION.items() if self.calibrated else ():
                # A total that is no whole number breaks its own rule.
                nodes = n if type(n := metrics.get(keys.total_of(split))) is int else 0
                rule = list_of(whole(0, largest * nodes), size, size)
                table[keys.calibration_of(split)] = rule
        for split in splits:
            table[keys.total_of(split)] = self.nodes
            table |= {keys.correct_of(split, view): self.nodes for view in self.views}
            table |= {keys.per_class(split, name): by_class for name in PER_CLASS}
        if fault := entries_fault(metrics, table, optional):
            return fault
        # The weight of an evaluation is its number of nodes, so that it follows from the counts.
        if metrics[keys.WEIGHT] != (total := sum(metrics[keys.total_of(s)] for s in splits)):
            return f"expected {keys.WEIGHT} {total}, found {metrics[keys.WEIGHT]}"
        for split in splits:
            if fault := _counts_fault(metrics, split):
                return fault
        for what in ("chunks", "tokens"):
            once, all_ = (
                metrics.get(keys.tokens_of(f"{of}_{what}"), 0) for of in ("distinct", "evidence")
            )
            if once > all_:
                return f"expected at most {all_} distinct {what} of evidence, found {once}"
        return ""


def _counts_fault(metrics: Mapping[str, Any], split: str) -> str:
    """Return where hits, classes and nodes disagree, as all count the same nodes."""
    total = metrics[keys.total_of(split)]
    hits, predicted, actual = (metrics[keys.per_class(split, name)] for name in PER_CLASS)
    lengths = {len(hits), len(predicted), len(actual)}
    deployed = metrics[keys.correct_of(split, "deployed")]
    largest = max(
        value for key, value in metrics.items() if key.startswith(keys.correct_of(split, ""))
    )
    # In every view, even one without counts by class.
    if largest > total:
        return f"expected at most {total} hits on {split}, found {largest}"
    # Each node has one label and one prediction, so sums over classes are those of the split.
    if len(lengths) > 1 or (sum(predicted), sum(actual), sum(hits)) != (total, total, deployed):
        return (
            f"expected {total} nodes and {deployed} hits over the classes of {split}, found others"
        )
    rows = enumerate(zip(hits, predicted, actual, strict=True))
    # Hits of a class are among its nodes, and among the nodes with that prediction.
    over = [place for place, row in rows if row[0] > min(row)]
    return f"expected fewer hits than nodes in class {over[0]} of {split}" if over else ""


def _losses_rules(metrics: Mapping[str, Any], config: RunConfig, nodes: int) -> dict[str, Rule]:
    """Return the rules of the losses of mixtures on up to this many nodes."""
    scored = metrics.get(keys.WEIGHT)
    largest = MAX_LOSS * (scored if isinstance(scored, int) else 0)
    each = list_of(whole(0, largest), *[len(candidates(config.personal))] * 2)
    rules = {keys.WEIGHT: whole(0, nodes), keys.LOSSES: each}
    return rules | {keys.seconds_of("train"): real(0)}


def _whole_fault(request: Message, reply: Message) -> str:
    """Return an error that any reply may have: another task, no content, unreadable arrays."""
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
    greeting: Form = {keys.CONFIG: (ConfigRecord, _HELLO)}
    return content_fault(content, greeting, {keys.SIGNED: (ConfigRecord, SIGNED)})


def judged_uploads(
    replies: Sequence[Message],
    clients: Sequence[int | None],
    side: ServerSide,
    start: State,
    norm: float | None = None,
) -> list[tuple[Upload, str]]:
    """Return the upload of each reply with its error, or "" if it is valid.

    Parameters
    ----------
    replies : valid training replies, ordered by client
    clients : that sent them; None = a sum of all
    side : defines what an upload must hold
    start : the model that the round started from
    norm : C, what updates were clipped to under differential privacy
    """
    # All uploads are read before any is judged: norms are compared with their median.
    read: list[tuple[Upload, str]] = []
    for reply, client in zip(replies, clients, strict=True):
        upload, fault = read_upload(reply, client, side, start)
        read.append((upload, fault or side.statistics_fault(client, upload.statistics)))
    # A masked sum is bounded where it is decoded.
    places = [
        i for i, (upload, fault) in enumerate(read) if not fault and upload.client is not None
    ]
    received = [side.model_for(read[place][0].client or 0, start) for place in places]
    norms = [
        update_norm(read[place][0].state, model)
        for place, model in zip(places, received, strict=True)
    ]
    # Most methods send all clients one model.
    lengths = {key: _length(model) for key, model in {id(m): m for m in received}.items()}
    bounds = norm_bounds(norms, [lengths[id(model)] for model in received])
    if norm is not None and side.config.privacy.dp != "none":
        # Here the longest honest update is known, and no median is needed.
        bounds = [_private_bound(side.config, norm, model) for model in received]
    for place, length, bound in zip(places, norms, bounds, strict=True):
        fault = f"expected an update of norm {bound:.3g} at most, found {length:.3g}"
        # Why not `>`: a norm that is NaN is refused as well.
        read[place] = replace(read[place][0], norm=length), "" if length <= bound else fault
    return read


def shorten(
    uploads: Sequence[Upload], side: ServerSide, start: State, history: NormHistory
) -> list[Upload]:
    """Shorten the updates that are longer than honest ones, and log their clients.

    Masked sums are bounded where they are decoded, and under differential privacy the clipping
    norm bounds every update.
    """
    # Why shortened and not refused: the direction of a long update may be honest; a refusal would
    # cost an unusual client its part in the model, and a small run its quorum.
    if side.config.privacy.dp != "none" or any(upload.client is None for upload in uploads):
        return list(uploads)
    norms = {upload.client: upload.norm for upload in uploads if upload.client is not None}
    bounds, shortened = history.bounds(norms), list(uploads)
    for place, upload in enumerate(uploads):
        client = upload.client
        # All other updates keep every bit.
        if client is None or norms[client] <= bounds[client]:
            continue
        state, _ = clip(upload.state, side.model_for(client, start), bounds[client])
        shortened[place] = replace(upload, state=state)
        line = (
            f"client {client}: expected an update of norm {bounds[client]:.3g} at most, found "
            f"{norms[client]:.3g}; it is shortened"
        )
        LOG.warning("%s", line)
        events.emit("update_shortened", line, logging.WARNING, client=client)
    return shortened


def _private_bound(config: RunConfig, norm: float, start: Mapping[str, Any]) -> float:
    """Return the largest norm of an update that was clipped to C, with the noise of the run.

    A thousandth is for rounding: of the update to few bits, and of the model to float32.
    """
    if config.privacy.dp == "central":
        return 1.001 * norm + 1e-5 * _length(start)
    entries = sum(t.numel() for t in start.values() if t.is_floating_point())
    return 1.001 * update_bound(config, norm) * sqrt(entries)


def _length(model: Mapping[str, Any]) -> float:
    return update_norm(model, {name: t.new_zeros(()) for name, t in model.items()})


def read_upload(
    reply: Message, client: int | None, side: ServerSide, start: State
) -> tuple[Upload, str]:
    """Return the upload of a reply as a model, and its error, or "" if it is valid.

    A rounded update is added to the model that its client received. Under masks the sum has been
    decoded already.
    """
    precision, upload = side.config.upload_precision, messages.upload_of(reply, client)
    expected = side.expected(start)
    if precision == FLOAT32 or side.config.privacy.secure_aggregation:
        return upload, model_fault(upload.state, expected)
    scales = messages.scales_of(reply)
    fault = model_fault(upload.state, expected_types(expected, precision))
    if fault := fault or scales_fault(scales, expected, precision):
        return upload, fault
    # Why (decision 14): -128 has no opposite, and no honest client sends it.
    steps = [t.flatten() for t in upload.state.values() if t.dtype == torch.int8]
    if steps and bool((torch.cat(steps) == -128).any()):
        return upload, "expected steps from -127 to 127, found -128"
    # The update is relative to the model that this client received, which the method may choose.
    received = start if client is None else side.model_for(client, start)
    floats = {name: t for name, t in upload.state.items() if expected[name].is_floating_point()}
    update = dequantise(Quantised(floats, scales))
    state = {
        name: (received[name].double() + update[name]).to(received[name].dtype)
        if name in update
        else tensor
        for name, tensor in upload.state.items()
    }
    # Again: a step and a scale that are finite may have a product that is not.
    return replace(upload, state=state), model_fault(state, expected)
