"""The grid: runs what is missing, each run in a worker process, and goes on when one of them fails."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from tqdm import tqdm

from dance_flwr.config.paths import RESULT, data_root
from dance_flwr.config.tree import RunConfig
from dance_flwr.data import unambiguous
from dance_flwr.data.client_folder import Say
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import DataError, UserError
from dance_flwr.experiments.cells import Cell
from dance_flwr.experiments.study import FACTS, Study, read_json, run_name
from dance_flwr.experiments.work import Task, begin, data_digest, one_line, perform, same_partition
from dance_flwr.fingerprint import code_fingerprint
from dance_flwr.runs.locks import exclusive

_POLL_SECONDS = 1.0


@dataclass
class Outcome:
    """What came of a grid.

    Attributes
    ----------
    failed : name of a run or measurement -> its one-line reason
    """

    found: int = 0
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def default_jobs() -> int:
    """Return the number of physical cores that this process may use, at least 1."""
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def absolute(cell: Cell) -> Cell:
    """Return the cell with its data folder, if it is one, as an absolute path: workers may be
    elsewhere.
    """
    if cell.measure:
        return cell
    return replace(
        cell,
        config=replace(cell.config, data=unambiguous(cell.config.data, data_root(cell.config))),
    )


def check_cells(cells: Sequence[Cell]) -> None:
    """Check that no two cells of an experiment carry the same labels.

    Raises
    ------
    UserError : two do
    """
    seen: set[tuple[Any, ...]] = set()
    for cell in cells:
        key = tuple(sorted(cell.labels.items()))
        if key in seen:
            raise UserError(
                f"experiment: expected cells with labels of their own, found {dict(cell.labels)} twice"
            )
        seen.add(key)


def run_grid(study: Study, cells: Sequence[Cell], jobs: int, again: bool, say: Say) -> Outcome:
    """Run every cell of which something is missing; results that are there are found, not made
    again.

    Parameters
    ----------
    jobs : worker processes; measurements always run one at a time
    again : make everything again

    Raises
    ------
    UserError : results that are there were made on another graph of the same name, or another
        command is at work in this study
    KeyboardInterrupt : after the workers were stopped; finished runs stay
    """
    # Two would take each other's half-made runs away.
    with exclusive(study.root, "another dance-flwr experiment"):
        return _run_grid(study, [absolute(cell) for cell in cells], jobs, again, say)


def _run_grid(study: Study, cells: Sequence[Cell], jobs: int, again: bool, say: Say) -> Outcome:
    outcome = Outcome()
    todo = cells if again else [cell for cell in cells if not study.found(cell)]
    found = [] if again else [cell for cell in cells if study.found(cell)]
    outcome.found = len(found)
    if found:
        _check_data(study, found)
        say(_found_line(study, found))
    wanted = [cell for cell in todo if not cell.measure]
    partitions = _prepare({run_name(cell.config): cell.config for cell in wanted}, outcome, say)
    ready = [cell for cell in wanted if run_name(cell.config) in partitions]
    runs: dict[str, Task] = {}
    for cell in ready:
        if again or not study.has_run(cell.config):
            name = run_name(cell.config)
            runs.setdefault(name, Task("run", cell, study.root, partitions[name]))
    _work(list(runs.values()), jobs, outcome, "runs")
    left = [cell for cell in ready if cell.analysis and study.has_run(cell.config)]
    left = [cell for cell in left if run_name(cell.config) not in outcome.failed]
    analyses = {
        study.product(cell): Task("analysis", cell, study.root, partitions[run_name(cell.config)])
        for cell in left
        if again or not study.product(cell).is_file()
    }
    _work(list(analyses.values()), jobs, outcome, "analyses")
    measures = {
        study.product(cell): Task("measure", cell, study.root) for cell in todo if cell.measure
    }
    _work(list(measures.values()), 1, outcome, "measurements", tasks_per_worker=1)
    return outcome


def _found_line(study: Study, cells: Iterable[Cell]) -> str:
    """Return how many cells were found, and how many of their results other code made."""
    names = {
        run_name(cell.config): study.run_folder(cell.config) for cell in cells if not cell.measure
    }
    prints = [read_json(folder / RESULT)["code_fingerprint"] for folder in names.values()]
    other = sum(value != code_fingerprint() for value in prints)
    total = len(list(cells))
    line = f"found       {total} of the cells are there already"
    return line + (
        f"; other code made {other} of their {len(prints)} runs (--again makes them anew)"
        if other
        else ""
    )


def _check_data(study: Study, cells: Iterable[Cell]) -> None:
    """Check that found runs were made on the graph that is on this machine, where there is one.

    Raises
    ------
    UserError : one was not
    """
    digests: dict[str, str] = {}
    for cell in (cell for cell in cells if not cell.measure):
        data, path = cell.config.data, study.run_folder(cell.config) / FACTS
        if data not in digests:
            with suppress(DataError):
                digests[data] = data_digest(cell.config)
        made = read_json(path).get("data") if path.is_file() else None
        if made and data in digests and made != digests[data]:
            raise UserError(
                f"{path.parent}: expected a run on {data} as it is now, {digests[data]}, found one on {made}; "
                "choose another --out, or --again"
            )


def _prepare(configs: Mapping[str, RunConfig], outcome: Outcome, say: Say) -> dict[str, Path]:
    """Return run name -> partition folder, each partition made once, here, with all threads."""
    folders: dict[tuple[Any, ...], Path | str] = {}
    ready: dict[str, Path] = {}
    for name, config in configs.items():
        key = same_partition(config)
        if key not in folders:
            try:
                folders[key] = prepare(config, say).folder
            except Exception as error:  # one data set that is missing must not stop the others
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
    """Do the tasks in worker processes and note which failed; a worker that dies costs its own task
    only.
    """
    if not tasks:
        return
    rounds = sum(task.rounds for task in tasks)
    total, unit = (rounds, "round") if rounds else (len(tasks), "task")
    with tqdm(total=total, unit=unit, desc=f"{len(tasks)} {what}", smoothing=0.05) as bar:
        left = _in_pool(list(tasks), min(jobs, len(tasks)), outcome, bar, tasks_per_worker)
        for task in left:  # those that a dying worker took along: one by one, so that the next death names its task
            if _in_pool([task], 1, outcome, bar, tasks_per_worker):
                outcome.failed[task.name] = (
                    "its worker process died; it may have run out of memory (fewer --jobs)"
                )


def _in_pool(
    tasks: list[Task], jobs: int, outcome: Outcome, bar: Any, tasks_per_worker: int | None
) -> list[Task]:
    """Do the tasks; return those that got no answer because a worker died."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        jobs, context, initializer=begin, max_tasks_per_child=tasks_per_worker
    )
    lost: list[Task] = []
    try:
        futures = {pool.submit(perform, task): task for task in tasks}
        progress = _progress(bar)
        waiting = set(futures)
        while waiting:
            over, waiting = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
            for future in over:
                _settle(future, futures[future], outcome, lost)
            progress([futures[f] for f in waiting], [futures[f] for f in over], outcome)
    except BaseException:
        _stop(pool)
        for task in tasks:
            task.clean()
        raise
    pool.shutdown()
    return lost


def _settle(future: "Future[str]", task: Task, outcome: Outcome, lost: list[Task]) -> None:
    try:
        reason = future.result()
    except BrokenProcessPool:
        lost.append(task)
        return
    if reason:
        outcome.failed[task.name] = reason
    else:
        outcome.done += 1


def _progress(bar: Any) -> Callable[[Sequence[Task], Sequence[Task], Outcome], None]:
    """Return a function that moves the bar to the rounds, or tasks, that are over."""
    base = {"over": bar.n}

    def show(waiting: Sequence[Task], over: Sequence[Task], outcome: Outcome) -> None:
        base["over"] += sum(task.rounds or 1 for task in over)
        seen = base["over"] + sum(task.rounds_done() for task in waiting if task.rounds)
        bar.n = max(
            bar.n, seen
        )  # a folder that just got its final name is counted as neither, for a moment
        bar.set_postfix_str(f"{outcome.done} done, {len(outcome.failed)} failed", refresh=False)
        bar.refresh()

    return show


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers now; what they were making has no final name yet."""
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in multiprocessing.active_children():
        worker.terminate()
    for worker in multiprocessing.active_children():
        worker.join(10)
