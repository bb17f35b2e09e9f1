"""DANCE as a method of the harness; the algorithm itself is `dance_flwr.dance`.

Uplink: the weighted mean of omega = (theta, phi), nothing else.

Test accuracy of `dance` on Cora at r = 8 / 4 / 2 %: 88.87 / 87.12 / 86.32 % in the DANCE paper, 87.80 / 86.29 / 86.29 %
here.
Test accuracy of `dance` on CiteSeer at r = 8 / 4 / 2 %: 80.19 / 78.19 / 75.93 % in the DANCE paper, 76.50 / 76.41 /
76.16 % here.
"""

import torch
from torch import Tensor

from dance_flwr.config import RunConfig
from dance_flwr.dance.local import explain, predict, train_round
from dance_flwr.dance.model import DanceModel, ModelShape
from dance_flwr.dance.show import write_example
from dance_flwr.dance.store import RunStore
from dance_flwr.methods.base import MethodCard, RoundInfo, Uplink
from dance_flwr.report import Report
from dance_flwr.site import Site


class Dance:
    """Condense, refresh, train (Alg. 1)."""

    uplink = Uplink.SUM
    card = MethodCard(
        condenses=True,
        trains_on="labelled nodes of the condensed core; plain term: and of its selected neighbours",
        leaves_client="model parameters, counts, seconds",
        source="the paper's method",
    )

    def build(self, shape: ModelShape, config: RunConfig) -> DanceModel:
        """Return omega = (theta, phi)."""
        return DanceModel(shape, config.backbone, config.dropout, config.dance.label_evidence)

    def train(self, model: DanceModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Run one client round of Alg. 1."""
        return train_round(
            model, site, RunStore(site.folder, info.run), config, round_=info.round, model_id=info.model_id
        )

    def predict(self, model: DanceModel, site: Site, config: RunConfig, info: RoundInfo) -> dict[str, Tensor]:
        """Predict every node from its evidence."""
        return predict(model, site, config.dance)

    def finish(self, model: DanceModel, site: Site, config: RunConfig, info: RoundInfo) -> None:
        """Write the packs of the last core as the final model selects them, and one of them as readable text."""
        store = RunStore(site.folder, info.run)
        core = store.load(site.num_nodes, site.device).core
        if core is None:
            core = torch.arange(0, device=site.device)
        packs = explain(model, site, core, config.dance, info.round, info.model_id)
        packs.save(store.final_path)
        write_example(store, site, packs)
