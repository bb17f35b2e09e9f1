"""The client side of GCond."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site
from dance_flwr.methods.condensation.client import Condensing
from dance_flwr.methods.condensation.config import CondenseConfig
from dance_flwr.methods.condensation.matching import Condensed, RealGraph, condense
from dance_flwr.methods.condensation.selection import scored_by
from dance_flwr.seeding import generator, seeded


class GCond(Condensing):
    """The plain network on a synthetic graph that gives its gradients."""

    def settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return `condense.*`."""
        return asdict(CondenseConfig.of(config))

    def condense(self, site: Site, config: RunConfig, quotas: Tensor) -> Condensed:
        """Match the gradients of the client's training graph."""
        operator, client = site.training_graph.operator("gcn"), site.card.client
        draw = generator(config.seed, "condense", client=client)
        with seeded(config.seed, "condense", client=client):
            real = RealGraph(site.table.nodes, operator, site.train_labels)
            return condense(real, quotas, CondenseConfig.of(config), draw, scored_by(site, config))
