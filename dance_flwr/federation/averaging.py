"""Average the global models over rounds, for validation and deployment."""

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

    Attributes
    ----------
    decay : as given
    weight : the sum of weights so far
    mean : the average so far in float64; empty before the first model and without decay
    """

    def __init__(self, decay: float) -> None:
        self.decay, self.weight = decay, 0.0
        self.mean: dict[str, Tensor] = {}

    def add(self, arrays: ArrayRecord) -> ArrayRecord:
        """Add the aggregated model of a round and return the average so far."""
        # The same record and not a copy: `Round.state` then stores one model, not two.
        if not self.decay:
            return arrays
        model = state_of(arrays)
        self.weight = self.decay * self.weight + 1
        if not self.mean:
            # In float64, as the average is rounded again in every round.
            self.mean = {name: tensor.double() for name, tensor in model.items()}
        for name, tensor in model.items():
            self.mean[name] = torch.lerp(self.mean[name], tensor.double(), 1 / self.weight)
        return arrays_of({name: self.mean[name].to(tensor.dtype) for name, tensor in model.items()})
