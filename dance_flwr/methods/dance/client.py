"""The client side of DANCE."""

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.algorithm import train_round
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import predict_nodes
from dance_flwr.dance.kept import Survey, predict_kept
from dance_flwr.dance.model import DanceModel, PaperModel
from dance_flwr.dance.state import RunFolder
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.render import write_example
from dance_flwr.evidence.seal import seal
from dance_flwr.llm.config import CORE, LlmConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import Report
from dance_flwr.nn.model import ModelShape


class Dance:
    """Condenses, refreshes and trains (Alg. 1)."""

    def build(self, shape: ModelShape, config: RunConfig) -> DanceModel:
        """Return omega = (theta, phi)."""
        settings = DanceConfig.of(config)
        kind = PaperModel if settings.paper_matrices else DanceModel
        return kind(
            shape,
            config.backbone,
            config.dropout,
            attention_dim=settings.attention_dim,
            label_evidence=settings.label_evidence,
        )

    def train(
        self, model: DanceModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Run one client round of Alg. 1.

        Raises
        ------
        UserError : summaries are to be written, and the client has no language model for them
        """
        if info.round == 1 and LlmConfig.of(config).summaries == CORE:
            from dance_flwr.evidence.summaries.language_model import check_model

            check_model(data, config)  # before rounds are spent
        return train_round(
            model,
            data,
            RunFolder(data.folder, info.run),
            config,
            round_=info.round,
            model_id=info.model_id,
        )

    def predict(
        self, model: DanceModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes from their evidence.

        A validation reads the evidence that the last core refresh selected for its nodes. If none
        was kept for them, their evidence is selected anew, at hop 2 by the difficulty of that
        refresh. The final model selects the evidence of what is deployed.
        """
        settings, path = DanceConfig.of(config), None
        if not info.final and not data.inductive:
            path = RunFolder(data.folder, info.run).last_survey()
        if path is None:
            return predict_nodes(model, data, settings, nodes)
        version = f"{path} {path.stat().st_mtime_ns}"
        survey = data.remember("survey", version, lambda: Survey.read(path, data.device))
        if survey is None:
            return predict_nodes(model, data, settings, nodes)
        if survey.kept is not None and torch.equal(survey.kept.nodes, nodes):
            return predict_kept(model, data, settings, survey.kept)
        return predict_nodes(model, data, settings, nodes, survey.difficulty)

    def finish(
        self, model: DanceModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> None:
        """Write the evidence packs of the last core under the final model, and one as text.

        With `llm.summaries` = core also a summary of each pack.
        """
        folder = RunFolder(data.folder, info.run)
        core = folder.load(data.num_nodes, data.device).core
        if core is None:
            core = torch.arange(0, device=data.device)
        settings = DanceConfig.of(config)
        explainer = Explainer(model, data, settings, info.round, info.model_id, info.smooth)
        packs = explainer.explain(core)
        packs.save(folder.final_path)
        summaries = None
        if LlmConfig.of(config).summaries == CORE:
            from dance_flwr.evidence.summaries.language_model import write_summaries

            summaries = write_summaries(folder, data, packs, config, info.run)
        write_example(folder, data, packs, summaries)

    def seal(self, data: ClientData, run: str) -> str:
        """Return the hash of the run's evidence packs."""
        return seal(RunFolder(data.folder, run), data.card.salt)
