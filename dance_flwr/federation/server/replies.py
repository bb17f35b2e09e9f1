"""Read the replies of clients, and sum up their metrics; `wire.messages` builds them."""

from collections.abc import Iterable, Mapping
from math import nan
from typing import Any

import torch
from flwr.app import Message
from torch import Tensor

from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import (
    LISTS,
    PER_CLASS,
    Hello,
    Schema,
    arrays_under,
    config_of,
    metrics_of,
    model_of,
)
from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.methods.server_side import Upload
from dance_flwr.metrics import COUNTS, PHASES, TOKEN_COUNTS, Counts, Tokens, Training


def read_hello(message: Message) -> Hello:
    """Read an answer to HELLO."""
    return Hello(**config_of(message))


def read_schema(message: Message) -> Schema:
    """Read an answer to DESCRIBE."""
    values = config_of(message)
    return Schema(**values | {name: tuple(values[name]) for name in LISTS})


def scales_of(message: Message) -> Tensor:
    """Return the scales beside an update in int8; empty where there are none."""
    arrays = state_of(arrays_under(message, keys.SCALES))
    return arrays.get(keys.STEPS, torch.zeros(0))


def statistics_of(message: Message) -> dict[str, Tensor]:
    """Return the statistics that came with an answer to TRAIN, empty where there are none."""
    return state_of(arrays_under(message, keys.STATISTICS))


def upload_of(reply: Message, client: int | None) -> Upload:
    """Return an answer to TRAIN as the method's server side reads it."""
    weight = int(metrics_of(reply.content)[keys.WEIGHT])
    return Upload(client, model_of(reply), weight, statistics_of(reply))


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
    named = {view: keys.correct_of(split, view) for view in views}
    return Counts(
        correct={view: metrics[key] for view, key in named.items() if key in metrics},
        total=metrics[keys.total_of(split)],
        **{name: metrics[keys.per_class(split, name)] for name in PER_CLASS},
        calibration=metrics.get(keys.calibration_of(split), ()),
    )


def read_tokens(metrics: Mapping[str, Any], names: Mapping[str, Any]) -> Tokens:
    """Read the counts of tokens over a run from (summed) metrics."""
    return Tokens(
        **{name: metrics[keys.tokens_of(name)] for name in TOKEN_COUNTS},
        model=str(names.get(keys.LLM, "")),
        tokeniser=str(names.get(keys.TOKENISER, "")),
    )


def read_training(metrics: Mapping[str, Any]) -> Training:
    """Read the cost and the counts of a round of training from (summed) metrics.

    If a masked sum hides them, the loss is NaN, and there are no counts.
    """
    if keys.LOSS not in metrics:
        return Training(loss=nan, seconds={}, counts={})
    return Training(
        loss=metrics[keys.LOSS],
        seconds={phase: metrics[keys.seconds_of(phase)] for phase in PHASES},
        counts={name: metrics[name] for name in COUNTS},
    )
