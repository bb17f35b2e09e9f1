"""The running average of global models: what is validated, kept and deployed beside what training goes on with."""

from typing import Any, Protocol

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from dance_flwr import messages


class KeepingStrategy(Protocol):
    """A strategy that says which model is validated and kept: the last one, or the running average."""

    kept: ArrayRecord

    def start(self, *arguments: Any, **options: Any) -> Any:
        """Run the rounds, as `flwr.serverapp.strategy.Strategy.start`."""
        ...


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
