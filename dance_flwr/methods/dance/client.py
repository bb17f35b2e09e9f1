"""The client side of DANCE."""

from dataclasses import replace

from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.algorithm import ClientRound, refresh
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import ValidationEvidence, predict_nodes, predict_selected
from dance_flwr.dance.model import DanceModel, PaperModel
from dance_flwr.dance.passes import DanceClient
from dance_flwr.dance.plan import Condensation
from dance_flwr.dance.selection import Selection
from dance_flwr.dance.state import CONDENSATION, VALIDATION, RunFolder
from dance_flwr.dance.training import train_round
from dance_flwr.data.text.usage import note_evidence
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.seal import seal
from dance_flwr.llm.config import CORE, LlmConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import Report
from dance_flwr.nn.model import ModelShape
from dance_flwr.nn.moving import content


class Dance:
    """Condenses, refreshes and trains (Alg. 1)."""

    def build(self, shape: ModelShape, config: RunConfig) -> DanceModel:
        """Return omega = (theta, phi)."""
        settings = DanceConfig.of(config)
        # Why (decision 16): the backbone's own first map reads every text by default; with the
        # paper's maps an upload is eight times as large as that of FedAvg.
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
        """Run one client round of Alg. 1; packs are written before training changes the model.

        Raises
        ------
        UserError : summaries are to be written, and the client has no language model for them
        """
        if info.round == 1 and LlmConfig.of(config).summaries == CORE:
            from dance_flwr.evidence.summaries.language_model import check_model

            check_model(data, config)  # before rounds are spent
        client = DanceClient(model, data, DanceConfig.of(config), data.training_graph)
        folder = RunFolder(data.folder, info.run, data.cached)
        now = ClientRound(client, folder, config, info.round)
        start = refresh(now)
        # Before training, so that the weights in a pack are those of the model that selected.
        if start.selected is not None:
            with now.report.phase("packs"):
                decided = replace(now, client=start.client)
                _keep_evidence(decided, start.selected, start.state.core_round, info.model_id)
        train_round(now, start)
        with now.report.phase("packs"):
            folder.save(start.state)
        return now.report

    def predict(
        self, model: DanceModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes from their evidence.

        A validation reads the evidence that the last core refresh selected for its nodes. If that
        refresh selected none for them, evidence is selected anew, at hop 2 by its difficulty. For
        the final model, evidence is always selected anew.
        """
        client = DanceClient(model, data, DanceConfig.of(config), data.graph)
        # What is deployed selects its evidence anew; in inductive mode, predictions are made on
        # another graph than the refresh has seen.
        if info.final or data.inductive:
            return predict_nodes(client, nodes)
        folder = RunFolder(data.folder, info.run, data.cached)
        # Why (decision 16): a validation reads the evidence of the last refresh, where selecting it
        # anew would read the candidates of every node in each round.
        evidence = folder.read_latest(VALIDATION, ValidationEvidence, data.device)
        if evidence is not None and content(evidence.nodes) == content(nodes):
            return predict_selected(client, evidence)
        condensation = folder.read_latest(CONDENSATION, Condensation, data.device)
        difficulty = None if condensation is None else condensation.difficulty
        return predict_nodes(client, nodes, difficulty)

    def finish(
        self, model: DanceModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> None:
        """Write the evidence packs of the last core under the final model.

        With `llm.summaries` = core, a summary of each pack is written too.
        """
        folder = RunFolder(data.folder, info.run)
        core = folder.load(data.device).core.to(data.device)
        settings = DanceConfig.of(config)
        after = (info.smooth, info.mixture)
        explainer = Explainer(model, data, settings, info.round, info.model_id, *after)
        packs = explainer.explain(core)
        packs.save(folder.final_path)
        if LlmConfig.of(config).summaries == CORE:
            from dance_flwr.evidence.summaries.language_model import write_summaries

            write_summaries(folder, data, packs, config, info.run)

    def seal(self, data: ClientData, run: str) -> str:
        """Return the hash of the run's evidence packs."""
        # Why (decision 20): with the salt, which stays in the card, a server cannot try labels and
        # compare hashes.
        return seal(RunFolder(data.folder, run), data.card.salt)


def _keep_evidence(
    now: ClientRound, selected: tuple[Tensor, Selection], difficulty_round: int, model_id: str
) -> None:
    hidden, selection = selected
    if now.client.settings.evidence_keep != "all":
        # The chunks are noted all the same: the run's count of evidence tokens needs them.
        chunks = selection.selected_chunks.cpu().numpy()
        note_evidence(now.folder.folder, now.number, chunks)
        return
    client = now.client
    explainer = Explainer(client.model, client.data, client.settings, now.number, model_id)
    packs = explainer.packs(hidden, selection, difficulty_round)
    packs.save(now.folder.round_path(now.number))
    now.report.counts["evidence-packs"] = len(packs.nodes)
