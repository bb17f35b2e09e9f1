"""Flower's strategies by name, and the `Round` around the one of a run."""

from collections.abc import Callable
from typing import Any

from flwr.app import MetricRecord
from flwr.serverapp.strategy import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
)

from dance_flwr.config.plugins import STRATEGIES
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError
from dance_flwr.federation.privacy.dp import fewest_clients
from dance_flwr.federation.server.round import Round
from dance_flwr.methods import get_spec
from dance_flwr.metrics import Counts, Training
from dance_flwr.nn.model import ModelShape

# One upload is cut on each side; one must be left.
_MIN_TRIMMED = 3


def fedavg(config: RunConfig, **options: Any) -> FedAvg:
    """Return the plain weighted mean (McMahan et al. 2017)."""
    return FedAvg(**options)


def fedprox(config: RunConfig, **options: Any) -> FedAvg:
    """Return the weighted mean; clients add a proximal term to their loss (Li et al. 2020)."""
    return FedProx(proximal_mu=config.proximal_mu, **options)


def fedavgm(config: RunConfig, **options: Any) -> FedAvg:
    """Return the mean with server momentum (Hsu et al. 2019)."""
    step = _step(config, "server_learning_rate")
    return FedAvgM(server_momentum=config.server_momentum, **step, **options)


def fedadam(config: RunConfig, **options: Any) -> FedAvg:
    """Return Adam on the mean update (Reddi et al. 2021)."""
    return FedAdam(**_step(config, "eta"), **options)


def fedyogi(config: RunConfig, **options: Any) -> FedAvg:
    """Return Yogi on the mean update (Reddi et al. 2021)."""
    return FedYogi(**_step(config, "eta"), **options)


def fedadagrad(config: RunConfig, **options: Any) -> FedAvg:
    """Return Adagrad on the mean update (Reddi et al. 2021)."""
    return FedAdagrad(**_step(config, "eta"), **options)


def fedmedian(config: RunConfig, **options: Any) -> FedAvg:
    """Return the median of the uploads, entry by entry and without weights (Yin et al. 2018)."""
    return FedMedian(**options)


def fedtrimmedavg(config: RunConfig, **options: Any) -> FedAvg:
    """Return the mean without the largest and the least fifth, entry by entry (Yin et al. 2018).

    At least one upload is cut on each side.
    """
    if (fewest := fewest_clients(config)) < _MIN_TRIMMED:
        raise UserError(
            f"strategy: expected at least {_MIN_TRIMMED} valid replies per round, as fedtrimmedavg "
            f"omits one on each side, found {fewest}; raise clients, client-fraction or "
            "min-valid-replies, or set strategy = fedmedian"
        )
    # A fifth of four clients would cut none.
    return FedTrimmedAvg(beta=max(0.2, 1 / fewest), **options)


def _step(config: RunConfig, argument: str) -> dict[str, Any]:
    # 0 leaves Flower's default in place.
    return {argument: config.server_learning_rate} if config.server_learning_rate else {}


def strategy_name(config: RunConfig) -> str:
    """Return the name of the strategy: the method if it has its own server side."""
    return config.method if get_spec(config.method).server else config.strategy


def make_round(
    config: RunConfig,
    shape: ModelShape,
    on_train: Callable[[Training], None],
    on_validation: Callable[[Counts | None], None],
) -> Round:
    """Return the round of a run, with its method's server side and its strategy."""
    spec = get_spec(config.method)
    side = spec.server_type()(config, shape)
    factory, fewest = STRATEGIES.get(config.strategy), fewest_clients(config)
    # Flower's own strategies, unchanged (decision 1).
    step = factory(
        config,
        # Shares of the connected nodes, rounded down; the least numbers are of the configuration.
        fraction_train=config.client_fraction,
        min_train_nodes=min(max(1, int(config.clients * config.client_fraction)), fewest),
        fraction_evaluate=config.evaluate_fraction,
        min_evaluate_nodes=min(max(1, int(config.clients * config.evaluate_fraction)), fewest),
        min_available_nodes=fewest,
        # `Round` sums metrics itself, exactly.
        train_metrics_aggr_fn=lambda *_: MetricRecord(),
        evaluate_metrics_aggr_fn=lambda *_: MetricRecord(),
    )
    # `Round` has checked and logged all replies; Flower would check and log the one merged reply.
    step._check_and_log_replies = lambda replies, *_, **__: (list(replies), [])
    return Round(config, step, side, on_train, on_validation)
