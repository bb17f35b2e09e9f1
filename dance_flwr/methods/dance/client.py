"""The client side of DANCE."""

import torch
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.algorithm import train_round
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import explain, predict
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.rendering import write_example
from dance_flwr.dance.state import RunFolder
from dance_flwr.data.site import Site
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import Report
from dance_flwr.nn.model import ModelShape


class Dance:
    """Condenses, refreshes and trains (Alg. 1)."""

    def build(self, shape: ModelShape, config: RunConfig) -> DanceModel:
        """Return omega = (theta, phi)."""
        settings = DanceConfig.of(config)
        return DanceModel(
            shape,
            config.backbone,
            config.dropout,
            attention_dim=settings.attention_dim,
            label_evidence=settings.label_evidence,
        )

    def train(self, model: DanceModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Run one client round of Alg. 1."""
        return train_round(
            model,
            site,
            RunFolder(site.folder, info.run),
            config,
            round_=info.round,
            model_id=info.model_id,
        )

    def predict(
        self, model: DanceModel, site: Site, config: RunConfig, info: RoundInfo
    ) -> dict[str, Tensor]:
        """Predict every node from its evidence."""
        return predict(model, site, DanceConfig.of(config))

    def finish(self, model: DanceModel, site: Site, config: RunConfig, info: RoundInfo) -> None:
        """Write the evidence packs of the last core under the final model, and one as text."""
        folder = RunFolder(site.folder, info.run)
        core = folder.load(site.num_nodes, site.device).core
        if core is None:
            core = torch.arange(0, device=site.device)
        packs = explain(model, site, core, DanceConfig.of(config), info.round, info.model_id)
        packs.save(folder.final_path)
        write_example(folder, site, packs)
