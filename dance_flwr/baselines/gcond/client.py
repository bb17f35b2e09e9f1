"""The client side of GCond, also the base of methods that upload its condensed graph."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from dance_flwr.baselines.condensation.client import CondensingMethod, real_graph
from dance_flwr.baselines.condensation.config import CondenseConfig
from dance_flwr.baselines.condensation.graphs import Condensed
from dance_flwr.baselines.condensation.matching import condense
from dance_flwr.baselines.condensation.selection import validation_scorer
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.seeding import generator, seeded


class GCond(CondensingMethod):
    """The plain network on a synthetic graph whose gradients match those of the real graph."""

    def settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return `condense.*`."""
        return asdict(CondenseConfig.of(config))

    def condense(self, data: ClientData, config: RunConfig, quotas: Tensor) -> Condensed:
        """Match the gradients of the client's training graph."""
        settings, client = CondenseConfig.of(config), data.card.client
        draws, score = (
            generator(config.seed, "condense", client=client),
            validation_scorer(data, config),
        )
        with seeded(config.seed, "condense", client=client):
            return condense(real_graph(data), quotas, settings, draws, score)
