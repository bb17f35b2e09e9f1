"""What an audit page shows: the data of one client, and the model that predicts them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.api.bundle import FACTS, Bundle
from dance_flwr.api.predicting import Log, explainer_of, known_labels, open_data
from dance_flwr.config.paths import RESULT
from dance_flwr.data.card import CARD
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.verify import verify_sources
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.run_files import deployed_own
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.evidence import FinishedRun, verify_evidence


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
    client : the data, with the model loaded; name : of the client on the page
    explainer : of the same model at these data
    kind : "run" or "bundle"; source : name of the run, or of the bundle's folder
    record : content of `result.json` or `bundle.json`
    labels : [n] int64, -1 = unknown
    stored : the packs that the run kept of this model, if any
    rounds : files of the packs of earlier rounds, if the run keeps them
    home : where a page of this client lies by default; None = it has no folder of its own
    verification : of the evidence
    """

    client: Client
    explainer: Explainer
    name: str
    kind: str
    source: str
    record: Mapping[str, Any]
    labels: NDArray[np.int64]
    stored: Packs | None
    rounds: Sequence[Path]
    home: Path | None
    verification: Verification

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
        """[n, C] probabilities of every node by view, and what is deployed, calibrated."""
        info = RoundInfo("page", self.explainer.round, self.explainer.model_id, final=True)
        with torch.no_grad():
            probs = self.client.predict(info, torch.arange(self.client.data.num_nodes))
        probs["deployed"] = self.calibration.apply(probs["deployed"])
        return {name: of_view.float().cpu().numpy() for name, of_view in probs.items()}

    @cached_property
    def calibration(self) -> Calibration:
        """The temperature of the run, which the model's bundle has, too."""
        return Calibration(**self.record["calibration"])


def is_bundle(source: Path, data: str | None) -> bool:
    """Return whether `source` is a bundle, to which `data` belong, or else a finished run.

    Raises
    ------
    UserError : `source` is neither, or `data` belong to the other
    """
    if (source / FACTS).is_file():
        if data is None:
            raise UserError(
                "--data: expected the folder of a graph or of a client beside a bundle, found none"
            )
        return True
    if data is not None:
        raise UserError(
            f"--data: expected a bundle, which `dance-flwr export` writes, found {source}; "
            "leave --data out for the clients of a run"
        )
    if not (source / RESULT).is_file():
        raise UserError(
            f"expected the folder of a finished run or a bundle, found no {RESULT} and no {FACTS} "
            f"in {source}"
        )
    return False


@contextmanager
def open_run(
    run: Path, number: int, client_folder: Path | None, encode: int, log: Log
) -> Iterator[Subject]:
    """Open a client of a finished run, verified.

    Parameters
    ----------
    number : of the client; client_folder : its folder, where the run's partition is elsewhere
    encode : number of chunks whose embeddings are computed again

    Raises
    ------
    UserError : there is no such client, or the run keeps no evidence
    """
    finished = FinishedRun.open(run, client_folder)
    folder = finished.folder_of(number)
    verification = _verify(lambda write: verify_evidence(run, folder, write, encode), log)
    data = finished.data(number)
    client, run_folder = Client(data, finished.config), finished.client_run_folder(data)
    client.load(finished.weights)
    client.own = deployed_own(data.folder, str(finished.result["run"]), finished.config)
    final = run_folder.final_path
    yield Subject(
        client=client,
        explainer=finished.explainer(data),
        name=f"client {data.card.client}",
        kind="run",
        source=str(finished.result["run"]),
        record=finished.result,
        labels=data.labels.cpu().numpy(),
        stored=Packs.load(final) if final.is_file() else None,
        rounds=[path for path in run_folder.all_packs() if path != final],
        home=run_folder.folder if run_folder.folder.is_dir() else data.folder,
        verification=verification,
    )


@contextmanager
def open_bundle(folder: Path, data: str, log: Log) -> Iterator[Subject]:
    """Open a graph, or a client's folder, with the model of a bundle.

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
    with open_data(bundle, data, log) as client:
        client_data, of_client = client.data, (Path(data) / CARD).is_file()

        def check(write: Log) -> None:
            chunks = len(client_data.chunk_sha256)
            verify_sources(client_data)
            texts = client_data.num_nodes
            read = f"{counted(chunks, 'text passage')} of {counted(texts, 'text')}"
            write(f"{read}: digests are those kept with them")
            write(f"evidence was computed by model {bundle.model_id} when this page was written")

        labels = client_data.labels if of_client else known_labels(data, client)[1]
        yield Subject(
            client=client,
            explainer=explainer_of(bundle, client),
            name=f"client {client_data.card.client}" if of_client else Path(data).name,
            kind="bundle",
            source=folder.resolve().name,
            record=bundle.facts,
            labels=labels.cpu().numpy(),
            stored=None,
            rounds=[],
            home=Path(data) if of_client else None,
            verification=_verify(check, log),
        )


def _verify(check: Callable[[Log], None], log: Log) -> Verification:
    """Run a check that logs what it does and raises where something does not agree."""
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        log(line)

    # Two clocks: the time of day may be set while the check runs.
    at, start, passed = datetime.now(UTC), monotonic(), True
    try:
        check(write)
    except UserError as error:
        # Why it goes on (decision 22): the page is written, and says in its head what failed.
        passed = False
        lines.append(str(error))
    return Verification(passed, lines, at, monotonic() - start)
