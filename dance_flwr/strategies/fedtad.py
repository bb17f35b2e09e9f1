"""The server side of FedTAD (Zhu et al. 2024): FedAvg, then the global model learns of the clients' own models."""

import time
from collections.abc import Sequence
from typing import Any, cast

import torch
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from dance_flwr import messages
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import ModelShape, PlainModel
from dance_flwr.methods import get_method
from dance_flwr.seeding import seeded
from dance_flwr.strategies.averaging import Averaging, State, Upload, merged
from dance_flwr.strategies.distilling import Generator, distil, normalised


class FedTad(Averaging, FedAvg):
    """omega <- distil(sum_k n_k omega_k / sum_k n_k), `dance_flwr.strategies.distilling`.

    The generator goes on from round to round, as in the public code; both optimisers start anew in each, as the
    clients' do.

    Parameters
    ----------
    shape : widths of the global model, which the server itself builds and runs

    Attributes
    ----------
    memory : the generator's parameters, name -> array; empty before round 1
    """

    statistics = ("reliability",)

    def __init__(self, config: RunConfig, shape: ModelShape, **options: Any) -> None:
        super().__init__(**options)
        self.config, self.shape = config, shape
        self.memory: dict[str, NDArray[Any]] = {}

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> list[Message]:
        """Return one reply with the distilled model; of its seconds, "distil" are the server's."""
        if not uploads:
            return []
        begin = time.perf_counter()
        (mean,) = merged(uploads, start, bound)
        reliability = torch.stack([messages.statistics_of(reply)["reliability"] for reply, _ in uploads])
        state = self._distilled(messages.model_of(mean), [model for _, model in uploads], reliability, round_)
        return [
            messages.with_metrics(messages.with_model(mean, state), {"seconds-distil": time.perf_counter() - begin})
        ]

    def _distilled(self, mean: State, models: list[State], reliability: torch.Tensor, round_: int) -> State:
        if not self.config.fedtad.steps:
            return mean
        model = cast(PlainModel, get_method(self.config.method).build(self.shape, self.config))
        with seeded(self.config.seed, "generator"):
            generator = Generator(self.shape.classes, self.shape.text_dim, self.config.fedtad.noise_dim)
        if self.memory:
            generator.load_state_dict({name: torch.from_numpy(array) for name, array in self.memory.items()})
        model.load_state_dict(mean)
        with seeded(self.config.seed, "distil", round_=round_):
            distil(model, generator, models, normalised(reliability), self.config.fedtad)
        self.memory = {name: tensor.numpy().copy() for name, tensor in generator.state_dict().items()}
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}
