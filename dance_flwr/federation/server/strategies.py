"""Flower's strategies by name, and the `Round` around the one of a run."""

import gc
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
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
    fewest = _fewest(config, _MIN_TRIMMED, "fedtrimmedavg omits one on each side")
    # A fifth of four clients would cut none.
    return FedTrimmedAvg(beta=max(0.2, 1 / fewest), **options)


def krum(config: RunConfig, **options: Any) -> FedAvg:
    """Return the one upload that is nearest to most others (Blanchard et al. 2017).

    f uploads may be false: 2 f + 3 are the fewest of a round. f = 0 is a `UserError`.
    """
    return Krum(num_malicious_nodes=_false(config, "krum", 2), **options)


def multikrum(config: RunConfig, **options: Any) -> FedAvg:
    """Return the weighted mean of all but the f uploads that Krum ranks last; f as for `krum`."""
    false = _false(config, "multikrum", 2)
    chosen = fewest_clients(config) - false
    return MultiKrum(num_malicious_nodes=false, num_nodes_to_select=chosen, **options)


def bulyan(config: RunConfig, **options: Any) -> FedAvg:
    """Return a trimmed mean around the median of what Krum selects (El Mhamdi et al. 2018).

    f uploads may be false: 4 f + 3 are the fewest of a round. f = 0 is a `UserError`.
    """
    # Flower collects garbage once per array; frozen objects are skipped.
    gc.freeze()
    return Bulyan(num_malicious_nodes=_false(config, "bulyan", 4), **options)


def _false(config: RunConfig, name: str, factor: int) -> int:
    """Return f, the most false uploads with factor f + 3 <= the fewest uploads of a round."""
    fewest = _fewest(config, factor + 3, f"{name} needs them against one false upload")
    return (fewest - 3) // factor


def _fewest(config: RunConfig, needed: int, why: str) -> int:
    """Return the fewest uploads that a round can end with; too few are a `UserError`."""
    if (fewest := fewest_clients(config)) < needed:
        raise UserError(
            f"strategy: expected at least {needed} valid replies per round, as {why}, found "
            f"{fewest}; raise clients, client-fraction or min-valid-replies, or set strategy = "
            "fedmedian"
        )
    return fewest


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
    on_validation: Callable[[Counts], None],
) -> Round:
    """Return the round of a run, with its method's server side and its strategy."""
    spec = get_spec(config.method)
    side = spec.server_type()(config, shape)
    factory = STRATEGIES.get(config.strategy)
    # Flower's own strategies, unchanged (decision 1).
    step = factory(
        config,
        **sample_sizes(config),
        train_metrics_aggr_fn=_no_metrics,
        evaluate_metrics_aggr_fn=_no_metrics,
    )
    # `Round` has checked and logged all replies; Flower would check and log the one merged reply.
    step._check_and_log_replies = _as_they_are
    return Round(config, step, side, on_train, on_validation)


def _as_they_are(
    replies: Iterable[Message], is_train: bool, validate: bool = True
) -> tuple[list[Message], list[Message]]:
    return list(replies), []


def _no_metrics(records: list[RecordDict], weighted_by: str) -> MetricRecord:
    # `Round` sums metrics itself, exactly.
    return MetricRecord()


def sample_sizes(config: RunConfig) -> dict[str, Any]:
    """Return Flower's sampling options: the shares of clients per round, and the least numbers.

    `fraction_train` is a share of the connected nodes, rounded down; `min_train_nodes` raises the
    count to that of the configuration. So do the two options of validation.
    """
    sampled, asked = (
        max(1, int(config.clients * share))
        for share in (config.client_fraction, config.evaluate_fraction)
    )
    fewest = fewest_clients(config)
    return {
        "fraction_train": config.client_fraction,
        "min_train_nodes": min(sampled, fewest),
        "fraction_evaluate": config.evaluate_fraction,
        "min_evaluate_nodes": min(asked, fewest),
        "min_available_nodes": fewest,
    }
