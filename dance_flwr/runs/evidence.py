"""The evidence of a finished run: open its model, its sites and its packs, and show them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.sections import reading_of
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.state import RunFolder
from dance_flwr.errors import ConfigError, UserError
from dance_flwr.evidence.explain import explain
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import example_row, render
from dance_flwr.evidence.summaries.file import Summaries, summarise_pack
from dance_flwr.evidence.summaries.quotes import Sentence
from dance_flwr.federation.client.client import load_at, shape_of
from dance_flwr.federation.client.smoothing import smoothing_of
from dance_flwr.llm.config import CORE, ON_DEMAND, LlmConfig
from dance_flwr.methods import get_spec
from dance_flwr.runs.reader import load_model, read_result


@dataclass(frozen=True)
class EvidenceRun:
    """A finished run of `dance`, opened for its evidence.

    Attributes
    ----------
    folder : the run's folder, with `result.json` and `model.safetensors`
    result : content of `result.json`; config : the run's configuration
    client_folder : folder of the one client to read; None = all clients of the run's partition
    """

    folder: Path
    result: Mapping[str, Any]
    config: RunConfig
    client_folder: Path | None = None

    @classmethod
    def open(cls, folder: Path, client_folder: Path | None = None) -> "EvidenceRun":
        """Open the run in `folder`.

        Raises
        ------
        UserError : the run is not finished, keeps no evidence, or is of another version
        """
        result = read_result(folder)
        if result["method"] != "dance":
            raise UserError(
                f"{folder}: expected a run of method 'dance', found {result['method']!r}, which "
                "keeps no evidence"
            )
        try:
            config = parse(result["config"])
        except ConfigError as error:
            raise UserError(
                f"{folder}: expected the configuration of a run of this version, found {error}; "
                "read the run with the version that wrote it"
            ) from None
        return cls(folder, result, config, client_folder)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The saved state dict of the best validation round.

        Raises
        ------
        UserError : it is damaged, or not the one that `result.json` names
        """
        return load_model(self.folder, str(self.result["model_fingerprint"]))

    @property
    def settings(self) -> DanceConfig:
        """The section `dance` of the run's configuration."""
        return DanceConfig.of(self.config)

    @property
    def clients(self) -> list[int | None]:
        """Numbers of the clients to read; None is the client of `client_folder`."""
        return [None] if self.client_folder is not None else list(range(self.config.clients))

    def folder_of(self, client: int | None) -> Path:
        """Return the folder of a client.

        Raises
        ------
        UserError : the clients of this run keep their folders on other machines
        """
        partition = self.result["partition_dir"]
        if self.client_folder is None and partition is None:
            raise UserError(
                "expected --client-folder, found none; the clients of this run keep their "
                "evidence on their own machines"
            )
        return self.client_folder or Path(partition) / f"client-{client}"

    def data(self, client: int | None, derived_folder: Path | None = None) -> ClientData:
        """Open the data of a client; errors are those of `folder_of`.

        Parameters
        ----------
        derived_folder : as for `ClientData`
        """
        inductive = self.config.split_mode == "inductive"
        return ClientData(
            self.folder_of(client),
            torch.device("cpu"),
            inductive,
            reading_of(self.config),
            derived_folder,
        )

    def store(self, data: ClientData) -> RunFolder:
        """Return the folder that this run left at a client."""
        return RunFolder(data.folder, self.result["run"])

    def smooth(self, data: ClientData) -> Callable[[Tensor], Tensor] | None:
        """Return what the run's `smoothing` does to deployed probabilities; None = nothing."""
        return smoothing_of(self.config, data)

    def model(self, data: ClientData) -> Any:
        """Build the model for the shapes of a site and load the saved weights and its prior."""
        shape = shape_of(data.text_dim, len(data.card.class_names), self.config)
        model = get_spec(self.config.method).make_client().build(shape, self.config)
        load_at(data, model, self.weights, self.config)
        return model


def show_evidence(run: Path, client: int, node: str | None, client_folder: Path | None) -> str:
    """Return one evidence pack of a run as text.

    Parameters
    ----------
    client : number of the client
    node : id of the node; None = the most confident pack that draws on a neighbour. A node outside
        the condensed core has no stored pack; its pack is computed with the run's model
    client_folder : the client's folder; None = that of the run's partition

    Raises
    ------
    UserError : the client has no packs, or no node of this id
    """
    opened = EvidenceRun.open(run, client_folder)
    data = opened.data(client)
    packs = Packs.load(opened.store(data).final_path)
    if node is None:
        if not len(packs.nodes):
            raise UserError(
                f"client {client}: expected evidence packs, found none; choose another client"
            )
        example = example_row(packs)
        return render(data, packs, example, _summary(opened, data, packs, example))
    ids = data.ids()
    if node not in ids:
        raise UserError(f"--node: expected the id of a node of client {client}, found {node!r}")
    row = packs.row_of(ids.index(node))
    if row is None:
        nodes = torch.as_tensor(np.array([ids.index(node)]))
        round_, fingerprint = opened.result["best_round"], opened.result["model_fingerprint"]
        packs = explain(
            *(opened.model(data), data, nodes, opened.settings, round_, fingerprint),
            smooth=opened.smooth(data),
        )
        row = 0
    return render(data, packs, row, _summary(opened, data, packs, row))


def _summary(
    opened: EvidenceRun, data: ClientData, packs: Packs, row: int
) -> tuple[Sentence, ...] | None:
    """Return the summary of a pack that the run's `llm.summaries` asks for; None = extractive."""
    wanted = LlmConfig.of(opened.config).summaries
    if wanted == ON_DEMAND:
        return summarise_pack(data, packs, row, opened.config, opened.result["run"])
    kept = Summaries.load(opened.store(data).summaries_path) if wanted == CORE else None
    return kept.of(packs, row, data.texts()) if kept else None
