"""One round at the server: sample, send, check, merge, protect, step, average, validate.

`Round` wraps one of Flower's strategies, as Flower's own differential-privacy strategies do.
Flower's strategy samples clients and takes the server's step on one merged update. The method's
`ServerSide` merges uploads, `privacy.dp` samples and adds noise, `ModelAverage` computes the
deployed model, and `FederationGrid` knows the clients and counts bytes.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite, nan
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from numpy.typing import NDArray

from dance_flwr.config.plugins import READ_EACH
from dance_flwr.config.sections import FLOAT32
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import QuorumError
from dance_flwr.federation.averaging import ModelAverage
from dance_flwr.federation.privacy.clipping import clip
from dance_flwr.federation.privacy.dp import (
    ClippingNorm,
    affordable_rounds,
    draw_clients,
    fewest_clients,
    protect_mean,
    samples_poisson,
    update_bound,
)
from dance_flwr.federation.server.checks import NormHistory, judged_uploads, shorten
from dance_flwr.federation.server.grid import LOG, FederationGrid, GridChannel
from dance_flwr.federation.server.polling import timeout_of
from dance_flwr.federation.server.replies import read_counts, read_training, sum_metrics
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of, in_types_of, numpy_of, record_of, state_of
from dance_flwr.methods import get_spec
from dance_flwr.methods.server_side import Merged, ServerSide, State, Upload
from dance_flwr.metrics import Counts, Training
from dance_flwr.seeding import derive

Model = ArrayRecord  # a global model as it travels
OnEnd = Callable[[int, ArrayRecord], MetricRecord | None]
Groups = dict[str, dict[str, NDArray[Any]]]
# Names under which Flower's strategies keep arrays between rounds, one per entry of the model.
_STEP_STATE = ("momentum_vector", "m_t", "v_t")


class Round(Strategy):
    """A strategy with a quorum, bounds, differential privacy and an average over rounds.

    Parameters
    ----------
    config : of the run
    step : Flower's strategy, which samples clients and steps on the merged update
    side : the method's server side, which merges uploads
    on_train : receives the cost and the counts of a round of training
    on_validation : receives the summed counts of a validation, None where a masked sum hides them

    Attributes
    ----------
    deployed : the model that is validated and saved: the last one, or the average over rounds
    norm : C, to which the updates of a round are clipped
    offset : rounds of the run that were completed before `start`
    last : number of the last round, which is always validated
    """

    deployed: ArrayRecord
    _grid: FederationGrid

    def __init__(
        self,
        config: RunConfig,
        step: FedAvg,
        side: ServerSide,
        on_train: Callable[[Training], None],
        on_validation: Callable[[Counts | None], None],
    ) -> None:
        self.config, self.step, self.side = config, step, side
        self.norm, self.norms = ClippingNorm(config), NormHistory()
        self.average = ModelAverage(config.ema_decay if side.averages_rounds else 0.0)
        self.offset, self.last = 0, affordable_rounds(config)
        self._on_train, self._on_validation = on_train, on_validation
        self._views = (*get_spec(config.method).views, "deployed")
        self._start: State = {}
        self._asked = 0  # clients of the batch that is under way

    def is_validated(self, round_: int) -> bool:
        """Whether a round has a validation; never under differential privacy, which counts none."""
        if self.config.privacy.withholds_numbers:
            return False
        return not round_ % self.config.evaluate_every or round_ == self.last

    def waits(self, round_: int) -> bool:
        """Whether clients validate the model of a round before they train in the next one.

        So a round is one exchange. Not where training and validation sample clients.
        """
        everyone = self.config.client_fraction == self.config.evaluate_fraction == 1
        return everyone and 0 < round_ != self.last and self.is_validated(round_)

    @property
    def remaining(self) -> int:
        """Rounds that are left to `run`."""
        return max(0, self.last - self.offset)

    def summary(self) -> None:
        """Log the settings of Flower's strategy."""
        self.step.summary()

    def run(
        self, grid: FederationGrid, arrays: ArrayRecord, config: Mapping[str, Any], on_end: OnEnd
    ) -> None:
        """Run the remaining rounds."""
        # Flower's strategies count from 1 at every start and cannot resume: `offset` is the number
        # of rounds of earlier starts, and `on_end`, called as `evaluate_fn`, writes checkpoints
        # (decision 10).
        self.start(
            cast(Grid, grid),
            arrays,
            num_rounds=self.remaining,
            timeout=timeout_of(self.config),
            train_config=ConfigRecord(dict(config)),
            evaluate_config=ConfigRecord(dict(config)),
            evaluate_fn=on_end,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample clients; return a message to each, with its model and the method's payload."""
        round_ = server_round + self.offset
        assert isinstance(grid, FederationGrid)
        self._grid, self._start = grid, state_of(arrays)
        # 1. What the method needs of its clients before they train.
        self.side.before_round(round_, GridChannel(grid, self.config, config))
        # A function of the round alone, so that a resumed run asks the same clients.
        random.seed(derive(self.config.seed, "sampling", round_=round_))
        # 2. Draw clients: by Flower's strategy, or independently for accounting (decision 9).
        joint = {keys.VALIDATE: True} if self.waits(round_ - 1) else {}
        settings = ConfigRecord({**config, keys.CLIPPING_NORM: self.norm.value, **joint})
        batch = list(self.step.configure_train(round_, arrays, settings, grid))
        if samples_poisson(self.config):
            drawn = draw_clients(list(grid.get_node_ids()), self.config, round_)
            batch = [Message(batch[0].content, node, keys.TRAIN) for node in drawn]
        self._asked = len(batch)
        # 3. To each client its part of the model and what the method's server side has for it.
        return [self._for_client(message, trains=True) for message in batch]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Merge the valid uploads of a round and take the server's step."""
        round_ = server_round + self.offset
        answers = list(replies)
        of_start = self._validated(answers) if self.waits(round_ - 1) else {}
        # The norm that this round's clients clipped to, before it adapts.
        norm = self.norm.value
        uploads, metrics = self._valid_uploads(answers, norm)
        accepted = len(uploads)
        # Independent draws may choose nobody.
        if not uploads:
            return self._skip(round_, "no client was drawn", Training(nan, {}, {}))
        uploads = shorten(uploads, self.side, self._start, self.norms)
        total = sum_metrics(metrics)
        seconds: dict[int, Mapping[str, float]] = {
            upload.client: read_training(values).seconds
            for upload, values in zip(uploads, metrics, strict=True)
            if upload.client is not None
        }
        # With weights of 0, neither the mean of the models nor that of the losses is a number.
        if not sum(upload.weight for upload in uploads):
            cost = replace(read_training(total), loss=nan, by_client=seconds)
            return self._skip(round_, "no client of the round has a labelled training node", cost)
        # Medians read every upload. All others see one merged update, as they do under masks.
        if self.config.strategy in READ_EACH:
            merged = Merged({})
            batch = [
                _merged_reply(answers[0], arrays_of(upload.state), {keys.WEIGHT: upload.weight})
                for upload in uploads
            ]
        else:
            # Clip, merge, add noise: the noise is calibrated for clipped updates.
            bound = update_bound(self.config, norm)
            merged = self.side.merge(self._clipped(uploads, norm), self._start, bound, round_)
            # Weights are 1, so their sum is the number of clients (decision 9).
            count = int(total[keys.WEIGHT])
            if keys.UNCLIPPED in total:
                self.norm.update(total[keys.UNCLIPPED], count, round_)
            state = protect_mean(merged.state, self.config, norm=norm, round_=round_, clients=count)
            batch = [_merged_reply(answers[0], arrays_of(state), total)]
        if type(self.step) is FedAvg:  # whose mean of one model is that model
            arrays: ArrayRecord | None = messages.arrays_in(batch[0])
        else:
            arrays, _ = self.step.aggregate_train(round_, batch)
        clients = read_training(total)
        withheld = self.config.privacy.withholds_numbers  # 0 stands in the place of a loss
        trained = Training(
            nan if withheld else clients.loss if merged.loss is None else merged.loss,
            {**clients.seconds, **merged.seconds},
            {**clients.counts, **merged.counts},
            by_client=seconds,
        )
        self._on_train(trained)
        scores = {"loss": trained.loss} | {
            f"start-{name}": value for name, value in of_start.items()
        }
        record = self._record("train", scores, len(answers) - accepted)
        if arrays is not None:
            # FedAdam returns float64, which would double the bytes of every later round.
            arrays = in_types_of(self._start, arrays)
            self.deployed = self.average.add(arrays)
        return arrays, record

    def _valid_uploads(
        self, replies: Sequence[Message], norm: float
    ) -> tuple[list[Upload], list[Mapping[str, Any]]]:
        """Return the valid uploads and their metrics; the sender of every other one is absent.

        Raises
        ------
        QuorumError : too few uploads are valid; names the senders of the others, and their errors
        """
        clients = [self._grid.author(reply) for reply in replies]
        judged = judged_uploads(replies, clients, self.side, self._start, norm)
        uploads = [upload for upload, fault in judged if not fault]
        rejected = []
        for client, (_, fault) in zip(clients, judged, strict=True):
            if fault:
                sender = "all clients together" if client is None else f"client {client}"
                rejected.append(f"{sender}: {fault}")
                if client is not None:
                    self._grid.mark_absent("upload_rejected", client, fault)
        # Refused uploads count as absent clients: the quorum is that of what is left.
        fewest = min(len(replies), fewest_clients(self.config))
        if len(uploads) < fewest:
            raise QuorumError(
                f"expected at least {fewest} valid updates, found {len(uploads)}; "
                f"{'; '.join(rejected)}"
            )
        return uploads, [
            messages.metrics_of(reply.content)
            for reply, (_, fault) in zip(replies, judged, strict=True)
            if not fault
        ]

    def _clipped(self, uploads: Sequence[Upload], norm: float) -> Sequence[Upload]:
        """Clip rounded updates to C under central noise; their clients clip all others."""
        # Why (decision 14): a client that lies about its norm is clipped after dequantisation.
        if self.config.privacy.dp != "central" or self.config.upload_precision == FLOAT32:
            return uploads
        return [
            # A masked sum cannot be clipped; its clients did.
            upload
            if upload.client is None
            else replace(upload, state=clip(upload.state, self._start, norm)[0])
            for upload in uploads
        ]

    def _skip(self, round_: int, why: str, cost: Training) -> tuple[None, None]:
        """Report a round that leaves the model unchanged; return what Flower expects."""
        LOG.warning("round %d is skipped: %s; the model stays as it is", round_, why)
        self._on_train(replace(cost, skipped=why))
        return None, None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask a share of the clients to validate the deployed model, unless this round `waits`."""
        round_ = server_round + self.offset
        if self.waits(round_) or not self.is_validated(round_):
            return []
        assert isinstance(grid, FederationGrid)
        self._grid = grid
        if self.config.evaluate_fraction < 1:  # a function of the round, as for training
            random.seed(derive(self.config.seed, "validation", round_=round_))
        # The deployed model, not the last one: the run saves what it validates.
        batch = list(self.step.configure_evaluate(round_, self.deployed, config, grid))
        self._asked = len(batch)
        return [self._for_client(message, trains=False) for message in batch]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Sum the counts of a validation."""
        answers = list(replies)
        return self._record("validation", self._validated(answers)) if answers else None

    def _validated(self, answers: Sequence[Message]) -> dict[str, float | None]:
        """Pass on the summed counts of a validation; return its scores, none if they are hidden."""
        total = sum_metrics(messages.metrics_of(reply.content) for reply in answers)
        hidden = keys.total_of("val") not in total
        val = None if hidden else read_counts(total, "val", self._views)
        self._on_validation(val)
        return {"accuracy": val.accuracy, "macro-f1": val.macro_f1} if val else {}

    def _record(
        self, what: str, scores: Mapping[str, float | None], refused: int = 0
    ) -> MetricRecord:
        """Log the numbers of results and failures; return them and the scores for Flower."""
        results = self._grid.answered - refused
        LOG.info("%s: received %d results and %d failures", what, results, self._asked - results)
        known = {k: v for k, v in scores.items() if v is not None and isfinite(v)}
        return MetricRecord({**known, "results": results, "failures": self._asked - results})

    def model_for(self, arrays: ArrayRecord, client: int) -> ArrayRecord:
        """Return the part of a model that this client receives."""
        part = self.side.model_for(client, arrays)
        return arrays if part is arrays else ArrayRecord(dict(part))

    def state(self, arrays: ArrayRecord) -> tuple[Groups, dict[str, float]]:
        """Return the state that a checkpoint needs: arrays by group and name, numbers by name."""
        groups: Groups = {"model": numpy_of(arrays)}
        # Without an average they are one record, stored once.
        if self.deployed is not arrays:
            groups["deployed"] = numpy_of(self.deployed)
        for name in _STEP_STATE:
            value = getattr(self.step, name, None)
            if value is not None:
                by_name = isinstance(value, dict)
                groups[name] = value if by_name else dict(zip(arrays, value, strict=True))
        groups["memory"] = self.side.memory
        if self.average.mean:
            groups["average"] = {name: t.numpy() for name, t in self.average.mean.items()}
        numbers = self.norms.numbers() | {"average-weight": self.average.weight}
        return groups, numbers | {"norm": self.norm.value}

    def restore(self, groups: Groups, numbers: Mapping[str, float]) -> ArrayRecord:
        """Restore the result of `state`; return the global model."""
        arrays = record_of(groups["model"])
        self.deployed = record_of(groups["deployed"]) if "deployed" in groups else arrays
        for name in _STEP_STATE:
            if name in groups:
                # FedAvgM keeps a list, the adaptive strategies a dictionary.
                listed = name == "momentum_vector"
                setattr(
                    self.step, name, list(groups[name].values()) if listed else dict(groups[name])
                )
        self.side.memory = dict(groups.get("memory", {}))
        self.average.weight = numbers["average-weight"]
        self.average.mean = state_of(record_of(groups.get("average", {})))
        self.norm.value = numbers["norm"]
        self.norms.restore(numbers)
        return arrays

    def _for_client(self, message: Message, *, trains: bool) -> Message:
        """Return a message with the client's part of the model, and what it needs to train."""
        client, arrays = self._grid.nodes[message.metadata.dst_node_id], messages.arrays_in(message)
        changed: dict[str, Any] = {}
        if (part := self.model_for(arrays, client)) is not arrays:
            changed[keys.ARRAYS] = part
        if trains and self.side.needs_initial_upload(client):
            config = messages.config_of(message) | {keys.NEEDS_INITIAL_UPLOAD: True}
            changed[keys.CONFIG] = ConfigRecord(config)
        if trains and self.average.decay and keys.VALIDATE in messages.config_of(message):
            changed[keys.DEPLOYED] = self.model_for(self.deployed, client)
        if trains and (payload := self.side.payload(client)):
            changed[keys.SERVER_PAYLOAD] = arrays_of(payload)
        if not changed:
            return message
        return messages.with_content(message, RecordDict(dict(message.content) | changed))


def initial_arrays(side: ServerSide, model: State) -> ArrayRecord:
    """Return the arrays that round 1 starts from, given the initial model."""
    return ArrayRecord(dict(side.initial(arrays_of(model))))


def _merged_reply(message: Message, arrays: ArrayRecord, metrics: Mapping[str, Any]) -> Message:
    """Return one answer to TRAIN for all clients of a round, as Flower's strategies read it."""
    content = RecordDict({keys.ARRAYS: arrays, keys.METRICS: MetricRecord(dict(metrics))})
    return messages.with_content(message, content)
