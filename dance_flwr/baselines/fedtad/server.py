"""The server side of FedTAD: FedAvg, then the global model learns from the clients' own models."""

import time
from collections.abc import Sequence

import torch

from dance_flwr.baselines.fedtad.config import FedTadConfig
from dance_flwr.baselines.fedtad.distillation import Generator, distil, normalise_reliability
from dance_flwr.methods.plain_method import plain_model
from dance_flwr.methods.server_side import Merged, ServerSide, State, Upload, weighted_mean
from dance_flwr.seeding import seeded


class FedTadServer(ServerSide):
    """omega <- distil(sum_k n_k omega_k / sum_k n_k), `dance_flwr.baselines.fedtad.distillation`.

    The generator is trained on from round to round, as in the public code; both optimisers start
    with fresh moments in each round, as the clients' do.

    Attributes
    ----------
    memory : name -> array, the generator's parameters; empty before round 1
    """

    statistics = ("reliability",)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the distilled model; the server's seconds are "distil"."""
        begin = time.perf_counter()
        mean = weighted_mean(uploads, start, bound)
        reliability = torch.stack([upload.statistics["reliability"] for upload in uploads])
        models = [upload.state for upload in uploads]
        state = self._distil(mean, models, reliability, round_)
        return Merged(state, seconds={"distil": time.perf_counter() - begin})

    def _distil(
        self, mean: State, models: list[State], reliability: torch.Tensor, round_: int
    ) -> State:
        settings = FedTadConfig.of(self.config)
        if not settings.steps:
            return mean
        model = plain_model(self.shape, self.config)
        with seeded(self.config.seed, "generator"):
            generator = Generator(self.shape.classes, self.shape.text_dim, settings.noise_dim)
        if self.memory:
            last = {name: torch.from_numpy(array) for name, array in self.memory.items()}
            generator.load_state_dict(last)
        model.load_state_dict(mean)
        with seeded(self.config.seed, "distil", round_=round_):
            distil(model, generator, models, normalise_reliability(reliability), settings)
        state = generator.state_dict().items()
        self.memory = {name: tensor.numpy().copy() for name, tensor in state}
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}
