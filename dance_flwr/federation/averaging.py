"""Average the global models over rounds, for validation and deployment."""

from collections.abc import Mapping

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from dance_flwr.federation.wire.tensors import arrays_of, state_of


class ModelAverage:
    """omega_bar^(t) = sum_{s <= t} d^(t - s) omega^(s) / sum_{s <= t} d^(t - s), d = `decay`.

    An exponential moving average without start-up bias (as in Adam, Kingma and Ba 2015): the first
    average is the first model. It uses aggregated models only, so the server learns nothing more
    about any client.

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
        """Restore a sum of weights and an average."""
        self._weight, self._mean = weight, dict(mean)

    def add(self, arrays: ArrayRecord) -> ArrayRecord:
        """Add the aggregated model of a round and return the average so far."""
        # The same record and not a copy: `Round.state` then stores one model, not two.
        if not self._decay:
            return arrays
        model = state_of(arrays)
        self._weight = self._decay * self._weight + 1
        if not self._mean:
            # In float64, as the average is rounded again in every round.
            self._mean = {name: tensor.double() for name, tensor in model.items()}
        for name, tensor in model.items():
            self._mean[name] = torch.lerp(self._mean[name], tensor.double(), 1 / self._weight)
        return arrays_of(
            {name: self._mean[name].to(tensor.dtype) for name, tensor in model.items()}
        )
