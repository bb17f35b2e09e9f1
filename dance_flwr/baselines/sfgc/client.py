"""The client side of SFGC."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from dance_flwr.baselines.condensation.client import CondensingMethod, real_graph
from dance_flwr.baselines.condensation.graphs import Condensed
from dance_flwr.baselines.condensation.selection import validation_scorer
from dance_flwr.baselines.sfgc.config import SfgcConfig
from dance_flwr.baselines.sfgc.trajectories import condense
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.seeding import generator


class Sfgc(CondensingMethod):
    """The plain network on synthetic nodes without edges that match training trajectories."""

    def settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return `sfgc.*`."""
        return asdict(SfgcConfig.of(config))

    def condense(self, data: ClientData, config: RunConfig, quotas: Tensor) -> Condensed:
        """Match the trajectories of networks trained on the client's training graph."""
        settings, score = SfgcConfig.of(config), validation_scorer(data, config)
        draws = generator(config.seed, "condense", client=data.card.client)
        return condense(real_graph(data), quotas, config.hidden_dim, settings, draws, score)
