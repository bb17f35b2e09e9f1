"""GCond (Jin et al., ICLR 2022) at every client, then FedAvg on the condensed graphs.

Each client condenses its labelled graph once, before its first round, to S = (X', A', Y') of the shared budget by
matching gradients (`condense.matching`), keeps S in its own folder and trains on it in every round; all K rows are
labelled. Predictions are made on the real graph. Uplink: the weighted mean of the parameters; S never leaves.

GCond is a centralised method: running it at each client and averaging is how the paper compares with it. Deviations
from paper and public code are told in `condense.matching`, in short one-step matching at a linear network with
gradients in closed form.

Test accuracy of `gcond` on Cora at r = 8 / 4 / 2 %: 83.61 / 82.97 / 81.36 % in the DANCE paper, 83.10 / 82.91 / 81.25 %
here.
Test accuracy of `gcond` on CiteSeer at r = 8 / 4 / 2 %: 72.03 / 67.46 / 67.27 % in the DANCE paper, 74.55 / 74.24 /
73.55 % here.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from dance_flwr.condense.matching import Condensed, RealGraph, condense
from dance_flwr.condense.selection import scored_by
from dance_flwr.config import RunConfig
from dance_flwr.methods.base import MethodCard, Uplink
from dance_flwr.methods.condensed import Condensing
from dance_flwr.seeding import generator, seeded
from dance_flwr.site import Site


class GCond(Condensing):
    """The plain network on a synthetic graph that gives its gradients."""

    uplink = Uplink.SUM
    card = MethodCard(
        condenses=True,
        trains_on="synthetic labelled nodes with a learnt adjacency, condensed once",
        leaves_client="model parameters, counts, seconds",
        source="Jin et al. 2022, run locally at each client",
    )

    def settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return `condense.*`."""
        return asdict(config.condense)

    def condense(self, site: Site, config: RunConfig, quotas: Tensor) -> Condensed:
        """Match the gradients of the client's training graph."""
        operator, client = site.training_graph.operator("gcn"), site.card.client
        draw = generator(config.seed, "condense", client=client)
        with seeded(config.seed, "condense", client=client):
            real = RealGraph(site.table.nodes, operator, site.train_labels)
            return condense(real, quotas, config.condense, draw, scored_by(site, config))
