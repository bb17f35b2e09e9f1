"""Means of models: over the clients of a round, exact in any order, and over rounds, for what is kept and deployed."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from dance_flwr import messages
from dance_flwr.privacy.dp import ClippingNorm
from dance_flwr.privacy.vectors import decode_update, encode_update, levels_for, to_grid

State = dict[str, Tensor]
Upload = tuple[Message, State]  # a valid training reply and its model


class KeepingStrategy(Protocol):
    """A strategy that says which model is validated and kept, and that may begin after round 0.

    Attributes
    ----------
    kept : the last model, or the running average `average`; the first before the first round
    norm : what updates are clipped to
    offset : rounds of this run that are over before `start`; last : the round that is validated in any case
    """

    kept: ArrayRecord
    average: "ModelAverage"
    norm: ClippingNorm
    offset: int
    last: int

    def first(self, model: ArrayRecord) -> ArrayRecord:
        """Return what round 1 starts from, given the initial model."""
        ...

    def start(self, *arguments: Any, **options: Any) -> Any:
        """Run the rounds, as `flwr.serverapp.strategy.Strategy.start`."""
        ...


class Averaging:
    """omega <- sum_k w_k omega_k / sum_k w_k: what becomes of a round's uploads unless a server side says otherwise.

    Attributes
    ----------
    statistics : names of the statistics that an upload must bring
    """

    statistics: tuple[str, ...] = ()

    def first(self, model: ArrayRecord) -> ArrayRecord:
        """Return what round 1 starts from, given the initial model."""
        return model

    def expected(self, start: State) -> State:
        """Return names and shapes that an upload must have, given what the round started from."""
        return start

    def fault_beside(self, reply: Message) -> str:
        """Return what is wrong with what came beside a model; "" where nothing is."""
        return fault_of_statistics(messages.statistics_of(reply), self.statistics)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> list[Message]:
        """Return at most one reply in the place of a round's uploads, which are ordered by client."""
        return merged(uploads, start, bound)


def fault_of_statistics(found: Mapping[str, Tensor], names: Sequence[str]) -> str:
    """Return what is wrong with statistics beside a model, "" where nothing is: other names, or not finite."""
    if sorted(found) != sorted(names):
        return f"expected the statistics {sorted(names)}, found {sorted(found)}"
    broken = [name for name, tensor in found.items() if not bool(torch.isfinite(tensor).all())]
    return f"expected finite numbers, found NaN or infinity in {broken[0]}" if broken else ""


def merged(uploads: Sequence[tuple[Message, State]], start: Mapping[str, Tensor], bound: float) -> list[Message]:
    """sum_k w_k omega_k / sum_k w_k in fixed point: exact sums of rounded updates, the same in any order.

    The arithmetic is that of secure aggregation (`dance_flwr.privacy.vectors`), so that masks change no bit of a model.
    Entries are rounded to `bound` * 2^-27 for 5 clients, about the precision of a float32.

    Parameters
    ----------
    uploads : valid training replies, each with its model
    start : the global model that the clients started from
    bound : R, unit of the rounding; larger updates are taken as they are

    Returns
    -------
    one reply with the mean model and the summed metrics, that of a single client to the bit; none of none
    """
    replies = [reply for reply, _ in uploads]
    if len(replies) < 2:
        return [messages.without_statistics(reply) for reply in replies]
    weights = [int(messages.metrics_of(reply.content)[messages.WEIGHT]) for reply in replies]
    levels, whole = levels_for(len(replies)), sum(weights)
    total = np.zeros(sum(tensor.numel() for tensor in start.values()))
    for (_, model), weight in zip(uploads, weights, strict=True):  # one at a time: memory of one update, not of all
        total += to_grid(encode_update(model, start, weight / whole, bound), levels)
    mean = decode_update(total, start, 1.0, bound)
    metrics = MetricRecord(messages.sum_metrics([reply.content for reply in replies]))
    content = RecordDict({messages.ARRAYS: messages.arrays_of(mean), messages.METRICS: metrics})
    return [messages.with_content(replies[0], content)]


def in_types_of(start: Mapping[str, Tensor], arrays: ArrayRecord) -> ArrayRecord:
    """Return the model in the types of `start`; Flower's FedAdam makes float64 of float32, twice the bytes."""
    model = messages.state_of(arrays)
    return messages.arrays_of({name: tensor.to(start[name].dtype) for name, tensor in model.items()})


class ModelAverage:
    """omega_bar^(t) = sum_{s <= t} d^(t - s) omega^(s) / sum_{s <= t} d^(t - s), d = `decay`.

    An exponential moving average with its start-up bias divided out (as Adam does, Kingma and Ba 2015): the first
    average is the first model. Only aggregated models enter, so the server learns nothing more of any client.

    Parameters
    ----------
    decay : weight of the past, in [0, 1); 0 keeps the last model
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._weight = 0.0
        self._mean: dict[str, Tensor] = {}

    @property
    def weight(self) -> float:
        """The sum of weights so far."""
        return self._weight

    @property
    def mean(self) -> dict[str, Tensor]:
        """The average so far in float64; empty before the first model and without decay."""
        return self._mean

    def restore(self, weight: float, mean: Mapping[str, Tensor]) -> None:
        """Go on from this sum of weights and this average."""
        self._weight, self._mean = weight, dict(mean)

    def add(self, arrays: ArrayRecord) -> ArrayRecord:
        """Take a round's aggregated model and return the average so far."""
        if not self._decay:
            return arrays
        model = messages.state_of(arrays)
        self._weight = self._decay * self._weight + 1
        if not self._mean:
            self._mean = {name: tensor.double() for name, tensor in model.items()}
        for name, tensor in model.items():
            self._mean[name] = torch.lerp(self._mean[name], tensor.double(), 1 / self._weight)
        return messages.arrays_of({name: self._mean[name].to(tensor.dtype) for name, tensor in model.items()})
