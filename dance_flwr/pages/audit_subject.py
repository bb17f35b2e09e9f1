"""What an audit page is about: the data of one client, and the model that predicts them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.api.prediction.bundle import Bundle
from dance_flwr.api.prediction.predicting import labels_of, opened
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.selection import Selection
from dance_flwr.data.card import CARD
from dance_flwr.data.client_folder import Say
from dance_flwr.errors import UserError
from dance_flwr.evidence.explain import considered, explain
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.verify import verify_sources
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.smoothing import smoothing_of
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.runs.evidence import EvidenceRun
from dance_flwr.runs.evidence_verification import verify_evidence


@dataclass(frozen=True)
class Verification:
    """What was verified before the page was written.

    Attributes
    ----------
    passed : whether everything agreed
    lines : what was compared, and at last what did not agree
    at : time in UTC; seconds : how long it took
    """

    passed: bool
    lines: Sequence[str]
    at: datetime
    seconds: float


@dataclass(frozen=True)
class Subject:
    """One client's data under one model.

    Attributes
    ----------
    client : the data, and the model loaded there; name : what to call the client
    kind : "run" or "bundle"; source : name of the run, or of the bundle's folder
    record : content of `result.json` or `bundle.json`; model_id : fingerprint of the model
    round_ : of the model
    labels : [n] int64, -1 = unknown
    stored : the packs that the run kept of this model, if any
    rounds : files of the packs of earlier rounds, if the run keeps them
    home : where a page of this client lies by default; None = it has no folder of its own
    verification : of the evidence
    """

    client: Client
    name: str
    kind: str
    source: str
    record: Mapping[str, Any]
    model_id: str
    round_: int
    labels: NDArray[np.int64]
    stored: Packs | None
    rounds: Sequence[Path]
    home: Path | None
    verification: Verification

    @property
    def settings(self) -> DanceConfig:
        """The section `dance` of the configuration."""
        return DanceConfig.of(self.client.config)

    @property
    def model(self) -> DanceModel:
        """The model at this client."""
        return cast(DanceModel, self.client.model)

    @cached_property
    def ids(self) -> list[str]:
        """Ids of all nodes."""
        return self.client.data.ids()

    @cached_property
    def texts(self) -> list[str]:
        """Texts of all nodes."""
        return self.client.data.texts()

    @cached_property
    def views(self) -> dict[str, NDArray[np.float32]]:
        """[n, C] probabilities of every node by view, and what is deployed."""
        info = RoundInfo("page", self.round_, self.model_id, final=True)
        with torch.no_grad():
            found = self.client.predict(info, torch.arange(self.client.data.num_nodes))
        return {name: probs.cpu().numpy() for name, probs in found.items()}

    def packs(self, nodes: Tensor) -> Packs:
        """Return the packs of these nodes ([m] int64) under the model."""
        data = self.client.data
        smooth = smoothing_of(self.client.config, data)
        how = (self.settings, self.round_, self.model_id)
        return explain(self.model, data, nodes, *how, smooth=smooth)

    def considered(self, nodes: Tensor) -> Selection:
        """Return what the evidence of these nodes ([m] int64) was chosen from."""
        return considered(self.model, self.client.data, nodes, self.settings)


@contextmanager
def of_run(
    run: Path, number: int, client_folder: Path | None, encode: int, say: Say
) -> Iterator[Subject]:
    """Open a client of a finished run, verified.

    Parameters
    ----------
    number : of the client; client_folder : its folder, where the run's partition is elsewhere
    encode : chunks whose embeddings are computed again

    Raises
    ------
    UserError : there is no such client, or the run keeps no evidence
    """
    found = EvidenceRun.open(run, client_folder)
    if client_folder is None and not 0 <= number < found.config.clients:
        raise UserError(
            f"--client: expected a number from 0 to {found.config.clients - 1}, found {number}"
        )
    folder = found.folder_of(number)
    verification = _verified(lambda told: verify_evidence(run, folder, told, encode), say)
    data = found.data(number)
    client, store = Client(data, found.config), found.store(data)
    client.load(found.weights)
    yield Subject(
        client=client,
        name=f"client {data.card.client}",
        kind="run",
        source=str(found.result["run"]),
        record=found.result,
        model_id=str(found.result["model_fingerprint"]),
        round_=int(found.result["best_round"]),
        labels=data.labels.cpu().numpy(),
        stored=Packs.load(store.final_path) if store.final_path.is_file() else None,
        rounds=[path for path in store.all_packs() if path != store.final_path],
        home=store.folder if store.folder.is_dir() else data.folder,
        verification=verification,
    )


@contextmanager
def of_bundle(folder: Path, data: str, say: Say) -> Iterator[Subject]:
    """Open a graph, or a client's folder, under the model of a bundle.

    Raises
    ------
    UserError : the bundle's method keeps no evidence, or the data do not fit the model
    """
    bundle = Bundle.open(folder)
    if not get_spec(bundle.config.method).keeps_evidence:
        raise UserError(
            f"{folder}: expected a bundle of a method that keeps evidence, found one of "
            f"{bundle.config.method!r}"
        )
    with opened(bundle, data, say) as client:
        client_data, own = client.data, (Path(data) / CARD).is_file()

        def check(told: Say) -> None:
            chunks = len(client_data.chunk_sha256)
            verify_sources(client_data)
            texts = client_data.num_nodes
            told(f"{chunks:,} chunks of {texts:,} texts have the digests kept with them")
            told(f"evidence was computed by model {bundle.model_id} when this page was written")

        labels = client_data.labels if own else next(labels_of(data, client))[1]
        yield Subject(
            client=client,
            name=f"client {client_data.card.client}" if own else Path(data).name,
            kind="bundle",
            source=folder.resolve().name,
            record=bundle.facts,
            model_id=bundle.model_id,
            round_=int(bundle.facts["best_round"]),
            labels=labels.cpu().numpy(),
            stored=None,
            rounds=[],
            home=Path(data) if own else None,
            verification=_verified(check, say),
        )


def _verified(check: Any, say: Say) -> Verification:
    """Run a check that tells what it does and raises where something does not agree."""
    lines: list[str] = []

    def told(line: str) -> None:
        lines.append(line)
        say(line)

    at, start, passed = datetime.now(UTC), monotonic(), True
    try:
        check(told)
    except UserError as error:
        passed = False
        lines.append(str(error))
    return Verification(passed, lines, at, monotonic() - start)
