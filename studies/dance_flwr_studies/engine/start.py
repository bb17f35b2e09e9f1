"""What `dance-flwr experiment` does once the command line is read."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from dance_flwr.config.paths import check_folder, check_out, data_root
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.text import read_values
from dance_flwr.data.imports.loading import check_source
from dance_flwr.errors import UserError, counted
from dance_flwr.runs.processes import stopping_in_order
from dance_flwr.terminal import console
from dance_flwr_studies import get_experiment
from dance_flwr_studies.engine.cell_filters import at_work, read_shard, where
from dance_flwr_studies.engine.cells import Cell, Experiment, Request
from dance_flwr_studies.engine.estimate import print_calls, print_hours
from dance_flwr_studies.engine.folder import Study, run_name
from dance_flwr_studies.engine.runner import (
    Outcome,
    check_labels,
    default_jobs,
    run_grid,
    with_absolute_data,
)

_print = partial(print, flush=True)
# 130 = 128 + SIGINT, as shells report an interrupted command.
_STOPPED, _FAILED = 130, 2


def start(
    name: str,
    options: Mapping[str, Any],
    pairs: Sequence[str],
    out: Path,
    *,
    jobs: int | None = None,
    dry_run: bool = False,
    again: bool = False,
    labels: Sequence[str] = (),
    shard: str = "",
    command: str = "",
) -> int:
    """Run or print the grid of an experiment; return the exit code.

    Parameters
    ----------
    options : "datasets", "methods", "ratios", "seeds", "rounds"; None = the experiment's default
    pairs : KEY=VALUE settings of every run
    jobs : runs at a time; None = one per core
    labels : LABEL=VALUE that the cells must carry
    shard : i/n, the share of the cells that this command runs; empty = all. The study records
        all of them, so that the folders of n shards can be copied into one
    command : recorded in the study, so that a report can print it

    Returns
    -------
    0, 2 when a cell failed, 130 when interrupted

    Raises
    ------
    UserError : an unknown experiment or method, or no study can be at `out`; ConfigError : settings
        that cannot be used
    """
    experiment: Experiment = get_experiment(name)
    study = Study(out)
    if dry_run:  # writes nothing
        check_folder(study.root, "--out")
    else:
        check_out(study.grids)
    if options.get("ratios") and not experiment.by_ratio:
        raise UserError(
            f"--ratios: expected an experiment with cells for each ratio, found {name}; omit it, "
            "or use --set condensation-ratio=VALUE"
        )
    cells = experiment.cells(_request(experiment, options, pairs))
    # Tables could not tell such cells apart.
    check_labels(cells)
    cells = every = where(cells, labels)
    part = read_shard(shard) if shard else None
    if part and experiment.serial:
        raise UserError(
            f"--shard: expected an experiment whose cells any machine may run, found {name}, which "
            "compares times of one machine; omit it"
        )
    if part:
        cells = part.of(every)
        _print(f"shard       {part}: {len(cells)} of {len(every)} cells")
    # Runs beside each other would change each other's times.
    jobs = 1 if experiment.serial else jobs or default_jobs()
    if dry_run:
        for data, root in {(cell.config.data, data_root(cell.config)) for cell in cells}:
            check_source(data, root)
        _print_grid(study, cells, jobs)
        return 0
    # Why all cells (decision 24): folders of shares can be copied into one another in any order.
    study.remember(name, command, every)
    try:
        with stopping_in_order(), at_work(study.root, part):
            outcome = run_grid(study, cells, jobs, again, _print)
    except KeyboardInterrupt:
        print("stopped     finished runs are kept; repeat the command to continue")
        return _STOPPED
    return _print_outcome(outcome, study)


def _request(experiment: Experiment, options: Mapping[str, Any], pairs: Sequence[str]) -> Request:
    methods = tuple(options.get("methods") or experiment.methods)
    METHODS.check(methods)
    seeds = options.get("seeds")
    return Request(
        # Each once: a repeated name would give two cells the same labels.
        datasets=tuple(dict.fromkeys(options.get("datasets") or experiment.datasets)),
        methods=tuple(dict.fromkeys(methods)),
        seeds=tuple(dict.fromkeys(experiment.seeds if seeds is None else seeds)),
        rounds=options.get("rounds"),
        overrides=read_values([], pairs),
        ratios=tuple(dict.fromkeys(options.get("ratios") or ())),
    )


def _print_outcome(outcome: Outcome, study: Study) -> int:
    counts = f"{outcome.done} made, {outcome.reused} found, {len(outcome.failed)} failed"
    print(f"study       {study.root}: {counts}")
    for name, reason in outcome.failed.items():
        print(f"failed      {name}: {reason}")
    if outcome.failed:
        print(f"tracebacks  {study.failed}")
        return _FAILED
    print(f"next        dance-flwr tables {quote(str(study.root))}  # tables and figures")
    return 0


def _print_grid(study: Study, cells: Sequence[Cell], jobs: int) -> None:
    cells = [with_absolute_data(cell) for cell in cells]
    table = Table(box=SIMPLE_HEAD)
    for heading in ("cell", "seeds", "found"):
        table.add_column(heading, overflow="fold")
    by_seed: dict[str, list[Cell]] = {}
    for cell in cells:
        text = " ".join(f"{key}={value}" for key, value in cell.labels.items() if key != "seed")
        by_seed.setdefault(text, []).append(cell)
    for text, group in by_seed.items():
        seeds = " ".join(str(cell.labels["seed"]) for cell in group if "seed" in cell.labels)
        table.add_row(text, seeds, f"{sum(map(study.has, group))} of {len(group)}")
    console().print(table)
    missing = {study.product(cell): cell for cell in cells if not study.has(cell)}
    new = {run_name(cell.config): cell for cell in missing.values() if not cell.measure}
    runs = {name: cell for name, cell in new.items() if not study.has_run(cell.config)}
    measures = sum(bool(cell.measure) for cell in missing.values())
    analyses = sum(bool(cell.analysis) for cell in missing.values())
    parts = [f"{counted(len(runs), 'run')}, {jobs} at a time"]
    parts += [counted(analyses, "analysis", "analyses"), counted(measures, "measurement")]
    print(f"to do       {'; '.join(parts)}")
    print_hours(study, list(runs.values()), jobs)
    print_calls(runs.values(), _print)
