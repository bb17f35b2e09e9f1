"""Sum the metrics of clients and read counts and costs from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import nan
from typing import TYPE_CHECKING, Any

from dance_flwr.federation.wire import keys

if TYPE_CHECKING:  # importing the metrics imports torch
    from dance_flwr.metrics import Counts, Tokens, Training

PER_CLASS = ("true_positives", "predicted", "actual")


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


def count_metrics(counts: Mapping[str, Counts]) -> dict[str, Any]:
    """Return the metrics that `read_counts` reads, of all splits."""
    metrics: dict[str, Any] = {keys.WEIGHT: sum(split.total for split in counts.values())}
    for split, values in counts.items():
        metrics[keys.total_of(split)] = values.total
        metrics |= {keys.correct_of(split, view): n for view, n in values.correct.items()}
        for name in PER_CLASS:
            metrics[keys.per_class(split, name)] = list(getattr(values, name))
        if values.calibration:
            metrics[keys.calibration_of(split)] = list(values.calibration)
    return metrics


def token_entries(tokens: Tokens) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the names and the metrics that `read_tokens` reads."""
    numbers = asdict(tokens)
    names = {keys.LLM: numbers.pop("model"), keys.TOKENISER: numbers.pop("tokeniser")}
    return names, {keys.tokens_of(name): value for name, value in numbers.items()}


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
