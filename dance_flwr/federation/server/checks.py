"""Checks of replies at the server: records, entries and ranges by task, then uploads as tensors.

`polling.ask` turns a reply that breaks a rule into an error of its sender. Metrics are checked for
one client, or as their sum over clients under masks, which hide single ones.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, sqrt
from statistics import median_low
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from dance_flwr import events
from dance_flwr.client_data.reading_probe import MAX_PROBED, is_settled, readings
from dance_flwr.config.sections import FLOAT32, INT8
from dance_flwr.config.tree import RunConfig
from dance_flwr.federation.declarations import (
    EXCHANGED,
    GREETING,
    MAX_NAME,
    MAX_NODES,
    MAX_TOKENS,
    SEALED,
    counts,
    evaluated,
    mixture_losses,
    schema,
    trained,
    training_metrics,
    weighed,
)
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.privacy.clipping import clip
from dance_flwr.federation.privacy.dp import update_bound
from dance_flwr.federation.privacy.quantiser import (
    Quantised,
    dequantise,
    expected_types,
    scales_fault,
)
from dance_flwr.federation.secagg.server import masked_fault, unlike_faults, unusual
from dance_flwr.federation.server.replies import scales_of, upload_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.rules import (
    MAX_NUMBER,
    Rule,
    Table,
    content_fault,
    entries_fault,
    real,
    short_repr,
    whole,
)
from dance_flwr.federation.wire.tensors import array_fault
from dance_flwr.fingerprint import PROTOCOL
from dance_flwr.methods import final_views, get_spec
from dance_flwr.methods.contract import Uplink
from dance_flwr.methods.server_side import ServerSide, State, Upload
from dance_flwr.methods.upload_checks import model_fault, update_norm
from dance_flwr.nn.mixture import candidates

LOG = logging.getLogger("flwr")
_MAX_ARRAYS = 100_000
_OUTLIER = 10.0
# Why 2: clients train with a fresh Adam per round, whose steps hardly depend on the gradient, so
# that honest updates have nearly one length. On Cora, with 21 methods and for two of them in 19
# settings (skewed and few labels, 5 to 20 clients, backbones, rates, epochs), the longest was 1.26
# times the median of its round, and 1.15 times the longest of its client before
# (studies/benchmarks/poisoning.py --honest).
_MAX_RATIO = 2.0
# Two updates differ from each other, and nobody knows which is the outlier.
_MIN_FOR_MEDIAN = 3
_LONGEST = "longest-update-"  # of a client, whose number follows


def vote_size(config: RunConfig) -> int:
    """Return the number of a client's votes on the reading; 0 if there is no vote."""
    # Why (decision 18): votes are exact counts of validation nodes, which no privacy budget covers.
    if config.privacy.dp != "none" or is_settled(config):
        return 0
    return 2 * len(readings(config))


def hello_fault(request: Message, reply: Message) -> str:
    """Return the error in an answer to HELLO, or "" if it is valid."""
    return _whole_fault(request, reply) or _greeting_fault(reply.content)


class ReplyChecks:
    """The checks of the replies of one run, against their declarations."""

    def __init__(self, config: RunConfig) -> None:
        self._config, spec = config, get_spec(config.method)
        # A method of sums sends no statistics: what its spec does not declare is refused.
        self._beside_model = [keys.STATISTICS] if spec.uplink is Uplink.EACH else []
        self._beside_model += [keys.SCALES] if config.upload_precision == INT8 else []
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
        if SECAGG_CONFIGS in request.content:
            return masked_fault(request, reply)
        kind, content = request.metadata.message_type, reply.content
        if kind == keys.HELLO:
            return _greeting_fault(content)
        if kind == keys.DESCRIBE:
            # Under masks only the sums of votes and of sizes are known.
            masks = self._config.privacy.secure_aggregation
            form = schema(0 if masks else vote_size(self._config))
            return content_fault(content, form) or _votes_fault(content)
        if kind in (keys.SEAL, keys.EXCHANGE):
            return content_fault(content, SEALED if kind == keys.SEAL else EXCHANGED)
        # No more than the client described before the run: a later lie contradicts an earlier one.
        nodes = self._nodes.get(request.metadata.dst_node_id, MAX_NODES)
        asked = messages.config_of(request)
        metrics: Mapping[str, Any] = messages.record_in(content, keys.METRICS, MetricRecord) or {}
        losses, final = asked.get(keys.PERSONALISE, False), asked.get(keys.FINAL, False)
        tokens = whole(0, MAX_TOKENS)
        table, splits = scores_of(
            self._config, metrics, nodes, losses, final, self._classes, tokens
        )
        if kind == keys.EVALUATE:
            form = evaluated(table, final=final)
            return content_fault(content, form) or counts_fault(metrics, splits)
        training, scored = training_metrics(*self._weight_rules(nodes)), validates(request)
        form = trained(table | training if scored else training, self._beside_model)
        return content_fault(content, form) or (split_fault(metrics, "val") if scored else "")

    def alike(self, request: Message, replies: Sequence[Message]) -> list[Message]:
        """Return the replies to one batch, with an error for each that differs from the majority.

        Validations must count the same views, as a sum over some views in some replies has the
        wrong number of nodes; those of a masked stage must fit together.
        """
        valid = [reply for reply in replies if not reply.has_error()]
        if SECAGG_CONFIGS in request.content:
            found = unlike_faults(request, valid)
        elif request.metadata.message_type == keys.EVALUATE or validates(request):
            names = [str(sorted(messages.metrics_of(reply.content))) for reply in valid]
            found = unusual(names, "the counts of most clients")
        else:
            return list(replies)
        # By identity, as two replies may be equal.
        faults = dict(zip(map(id, valid), found, strict=True))
        return [
            messages.with_error(reply, keys.INVALID_REPLY, fault)
            if (fault := faults.get(id(reply), ""))
            else reply
            for reply in replies
        ]

    def _weight_rules(self, nodes: int) -> tuple[Rule, Rule | None]:
        privacy = self._config.privacy
        # Why (decision 9): under differential privacy, all clients weigh the same.
        if privacy.dp != "none":
            return whole(1, 1), real(0, 1) if privacy.clipping == "adaptive" else None
        # A client may have no labelled node, or no node at all.
        least = int(nodes > 0 and self._config.aggregate_weight != "labelled")
        return whole(least, nodes), None


def validates(request: Message) -> bool:
    """Whether a message asks for a validation beside its training."""
    return bool(messages.config_of(request).get(keys.VALIDATE, False))


def total_fault(
    metrics: Mapping[str, Any],
    task: str,
    config: RunConfig,
    weight: int = MAX_NUMBER,
    nodes: int = MAX_NUMBER,
) -> str:
    """Return the error in the sum of metrics over clients, or "" if it is valid.

    Parameters
    ----------
    task : TRAIN, EVALUATE or WEIGH
    weight, nodes : sums over all clients
    """
    if task == keys.WEIGH:
        return entries_fault(metrics, weighed(vote_size(config), config.clients * MAX_PROBED))
    if task == keys.TRAIN:
        # Bounded for all clients together: under masks nobody sees whose number is false.
        adaptive = config.privacy.dp != "none" and config.privacy.clipping == "adaptive"
        training = training_metrics(whole(1, weight), real() if adaptive else None)
        if keys.total_of("val") not in metrics:
            return entries_fault(metrics, training)
        table, _ = scores_of(config, metrics, nodes, losses=False, final=False)
        return entries_fault(metrics, table | training) or split_fault(metrics, "val")
    losses, final = keys.LOSSES in metrics, keys.total_of("test") in metrics
    table, splits = scores_of(config, metrics, nodes, losses, final)
    return entries_fault(metrics, table) or counts_fault(metrics, splits)


def scores_of(
    config: RunConfig,
    metrics: Mapping[str, Any],
    nodes: int,
    losses: bool,
    final: bool,
    classes: int = 0,
    tokens: Rule | None = None,
) -> tuple[Table, Sequence[str]]:
    """Declare the metrics of an answer to EVALUATE with up to so many nodes; return its splits.

    Parameters
    ----------
    losses, final : whether it has the losses of mixtures, and no split, or counts of both splits
    """
    if losses:
        return mixture_losses(nodes, len(candidates(config.personal)), metrics), ()
    splits = ("val", "test") if final else ("val",)
    views = (*final_views(config), "deployed")
    scored = metrics if config.privacy.dp == "none" else None
    return counts(splits, views, whole(0, nodes), classes, tokens or whole(), scored), splits


def counts_fault(metrics: Mapping[str, Any], splits: Sequence[str]) -> str:
    """Return where the counts of an answer to EVALUATE disagree, or "" if they fit together."""
    if not splits:
        return ""
    # The weight of an evaluation is its number of nodes, so that it follows from the counts.
    if metrics[keys.WEIGHT] != (total := sum(metrics[keys.total_of(s)] for s in splits)):
        return f"expected {keys.WEIGHT} {total}, found {metrics[keys.WEIGHT]}"
    for split in splits:
        if fault := split_fault(metrics, split):
            return fault
    for what in ("chunks", "tokens"):
        once, all_ = (
            metrics.get(keys.tokens_of(f"{of}_{what}"), 0) for of in ("distinct", "evidence")
        )
        if once > all_:
            return f"expected at most {all_} distinct {what} of evidence, found {once}"
    return ""


def split_fault(metrics: Mapping[str, Any], split: str) -> str:
    """Return where the counts of one split disagree, or "" if they fit together."""
    total = metrics[keys.total_of(split)]
    hits, predicted, actual = (metrics[keys.per_class(split, name)] for name in messages.PER_CLASS)
    deployed = metrics[keys.correct_of(split, "deployed")]
    prefix = keys.correct_of(split, "")
    largest = max(value for key, value in metrics.items() if key.startswith(prefix))
    # In every view, even one without counts by class.
    if largest > total:
        return f"expected at most {total} hits on {split}, found {largest}"
    # Each node has one label and one prediction, so sums over classes are those of the split.
    lengths, sums = {len(hits), len(predicted), len(actual)}, (sum(predicted), sum(actual))
    if len(lengths) > 1 or (*sums, sum(hits)) != (total, total, deployed):
        return (
            f"expected {total} nodes and {deployed} hits over the classes of {split}, found others"
        )
    rows = enumerate(zip(hits, predicted, actual, strict=True))
    # Hits of a class are among its nodes, and among the nodes with that prediction.
    over = [place for place, row in rows if row[0] > min(row)]
    return f"expected fewer hits than nodes in class {over[0]} of {split}" if over else ""


def _whole_fault(request: Message, reply: Message) -> str:
    """Return an error that any reply may have: another task, no content, unreadable arrays."""
    kind = request.metadata.message_type
    if reply.metadata.message_type != kind or not reply.has_content():
        return f"expected an answer to {kind}, found {short_repr(reply.metadata.message_type)}"
    # Sizes before content: no array is read whose bytes are not those of its type and shape.
    for record in reply.content.values():
        if not isinstance(record, ArrayRecord):
            continue
        if len(record) > _MAX_ARRAYS:
            return f"expected at most {_MAX_ARRAYS} arrays, found {len(record)}"
        for name, array in record.items():
            if len(name) > MAX_NAME:
                return f"expected names of at most {MAX_NAME} characters, found {len(name)}"
            if fault := array_fault(array):
                return f"{short_repr(name)}: {fault}"
    return ""


def _votes_fault(content: RecordDict) -> str:
    answer: Mapping[str, Any] = content[keys.CONFIG]
    votes, nodes = answer["reading_votes"], answer[keys.SCHEMA_NODES]
    # A validation node is gained or lost by a reading, not both.
    most = max(map(sum, zip(votes[::2], votes[1::2], strict=True)), default=0)
    return f"expected votes of up to {nodes} nodes, found {most}" if most > nodes else ""


def _greeting_fault(content: RecordDict) -> str:
    # Why (decision 26): a greeting of another protocol may have other entries; what all have says
    # who sent it, and `join` refuses it with a line that says what to install.
    stated: Mapping[str, Any] = messages.record_in(content, keys.CONFIG, ConfigRecord) or {}
    common = {name: stated.get(name) for name in (keys.PARTITION, keys.PROTOCOL)}
    if common[keys.PROTOCOL] != PROTOCOL and all(map(whole().allows, common.values())):
        return ""
    return content_fault(content, GREETING)


class NormHistory:
    """Bound the update of each client by those of the others and by its own past.

    An update is at most twice as long as the (lower) median of the updates of its round, where at
    least three clients moved, and twice as long as the longest that its client sent so far. A
    majority of honest clients keeps the median honest, and the past keeps a client from a sudden
    change where there is no majority. Norm bounding is from Sun et al. 2019 ("Can You Really
    Backdoor Federated Learning?").

    Attributes
    ----------
    longest : client -> norm of its longest update so far
    """

    def __init__(self) -> None:
        self.longest: dict[int, float] = {}

    def bounds(self, norms: Mapping[int, float]) -> dict[int, float]:
        """Return the bound of each client's update in this round, and remember the round.

        Parameters
        ----------
        norms : client -> norm of its update
        """
        # An update of zero is that of a client without a label: it says nothing about the others.
        moved = sorted(norm for norm in norms.values() if norm > 0)
        usual = median_low(moved) if len(moved) >= _MIN_FOR_MEDIAN else inf
        bounds = {
            client: _MAX_RATIO * min(usual, self.longest.get(client, inf)) for client in norms
        }
        for client, norm in norms.items():
            # What was applied, or a client would raise its own bound by what was refused.
            if applied := min(norm, bounds[client]):
                self.longest[client] = max(applied, self.longest.get(client, 0.0))
        return bounds

    def numbers(self) -> dict[str, float]:
        """Return the history by name, for a checkpoint."""
        return {f"{_LONGEST}{client}": norm for client, norm in self.longest.items()}

    def restore(self, numbers: Mapping[str, float]) -> None:
        """Restore what `numbers` returned, among other numbers."""
        self.longest = {
            int(name.removeprefix(_LONGEST)): norm
            for name, norm in numbers.items()
            if name.startswith(_LONGEST)
        }


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
    # Ten times the median (the lower one: of two clients, none can raise the bound of the other),
    # which is that of an honest client as long as most are; or, where a client is alone or others
    # have not moved, ten times the model, more than training changes in a round.
    bounds = [_OUTLIER * max(median_low(norms), lengths[id(model)]) for model in received]
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
    precision, upload = side.config.upload_precision, upload_of(reply, client)
    expected = side.expected(start)
    if precision == FLOAT32 or side.config.privacy.secure_aggregation:
        return upload, model_fault(upload.state, expected)
    scales = scales_of(reply)
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
