"""The grid: run missing cells in worker processes, and continue when one fails."""

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]

from dance_flwr.config.paths import data_root
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.imports.loading import absolute_source
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import DataError, UserError, counted
from dance_flwr.fingerprint import provenance
from dance_flwr.runs.result import read_result
from dance_flwr.terminal import Bar, bar
from dance_flwr_studies.engine.cells import Cell
from dance_flwr_studies.engine.folder import FACTS, Study, label_key, read_json, run_name
from dance_flwr_studies.engine.worker import (
    Task,
    data_digest,
    init_worker,
    one_line,
    partition_key,
    perform,
)

Log = Callable[[str], None]


@dataclass
class Outcome:
    """The outcome of a grid.

    Attributes
    ----------
    reused : cells with results from an earlier command; done : tasks that this one finished
    failed : name of a run or measurement -> its one-line reason
    """

    reused: int = 0
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def default_jobs() -> int:
    """Return the number of physical cores that this process may use, at least 1."""
    # Physical cores: two hyper-threads share the units that a run keeps busy.
    return int(joblib.cpu_count(only_physical_cores=True))


def with_absolute_data(cell: Cell) -> Cell:
    """Return the cell with an absolute data folder, as workers may run elsewhere."""
    if cell.measure:
        return cell
    data = absolute_source(cell.config.data, data_root(cell.config))
    return replace(cell, config=replace(cell.config, data=data))


def check_labels(cells: Sequence[Cell]) -> None:
    """Check that no two cells of an experiment carry the same labels."""
    counts = Counter(label_key(cell.labels) for cell in cells)
    if twice := [key for key, count in counts.items() if count > 1]:
        raise UserError(f"experiment: expected cells with distinct labels, found {twice[0]} twice")


def run_grid(study: Study, cells: Sequence[Cell], jobs: int, again: bool, log: Log) -> Outcome:
    """Run every cell that lacks a result, and reuse existing results.

    The caller holds the study (`cell_filters.at_work`): two commands would remove each other's
    unfinished runs.

    Raises
    ------
    UserError : existing results are of another graph of the same name
    KeyboardInterrupt : after the workers were stopped; finished runs stay
    """
    cells = [with_absolute_data(cell) for cell in cells]
    reused = [] if again else [cell for cell in cells if study.has(cell)]
    todo = cells if again else [cell for cell in cells if not study.has(cell)]
    outcome = Outcome(reused=len(reused))
    if reused:
        # The graph may have changed under the same name.
        _check_data(study, reused)
        log(_reused_line(study, reused))
    to_run = [cell for cell in todo if not cell.measure]
    # In this process: encoding uses all cores, and runs share partitions.
    partitions = _prepare({run_name(cell.config): cell.config for cell in to_run}, outcome, log)
    # Cells with the same settings share one run.
    by_run: dict[str, list[Cell]] = {}
    for cell in to_run:
        if (name := run_name(cell.config)) in partitions:
            by_run.setdefault(name, []).append(cell)
    tasks = [
        Task(
            shared[0],
            study.root,
            partitions[name],
            tuple(dict.fromkeys(cell.analysis for cell in shared if cell.analysis)),
            again,
        )
        for name, shared in by_run.items()
    ]
    _work(tasks, jobs, outcome, "run")
    measures = {study.product(cell): Task(cell, study.root) for cell in todo if cell.measure}
    # One at a time and each in a new process: what they measure is time and memory.
    _work(list(measures.values()), 1, outcome, "measurement", tasks_per_worker=1)
    return outcome


def _reused_line(study: Study, cells: Sequence[Cell]) -> str:
    folders = {study.run_folder(cell.config) for cell in cells if not cell.measure}
    versions = [read_result(folder).get("provenance") for folder in folders]
    # Other code may give other numbers; the user decides whether to repeat the runs.
    other = sum(version != provenance() for version in versions)
    line = f"found       {counted(len(cells), 'cell')} with results"
    if not other:
        return line
    runs = counted(len(versions), "run")
    return f"{line}; other code made {other} of their {runs} (--again repeats them)"


def _check_data(study: Study, cells: Iterable[Cell]) -> None:
    digests: dict[str, str] = {}
    for cell in (cell for cell in cells if not cell.measure):
        data, path = cell.config.data, study.run_folder(cell.config) / FACTS
        if data not in digests:
            # Results can be read on a machine without the data.
            with suppress(DataError):
                digests[data] = data_digest(cell.config)
        used = read_json(path).get("data") if path.is_file() else None
        if used and data in digests and used != digests[data]:
            raise UserError(
                f"{path.parent}: expected a run on the current graph {data}, digest "
                f"{digests[data]}, found digest {used}; choose another --out, or use --again"
            )


def _prepare(configs: Mapping[str, RunConfig], outcome: Outcome, log: Log) -> dict[str, Path]:
    folders: dict[tuple[Any, ...], Path | str] = {}
    ready: dict[str, Path] = {}
    for name, config in configs.items():
        key = partition_key(config)
        if key not in folders:
            try:
                folders[key] = prepare(config, log).folder
            except Exception as error:  # a missing data set must not stop the others
                folders[key] = one_line(error)
        folder = folders[key]
        if isinstance(folder, str):
            outcome.failed[name] = folder
        else:
            ready[name] = folder
    return ready


def _work(
    tasks: Sequence[Task],
    jobs: int,
    outcome: Outcome,
    what: str,
    tasks_per_worker: int | None = None,
) -> None:
    """Do the tasks in worker processes; a worker that dies fails its own task only."""
    if not tasks:
        return
    with bar("study", len(tasks), f"{what}s") as shown:
        lost = _in_pool(tasks, min(jobs, len(tasks)), outcome, shown, tasks_per_worker)
        for task in lost:  # a dying worker breaks the pool: one by one, the next names its task
            if _in_pool([task], 1, outcome, shown, tasks_per_worker):
                outcome.failed[task.name] = (
                    "its worker process died; it may have run out of memory (fewer --jobs)"
                )


def _in_pool(
    tasks: Sequence[Task], jobs: int, outcome: Outcome, shown: Bar, tasks_per_worker: int | None
) -> list[Task]:
    """Do the tasks; return those without an answer because a worker died."""
    # Spawned: a fork of a process with threads, as torch and a bar have, may inherit a held lock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        jobs, context, initializer=init_worker, max_tasks_per_child=tasks_per_worker
    )
    lost: list[Task] = []
    try:
        futures = {pool.submit(perform, task): task for task in tasks}
        for future in as_completed(futures):
            task = futures[future]
            if isinstance(future.exception(), BrokenProcessPool):
                lost.append(task)
                continue
            if reason := future.result():
                outcome.failed[task.name] = reason
            else:
                outcome.done += 1
            shown.move(shown.n + 1, f"{outcome.done} done, {len(outcome.failed)} failed")
    except BaseException:  # also Ctrl-C: no worker outlives the command
        pool.shutdown(wait=False, cancel_futures=True)
        workers = multiprocessing.active_children()
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(10)
        for task in tasks:
            task.clean()
        raise
    pool.shutdown()
    return lost
