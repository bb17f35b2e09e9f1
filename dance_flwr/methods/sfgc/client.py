"""The client side of Sfgc."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site
from dance_flwr.methods.condensation.client import Condensing
from dance_flwr.methods.condensation.matching import Condensed, RealGraph
from dance_flwr.methods.condensation.selection import scored_by
from dance_flwr.methods.sfgc.config import SfgcConfig
from dance_flwr.methods.sfgc.trajectories import condense
from dance_flwr.seeding import generator


class Sfgc(Condensing):
    """The plain network on synthetic nodes without edges that lead it where the real graph would."""

    def settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return `sfgc.*`."""
        return asdict(SfgcConfig.of(config))

    def condense(self, site: Site, config: RunConfig, quotas: Tensor) -> Condensed:
        """Match the trajectories of networks trained on the client's training graph."""
        real = RealGraph(site.table.nodes, site.training_graph.operator("gcn"), site.train_labels)
        draw = generator(config.seed, "condense", client=site.card.client)
        return condense(
            real, quotas, config.hidden_dim, SfgcConfig.of(config), draw, scored_by(site, config)
        )
