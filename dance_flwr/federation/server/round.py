"""One round at the server: sample, send, check, merge, protect, step, average, validate.

`Round` wraps one of Flower's strategies, as Flower's own differential-privacy strategies do.
Flower's strategy samples clients and takes the server's step on one merged update; the parts around
it are named: the method's server side merges, `RoundPrivacy` clips and adds noise, `ModelAverage`
keeps what is deployed, the Grid knows clients and counts bytes.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from numpy.typing import NDArray

from dance_flwr.config.tree import RunConfig
from dance_flwr.federation.server.averaging import ModelAverage
from dance_flwr.federation.server.exchange import GridChannel
from dance_flwr.federation.server.grid import FederationGrid
from dance_flwr.federation.server.privacy import RoundPrivacy
from dance_flwr.federation.server.validation import valid_updates
from dance_flwr.federation.wire import messages
from dance_flwr.federation.wire.tensors import (
    arrays_of,
    in_types_of,
    numpy_of,
    record_of,
    state_of,
)
from dance_flwr.methods.server_side import Merged, ServerSide, State
from dance_flwr.metrics import Counts, Training
from dance_flwr.privacy.dp import affordable_rounds, fewest_clients
from dance_flwr.seeding import derive

Groups = dict[str, dict[str, NDArray[Any]]]
# Names under which Flower's strategies keep arrays between rounds, one per entry of the model.
_STEP_STATE = ("momentum_vector", "m_t", "v_t")


class Round(Strategy):
    """A strategy whose rounds end with a quorum, protect clients and keep an average model.

    Parameters
    ----------
    config : of the run
    step : Flower's strategy, which samples clients and steps on the merged update
    side : the method's server side, which merges uploads
    on_train : receives what a round's training cost and produced
    on_validation : receives the summed counts of a validation
    views : names of the views that a validation may count

    Attributes
    ----------
    deployed : the model that is validated and kept: the last one, or the average over rounds
    offset : rounds of the run that were over before `start`
    last : the last round, which is always validated
    """

    deployed: ArrayRecord

    def __init__(
        self,
        config: RunConfig,
        step: FedAvg,
        side: ServerSide,
        on_train: Callable[[Training], None],
        on_validation: Callable[[Counts], None],
        views: Sequence[str] = (),
    ) -> None:
        self.config, self.step, self.side = config, step, side
        self.privacy = RoundPrivacy(config)
        self.average = ModelAverage(config.ema_decay if side.averages_rounds else 0.0)
        self.offset, self.last = 0, affordable_rounds(config)
        self._on_train, self._on_validation = on_train, on_validation
        self._views = (*views, "deployed")
        self._start: State = {}
        self._grid: Grid | None = None

    def summary(self) -> None:
        """Log the settings of Flower's strategy."""
        self.step.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample clients and return a message to each, with its model and what the method adds."""
        round_ = server_round + self.offset
        self._grid, self._start = grid, state_of(arrays)
        if isinstance(grid, FederationGrid):
            self.side.before_round(round_, GridChannel(grid, self.config, config))
        # Of the round alone, so that a run that is resumed asks the same clients.
        random.seed(derive(self.config.seed, "sampling", round_=round_))
        settings = messages.with_clipping_norm(config, self.privacy.norm.value)
        batch = list(self.step.configure_train(round_, arrays, settings, grid))
        if (drawn := self.privacy.sample(list(grid.get_node_ids()), round_)) is not None:
            batch = [messages.addressed(batch[0], node) for node in drawn]
        return [self._addressed(message, grid, trains=True) for message in batch]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Merge the valid uploads of a round and step; raise below the quorum."""
        round_ = server_round + self.offset
        assert self._grid is not None
        answers = list(replies)
        uploads, metrics = valid_updates(
            answers, self.side, self._start, self._grid, fewest_clients(self.config)
        )
        if not uploads:
            return None, None
        total = messages.sum_metrics(metrics)
        merged = self.side.merge(uploads, self._start, self.privacy.bound, round_)
        state = self.privacy.protect(merged.state, total, round_)
        one = messages.merged_reply(answers[0], arrays_of(state), total)
        arrays, record = self.step.aggregate_train(round_, [one])
        self._on_train(_with_server_side(messages.read_training(total), merged))
        if arrays is not None:
            arrays = in_types_of(self._start, arrays)
            self.deployed = self.average.add(arrays)
        return arrays, record

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all clients to validate the deployed model, in rounds where that is due."""
        round_ = server_round + self.offset
        if round_ % self.config.evaluate_every and round_ != self.last:
            return []
        batch = self.step.configure_evaluate(round_, self.deployed, config, grid)
        return [self._addressed(message, grid, trains=False) for message in batch]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Sum the counts of a validation."""
        found = [messages.metrics_of(reply.content) for reply in replies]
        if found:
            total = messages.sum_metrics(found)
            self._on_validation(messages.read_counts(total, "val", self._views))
        return None

    def model_for(self, arrays: ArrayRecord, client: int) -> ArrayRecord:
        """Return the part of a model that this client is sent."""
        own = self.side.model_for(client, arrays)
        return arrays if own is arrays else ArrayRecord(dict(own))

    def state(self, arrays: ArrayRecord) -> tuple[Groups, dict[str, float]]:
        """Return what must survive a stop: arrays by group and name, and numbers by name.

        Parameters
        ----------
        arrays : the global model
        """
        groups: Groups = {"model": numpy_of(arrays)}
        if self.deployed is not arrays:
            groups["kept"] = numpy_of(self.deployed)
        for name in _STEP_STATE:
            value = getattr(self.step, name, None)
            if value is not None:
                by_name = isinstance(value, dict)
                groups[name] = value if by_name else dict(zip(arrays, value, strict=True))
        groups["memory"] = self.side.memory
        if self.average.mean:
            groups["average"] = {name: t.numpy() for name, t in self.average.mean.items()}
        numbers = {"norm": self.privacy.norm.value, "average-weight": self.average.weight}
        return groups, numbers

    def restore(self, groups: Groups, numbers: Mapping[str, float]) -> ArrayRecord:
        """Continue from what `state` returned; return the global model."""
        arrays = record_of(groups["model"])
        self.deployed = record_of(groups["kept"]) if "kept" in groups else arrays
        for name in _STEP_STATE:
            if name in groups:
                listed = name == "momentum_vector"
                setattr(
                    self.step, name, list(groups[name].values()) if listed else dict(groups[name])
                )
        self.side.memory = dict(groups.get("memory", {}))
        mean = state_of(record_of(groups.get("average", {})))
        self.average.restore(numbers["average-weight"], mean)
        self.privacy.norm.value = numbers["norm"]
        return arrays

    def _addressed(self, message: Message, grid: Grid, *, trains: bool) -> Message:
        """Return the message with what is for its client alone."""
        if not isinstance(grid, FederationGrid):
            return message
        client = grid.client_at(message.metadata.dst_node_id)
        own = self.model_for(messages.arrays_in(message), client)
        if own is not messages.arrays_in(message):
            message = messages.with_arrays(message, own)
        if not trains:
            return message
        return messages.with_payload(
            message, self.side.payload(client), self.side.needs_initial_upload(client)
        )


def initial_arrays(side: ServerSide, model: State) -> ArrayRecord:
    """Return what round 1 starts from, given the initial model."""
    return ArrayRecord(dict(side.initial(arrays_of(model))))


def sample_sizes(config: RunConfig) -> dict[str, Any]:
    """Return Flower's options of sampling: whom a round asks, and how few it may find.

    `fraction_train` is a share of all connected nodes, rounded down; the least number makes the
    count that of the configuration.
    """
    asked, fewest = max(1, int(config.clients * config.client_fraction)), fewest_clients(config)
    return {
        "fraction_train": config.client_fraction,
        "min_train_nodes": min(asked, fewest),
        "min_evaluate_nodes": fewest,
        "min_available_nodes": fewest,
    }


def _with_server_side(clients: Training, merged: Merged) -> Training:
    """Return what clients report together with what the method's server side adds."""
    return Training(
        clients.loss if merged.loss is None else merged.loss,
        {**clients.seconds, **merged.seconds},
        {**clients.counts, **merged.counts},
    )
