"""The registry of server strategies: Flower's own, by name, with this app's keys handed to them."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi

from dance_flwr import messages
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import ModelShape
from dance_flwr.errors import UserError
from dance_flwr.methods import get_method
from dance_flwr.privacy.dp import (
    ClippingNorm,
    affordable_rounds,
    draw_clients,
    fewest_clients,
    protect_mean,
    samples_poisson,
    update_bound,
)
from dance_flwr.seeding import derive
from dance_flwr.strategies.averaging import Averaging, KeepingStrategy, ModelAverage, in_types_of
from dance_flwr.strategies.fedc4 import FedC4
from dance_flwr.strategies.fedgm import FedGm
from dance_flwr.strategies.fedgta import FedGta
from dance_flwr.strategies.fedgvd import FedGvd
from dance_flwr.strategies.fedsage import FedSage
from dance_flwr.strategies.fedtad import FedTad
from dance_flwr.strategies.judging import usable
from dance_flwr.strategies.personal import Personal

MetricSink = Callable[[dict[str, Any]], None]

# name -> (class, config keys -> constructor arguments)
STRATEGIES: dict[str, tuple[type[FedAvg], Callable[[RunConfig], dict[str, Any]]]] = {
    "fedavg": (FedAvg, lambda c: {}),
    "fedprox": (FedProx, lambda c: {"proximal_mu": c.proximal_mu}),
    "fedavgm": (FedAvgM, lambda c: {"server_momentum": c.server_momentum, **_step(c, "server_learning_rate")}),
    "fedadam": (FedAdam, lambda c: _step(c, "eta")),
    "fedyogi": (FedYogi, lambda c: _step(c, "eta")),
    "fedadagrad": (FedAdagrad, lambda c: _step(c, "eta")),
}

# `MethodCard.server` -> (class, config and widths of the global model -> constructor arguments)
SERVERS: dict[str, tuple[type[FedAvg], Callable[[RunConfig, ModelShape], dict[str, Any]]]] = {
    "local": (Personal, lambda c, shape: {"clients": c.clients}),
    "fedgta": (FedGta, lambda c, shape: {"clients": c.clients, "epsilon": c.fedgta.epsilon}),
    "fedgvd": (FedGvd, lambda c, shape: {"config": c, "shape": shape}),
    "fedtad": (FedTad, lambda c, shape: {"config": c, "shape": shape}),
    "fedsage": (FedSage, lambda c, shape: {"config": c, "shape": shape}),
    "fedc4": (FedC4, lambda c, shape: {"config": c, "shape": shape}),
    "fedgm": (FedGm, lambda c, shape: {"config": c, "shape": shape}),
}


def strategy_name(config: RunConfig) -> str:
    """Return the server side of a run: that of its method, or else the one that `strategy` asks for."""
    return get_method(config.method).card.server or config.strategy


def _step(config: RunConfig, argument: str) -> dict[str, Any]:
    return {argument: config.server_learning_rate} if config.server_learning_rate else {}


def make_strategy(
    config: RunConfig, on_train: MetricSink, on_evaluate: MetricSink, shape: ModelShape
) -> KeepingStrategy:
    """Return the strategy that the method or else `config.strategy` names; its `kept` is what is validated and kept.

    Parameters
    ----------
    on_train, on_evaluate : receive the summed metrics of a round's replies
    shape : widths of the global model

    Raises
    ------
    UserError : there is no such strategy
    """
    if config.strategy not in STRATEGIES:
        raise UserError(f"strategy: expected one of {', '.join(STRATEGIES)}, found {config.strategy!r}")
    base, arguments = _chosen(config, shape)

    def into(sink: MetricSink) -> Callable[[list[RecordDict], str], MetricRecord]:
        def aggregate(records: list[RecordDict], weighted_by: str) -> MetricRecord:
            total = messages.sum_metrics(records)
            sink(total)
            return MetricRecord({"num-examples": total["num-examples"]})

        return aggregate

    asked, fewest = max(1, int(config.clients * config.client_fraction)), fewest_clients(config)
    # `fraction_train` is a share of all connected nodes, rounded down; the least number makes the count ours.
    strategy: KeepingStrategy = _extended(base, config)(
        fraction_train=config.client_fraction,
        min_train_nodes=min(asked, fewest),
        min_evaluate_nodes=fewest,
        min_available_nodes=fewest,
        train_metrics_aggr_fn=into(on_train),
        evaluate_metrics_aggr_fn=into(on_evaluate),
        **arguments,
    )
    return strategy


def _chosen(config: RunConfig, shape: ModelShape) -> tuple[type[FedAvg], dict[str, Any]]:
    """Return the class of a run's server side and its constructor arguments."""
    own = get_method(config.method).card.server
    if own:
        base, arguments_of = SERVERS[own]
        return base, arguments_of(config, shape)
    base, given_by = STRATEGIES[config.strategy]
    return base, given_by(config)


def _with_noise(mean: Message, config: RunConfig, norm: ClippingNorm, round_: int) -> Message:
    """Return the mean of a round's updates with the server's noise, where there is any; the norm moves on."""
    metrics = messages.metrics_of(mean.content)
    clients, bound = int(metrics[messages.WEIGHT]), norm.value
    if messages.UNCLIPPED in metrics:
        norm.update(metrics[messages.UNCLIPPED], clients, round_)
    if config.privacy.dp != "central":
        return mean
    state = protect_mean(messages.model_of(mean), config, norm=bound, round_=round_, clients=clients)
    return messages.with_model(mean, state)


def _extended(base: type[FedAvg], config: RunConfig) -> type[Any]:
    """Return `base` with validation every `evaluate-every` rounds and after the last, of the averaged model."""

    class Extended(base, Averaging):  # type: ignore[misc, valid-type]
        kept: ArrayRecord
        average = ModelAverage(config.ema_decay)
        norm = ClippingNorm(config)
        offset = 0
        last = affordable_rounds(config)

        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config_record: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            server_round += self.offset
            self.grid = grid
            # Of the round alone, so that a run that goes on after a stop asks the same clients.
            random.seed(derive(config.seed, "sampling", round_=server_round))
            self.start_model = messages.state_of(arrays)
            config_record = ConfigRecord(dict(config_record) | {messages.NORM: self.norm.value})
            self.kept = getattr(self, "kept", arrays)
            if samples_poisson(config):
                config_record["server-round"] = server_round
                content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config_record})
                drawn = draw_clients(list(grid.get_node_ids()), config, server_round)
                return self._construct_messages(content, drawn, MessageType.TRAIN)  # type: ignore[no-any-return]
            return super().configure_train(server_round, arrays, config_record, grid)  # type: ignore[no-any-return]

        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            server_round += self.offset
            expected, fewest = self.expected(self.start_model), fewest_clients(config)
            uploads = usable(list(replies), expected, self.grid, fewest, self.fault_beside)
            one = self.merge(uploads, self.start_model, update_bound(config, self.norm.value), server_round)
            one = [_with_noise(reply, config, self.norm, server_round) for reply in one]
            arrays, metrics = super().aggregate_train(server_round, one)
            if arrays is not None:
                arrays = in_types_of(self.start_model, arrays)
                self.kept = self.average.add(arrays)
            return arrays, metrics

        def configure_evaluate(
            self, server_round: int, arrays: ArrayRecord, config_record: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            server_round += self.offset
            if server_round % config.evaluate_every and server_round != self.last:
                return []
            return super().configure_evaluate(server_round, self.kept, config_record, grid)  # type: ignore[no-any-return]

    Extended.__name__ = base.__name__
    return Extended
