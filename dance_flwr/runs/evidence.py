"""The evidence of a finished run: show it, verify it.

Verification follows a chain from the run's record to each weight (decision 20):
record -> card -> files (texts, edges, embeddings) -> chunks -> packs <- model <- record
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.embedding_check import encoded_again
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.state import RunFolder
from dance_flwr.data.card import CARD, read_card
from dance_flwr.data.digests import data_commitment
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import example_row, render
from dance_flwr.evidence.seal import verify_seal
from dance_flwr.evidence.summaries.summary import Sentence, Summaries
from dance_flwr.evidence.verify import PackCounts, verify_packs, verify_sources
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.own_models import deployed_own
from dance_flwr.federation.wire.keys import DATA_SHA256, EVIDENCE_SHA256
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.result import Round, config_of, load_model, read_result

# Why (decision 20): nothing but the encoder ties embeddings to texts, and encoding is slow.
ENCODED_CHUNKS = 16  # per client
Log = Callable[[str], None]


def explainer_of(
    client: Client, round_: int, model_id: str, calibration: Calibration | None = None
) -> Explainer:
    """Return what explains the predictions of a client: its model at its data, smoothed, mixed."""
    return Explainer(
        cast(DanceModel, client.model),
        client.data,
        DanceConfig.of(client.config),
        round_,
        model_id,
        client.smooth,
        client.mixture(),
        calibration or Calibration(),
    )


@dataclass(frozen=True)
class FinishedRun:
    """A finished run of method "dance", with its record, model, clients and packs.

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
    def open(cls, folder: Path, client_folder: Path | None = None) -> "FinishedRun":
        """Open the run in `folder`."""
        result = read_result(folder)
        if result["method"] != "dance":
            raise UserError(
                f"{folder}: expected a run of method 'dance', found {result['method']!r}, which "
                "keeps no evidence"
            )
        return cls(folder, result, config_of(result), client_folder)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The saved state dict of the best validation round."""
        # Why (decision 20): a model is compared with the record whenever it is read.
        return load_model(self.folder, self.model_id)

    @property
    def model_id(self) -> str:
        """Fingerprint of the model in the run's record."""
        return str(self.result["model_fingerprint"])

    @property
    def clients(self) -> list[int | None]:
        """Numbers of the clients to read; None is the client of `client_folder`."""
        return [None] if self.client_folder is not None else list(range(self.config.clients))

    def folder_of(self, client: int | None) -> Path:
        """Return the folder of a client."""
        if self.client_folder is not None:
            return self.client_folder
        # A deployment records no partition: its clients keep their folders to themselves.
        if (partition := self.result["partition_dir"]) is None:
            raise UserError(
                "expected --client-folder, found none; the clients of this run keep their "
                "evidence on their own machines"
            )
        if client not in self.clients:
            raise UserError(
                f"--client: expected a number from 0 to {self.config.clients - 1}, found {client}"
            )
        return Path(partition) / f"client-{client}"

    def data(self, client: int | None, derived_folder: Path | None = None) -> ClientData:
        """Open the data of a client; errors are those of `folder_of`."""
        return ClientData.of(self.folder_of(client), self.config, derived_folder)

    def client_run_folder(self, data: ClientData) -> RunFolder:
        """Return the folder of this run at a client."""
        return RunFolder(data.folder, self.result["run"])

    def client(self, data: ClientData) -> Client:
        """Return a client with the saved model, its class prior and its own model."""
        client = Client(data, self.config)
        client.load(self.weights)
        client.own = deployed_own(data.folder, str(self.result["run"]), self.config)
        return client

    def explainer(self, client: Client) -> Explainer:
        """Return what explains the predictions of `client`, as it made them in the run."""
        return explainer_of(client, int(self.result["best_round"]), self.model_id)

    def summary(self, data: ClientData, packs: Packs, row: int) -> tuple[Sentence, ...] | None:
        """Return the summary of a pack that the run has written; None if it wrote none."""
        summaries = Summaries.load(self.client_run_folder(data).summaries_path)
        return summaries.of(packs, row, data.texts()) if summaries else None

    def recorded(self, key: str, client: int) -> str | None:
        """Return the hash of a client in the run's record, None if there is none."""
        value = self.result.get(key, {}).get(str(client))
        return None if value is None else str(value)


def show_evidence(run: Path, client: int, node: str | None, client_folder: Path | None) -> str:
    """Return one evidence pack of a run as text.

    Parameters
    ----------
    client : number of the client
    node : id of the node; None = the most confident pack that draws on a neighbour. The pack of a
        node outside the condensed core is computed with the run's model
    client_folder : the client's folder; None = that of the run's partition

    Raises
    ------
    UserError : the client has no packs, or no node of this id
    """
    finished = FinishedRun.open(run, client_folder)
    data = finished.data(client)
    calibration = Calibration(**finished.result["calibration"])
    packs = Packs.load(finished.client_run_folder(data).final_path).calibrated(calibration)
    if node is None:
        if not len(packs.nodes):
            raise UserError(
                f"client {client}: expected evidence packs, found none; choose another client"
            )
        row: int | None = example_row(packs)
    elif node in (ids := data.ids()):
        place = ids.index(node)
        if (row := packs.row_of(place)) is None:
            explainer = finished.explainer(finished.client(data))
            packs, row = explainer.explain(torch.tensor([place])).calibrated(calibration), 0
    else:
        raise UserError(f"--node: expected the id of a node of client {client}, found {node!r}")
    assert row is not None
    return render(data, packs, row, finished.summary(data, packs, row))


def verify_evidence(
    run: Path,
    client_folder: Path | None,
    log: Log,
    encode: int = ENCODED_CHUNKS,
) -> None:
    """Verify all evidence of a run against its record, the source texts and the saved model.

    Parameters
    ----------
    client_folder : folder of the one client to verify; None = all clients of the run's partition
    log : receives a few lines per client, then a verdict
    encode : chunks per client, drawn at random, to encode again and compare; 0 = none

    Raises
    ------
    UserError : names the first file, span, weight or model that does not agree
    """
    finished = FinishedRun.open(run, client_folder)
    assert finished.weights  # reading them compares them with the record
    with tempfile.TemporaryDirectory() as scratch:
        verified = [
            _verify_client(finished, client, encode, Path(scratch) / str(number), log)
            for number, client in enumerate(finished.clients)
        ]
    took_part = {n: counts for n, counts in enumerate(verified) if counts is not None}
    if client_folder is None and DanceConfig.of(finished.config).evidence_keep == "all":
        _verify_rounds(finished, took_part)
    # The verdict covers what was checked: an absent client's evidence is not verified.
    if len(took_part) == len(verified):
        log("evidence verified")
    else:
        log(f"evidence of {len(took_part)} of {counted(len(verified), 'client')} verified")


def _verify_client(
    finished: FinishedRun, client: int | None, encode: int, scratch: Path, log: Log
) -> PackCounts | None:
    """Verify the data and the packs of one client; return None if it took no part in the run.

    Parameters
    ----------
    scratch : folder for what is derived from the data, which is computed again and not read

    Raises
    ------
    UserError : names what does not agree
    """
    card = read_card(folder := finished.folder_of(client))
    name = f"client {card.client}"
    recorded = finished.recorded(DATA_SHA256, card.client)
    if recorded is None:
        log(f"{name}: took no part in the run, whose record holds no hash of its data")
        return None
    # The card fixes its files, and the record fixes the card: in this order, from the files up.
    if (commitment := data_commitment(card)) != recorded:
        raise UserError(
            f"{folder / CARD}: expected the data {recorded[:12]} of the run's record, found "
            f"{commitment[:12]}; the folder was altered or prepared again after the run"
        )
    data = finished.data(client, scratch)
    log(f"{name}: {len(card.files)} files are those of the run's record, {recorded[:12]}")
    texts = verify_sources(data)
    log(f"{name}: {encoded_again(data, texts, encode)}")
    # Why (decision 20): the seal fixes packs of earlier models, which nothing computes again.
    packs = finished.client_run_folder(data)
    if sealed := finished.recorded(EVIDENCE_SHA256, card.client):
        verify_seal(packs, card.salt, sealed)
    counts = verify_packs(finished.explainer(finished.client(data)), packs, texts)
    log(f"{name}: {counts.line(finished.model_id, bool(sealed))}")
    return counts


def _verify_rounds(finished: FinishedRun, verified: Mapping[int, PackCounts]) -> None:
    """Compare the packs of every round with their number in the run's history."""
    for row in map(Round.of, finished.result.get("history", ())):
        # A record that does not count packs has them for the core of its round.
        expected = row.counts.get("evidence-packs", row.counts.get("condensed-nodes", 0))
        packs = {client: counts.by_round.get(row.round, 0) for client, counts in verified.items()}
        # Too many: only of clients that answered, as the history does not count the packs of a
        # lost answer. Too few: only if the packs of every client are known.
        answered = sum(packs[client] for client in row.answered if client in packs)
        missing = len(verified) == finished.config.clients and sum(packs.values()) < expected
        if missing or answered > expected:
            raise UserError(
                f"round {row.round}: expected packs of {expected:,} nodes, as the record of the "
                f"run counts, found {sum(packs.values()) if missing else answered:,}; packs were "
                "removed or added, or a client lost its folder"
            )
