"""The server side of FedSage+ (Zhang et al. 2021): before round 1 generators go round for gradients, then FedAvg."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from dance_flwr.config import RunConfig
from dance_flwr.dance.model import ModelShape
from dance_flwr.mending.networks import Widths
from dance_flwr.strategies.averaging import Averaging
from dance_flwr.strategies.exchanging import GeneratorExchange
from dance_flwr.strategies.federation import FederationGrid

_OVER = "exchanged"


class FedSage(Averaging, FedAvg):
    """FedAvg on mended graphs, after the clients have learnt their generators of each other.

    A run that is killed before its first round is over exchanges anew, one that is killed later does not.

    Parameters
    ----------
    shape : widths of the global model

    Attributes
    ----------
    memory : "exchanged" -> 1 after the exchange; part of the checkpoint
    """

    def __init__(self, config: RunConfig, shape: ModelShape, **options: Any) -> None:
        super().__init__(**options)
        self.config, self.shape = config, shape
        self.memory: dict[str, NDArray[Any]] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the clients of a round to train; before the first of all, let them exchange generators."""
        if self.config.fedsage.most and _OVER not in self.memory:
            assert isinstance(grid, FederationGrid)
            widths = Widths.of(self.shape.text_dim, self.config.fedsage)
            common = {key: config[key] for key in ("run", "partition-dir")}
            GeneratorExchange(self.config, widths, grid, common).run()
            self.memory[_OVER] = np.ones(1, np.int64)
        return super().configure_train(server_round, arrays, config, grid)
