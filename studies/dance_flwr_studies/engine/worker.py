"""What a worker process does: one run with its analyses, or one measurement.

A run also stores facts that only a simulation can know, such as true labels of the core.
"""

import hashlib
import multiprocessing
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.config.paths import data_root
from dance_flwr.config.plugins import resolve
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import read_card
from dance_flwr.data.graphs.graph import TRAIN
from dance_flwr.data.imports.loading import source_identity
from dance_flwr.data.prepare import partition_spec
from dance_flwr.disk import write_json
from dance_flwr.errors import UserError
from dance_flwr_studies.engine.cells import Cell
from dance_flwr_studies.engine.folder import FACTS, Study, analysis_file, cell_name, run_name
from dance_flwr_studies.engine.llm_rows import llm_facts


@dataclass(frozen=True)
class Task:
    """One task of a worker.

    Attributes
    ----------
    cell : of the run or measurement
    root : the study's folder; partition : holds the client folders, None for a measurement
    analyses : what is computed from the run
    again : whether what exists is computed anew
    """

    cell: Cell
    root: Path
    partition: Path | None = None
    analyses: tuple[str, ...] = ()
    again: bool = False

    @property
    def name(self) -> str:
        """Name of the run or measurement, for messages."""
        return cell_name(self.cell)

    @property
    def draft(self) -> Path:
        """The folder of an unfinished run, renamed when result and facts are in it."""
        return Study(self.root).runs / f".{run_name(self.cell.config)}.draft"

    @property
    def client_run(self) -> str:
        """Name of the run's folder at the clients, the same for every attempt at a run."""
        # Two studies on one partition must not share a folder at the clients.
        digest = hashlib.sha256(str(Study(self.root).root).encode()).hexdigest()[:8]
        return f"study-{digest}-{run_name(self.cell.config).rpartition('-')[2]}"

    def clean(self) -> None:
        """Remove the files of a finished or killed run at the clients; they would fill the disk."""
        if self.partition is None:
            return
        for folder in [self.draft, *self.partition.glob(f"client-*/runs/{self.client_run}")]:
            shutil.rmtree(folder, ignore_errors=True)


def init_worker() -> None:
    """Prepare a worker: ignore Ctrl-C, use one core, exit with the parent process."""
    import torch

    # Ctrl-C reaches every process of the terminal; the parent decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Workers run side by side, one per core.
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        # `sys.exit` in a thread ends the thread alone.
        os._exit(1)


def perform(task: Task) -> str:
    """Do a task; return an empty string, or the reason of its failure in one line.

    The traceback goes to `failed/`.
    """
    note = Study(task.root).failed / f"{task.name}.txt"
    # The failure of an earlier attempt.
    note.unlink(missing_ok=True)
    try:
        (_measure if task.cell.measure else _run)(task)
    except Exception as error:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(traceback.format_exc(), encoding="utf-8")
        return one_line(error)
    return ""


def one_line(error: Exception) -> str:
    """Return the reason of a failure in one line."""
    reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(reason.split())


def _run(task: Task) -> None:
    """Run in this process, where there is no result yet, and then the analyses."""
    assert task.partition is not None
    study, config = Study(task.root), task.cell.config
    folder = study.run_folder(config)
    if task.again or not study.has_run(config):
        _train(task, folder, task.partition)
    for target in task.analyses:
        path = folder / analysis_file(target)
        if task.again or not path.is_file():
            analyse = resolve(target, f"analysis {target!r}")
            write_json(path, analyse(folder, config, task.partition))


def _train(task: Task, final: Path, partition: Path) -> None:
    """The folder gets its final name when result and facts are in it."""
    from dance_flwr.runs.simulation.in_process import run_in_process

    config, draft = task.cell.config, task.draft
    task.clean()
    try:
        # CPU seconds: wall-clock time would include other work on the machine.
        start = time.process_time()
        settings = replace(config, out=str(final))
        result = run_in_process(settings, draft, lambda row: None, task.client_run)
        _refuse_absences(result)
        seconds = time.process_time() - start
        content = facts(partition, task.client_run) | {"cpu_seconds": seconds}
        content |= llm_facts(partition, task.client_run, config)
        content |= {"data": data_digest(config)}
        write_json(draft / FACTS, content)
        # The result of an earlier attempt.
        shutil.rmtree(final, ignore_errors=True)
        draft.replace(final)
    finally:
        task.clean()


def _refuse_absences(result: dict[str, Any]) -> None:
    """Refuse the result of a run that went on without a client."""
    # A run may continue without a client, but a result of a study is that of all clients.
    for row in result["history"]:
        for client, reason in row["absent"].items():
            raise UserError(
                f"expected all clients in every round of a study, found none of client {client} "
                f"in round {row['round']}: {reason}"
            )


def _measure(task: Task) -> None:
    start = time.perf_counter()
    measured = resolve(task.cell.measure, "measurement")(task.cell.labels)
    seconds = time.perf_counter() - start
    content = {"labels": dict(task.cell.labels), **measured, "seconds_of_measurement": seconds}
    write_json(Study(task.root).product(task.cell), content)


def facts(partition: Path, run: str) -> dict[str, Any]:
    """Return counts by client and class that no server of a real federation would know.

    Returns
    -------
    "core_per_class" : true labels of the last condensed nodes, "" for nodes without one; None for a
        client that keeps no core. A method that condenses leaves `core` (node numbers) or
        `condensed_labels` (classes) in its state.npz
    "train_per_class" : labelled training nodes
    """
    core, train = [], []
    # By number: as text, client-10 comes before client-2.
    for folder in sorted(partition.glob("client-*"), key=lambda p: int(p.name.partition("-")[2])):
        labels, split = (np.load(folder / "arrays" / f"{name}.npy") for name in ("labels", "split"))
        names = read_card(folder).class_names
        train.append(_per_class(names, labels[(split == TRAIN) & (labels >= 0)]))
        condensed = _condensed_labels(folder / "runs" / run / "state.npz", labels)
        core.append(None if condensed is None else _per_class(names, condensed))
    return {"core_per_class": core, "train_per_class": train}


def _condensed_labels(path: Path, labels: NDArray[Any]) -> NDArray[Any] | None:
    if not path.is_file():
        return None
    with np.load(path) as state:
        if "condensed_labels" in state:
            return np.asarray(state["condensed_labels"])
        return np.asarray(labels[state["core"]]) if "core" in state else None


def _per_class(names: Sequence[str], labels: NDArray[Any]) -> dict[str, int]:
    counts = {name: int((labels == number).sum()) for number, name in enumerate(names)}
    unknown = int((labels < 0).sum())
    return counts | ({"": unknown} if unknown else {})


def data_digest(config: RunConfig) -> str:
    """Return 16 hex digits that identify the content of the graph."""
    return hashlib.sha256(source_identity(config.data, data_root(config)).encode()).hexdigest()[:16]


def partition_key(config: RunConfig) -> tuple[Any, ...]:
    """Return what decides a partition folder, equal for cells that share one."""
    encoder = config.encoder, config.encoder_sha256, config.encoder_precision
    bank = *encoder, config.chunk_tokens, config.max_chunks
    return config.data, config.data_root, *bank, partition_spec(config)
