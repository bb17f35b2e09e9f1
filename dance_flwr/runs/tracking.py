"""Store a run in a tracker of experiments, from its folder.

A tracker is a function that takes a `Run`, stores it in place of an earlier copy, and returns where
the store is and how to look at it. Nothing more leaves a client, and no text of one is stored.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any

from dance_flwr.config.plugins import TRACKERS
from dance_flwr.errors import UserError
from dance_flwr.runs.result import Round, validated
from dance_flwr.runs.run import Run, is_run, read_run

Log = Callable[[str], None]
Numbers = dict[str, float]


def round_numbers(row: Round) -> Numbers:
    """Return the known numbers of a round under the names of its history."""
    values = asdict(row)
    del values["round"]
    for way in ("bytes_down", "bytes_up"):
        by_client = values.pop(way)
        values |= {way: sum(by_client.values())}
        values |= {f"{way}/client-{client}": count for client, count in by_client.items()}
    values["clients"] = {"answered": len(row.answered), "absent": len(row.absent)}
    return _flat(values)


def final_numbers(result: Mapping[str, Any]) -> Numbers:
    """Return the measured numbers of a result, under "final/"; none before there is one.

    The best round is left out if no round was validated.
    """
    if not result:
        return {}
    names = ["test_accuracy", "val_accuracy", "test_macro_f1", "seconds_total"]
    values = {name: result[name] for name in [*names, *["best_round"] * validated(result)]}
    views = {f"test_accuracy/{view}": n for view, n in result["test_accuracy_by_view"].items()}
    clients = {f"test_accuracy/client-{r['client']}": r["test_accuracy"] for r in result["clients"]}
    epsilon = {"epsilon": result["privacy"].get("epsilon")}
    return _flat({"final": values | views | clients | epsilon})


def _flat(values: Mapping[str, Any], prefix: str = "") -> Numbers:
    """Return the numbers of nested dictionaries, under names joined by slashes."""
    numbers: Numbers = {}
    for name, value in values.items():
        if isinstance(value, dict):
            numbers |= _flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            numbers[f"{prefix}{name}"] = float(value)
    return numbers


def check_trackers(names: Sequence[str]) -> None:
    """Check that each of these trackers can be used."""
    TRACKERS.check(names)
    for name in names:
        # Those of this package are called like the packages that they need.
        if name in TRACKERS.builtin and find_spec(name) is None:
            raise UserError(
                f"--track {name}: expected the package {name}, found none; "
                "pip install 'dance-flwr[track]'"
            )


@contextmanager
def tracked(names: Sequence[str], folder: Path, log: Log) -> Iterator[None]:
    """Store the run in `folder` when the block ends, however it ends.

    A tracker that fails costs no run: it gives a warning.
    """
    check_trackers(names)
    try:
        yield
    finally:
        for name in names if is_run(folder) else ():
            try:
                log(f"tracked     {track_run([name], folder)[0]}")
            except UserError as error:
                warnings.warn(
                    f"{error}; `dance-flwr report {quote(str(folder))} --track {name}` tries again",
                    stacklevel=2,
                )


def track_run(names: Sequence[str], folder: Path) -> list[str]:
    """Store the run in a folder, finished or not, in each tracker; return where each store is."""
    check_trackers(names)
    places, run = [], read_run(folder)
    for name in names:
        try:
            places.append(TRACKERS.get(name)(run))
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(
                f"--track {name}: expected a store that can be written, found {reason}"
            ) from error
    return places


def _tags(run: Run) -> dict[str, str]:
    status = run.status
    facts = {"method": status.method, "provenance": run.provenance, "folder": status.folder}
    names = ("model_fingerprint", "strategy")
    return facts | {name: str(run.result[name]) for name in names if name in run.result}


_PROJECT = "dance-flwr"  # of all runs, in trackers that group them
_MLFLOW_STATES = {
    **{"finished": "FINISHED", "failed": "FAILED"},
    **{"interrupted": "KILLED", "running": "RUNNING"},
}


def mlflow(run: Run) -> str:
    """Store a run in MLflow: `./mlflow.db`, or the user's $MLFLOW_TRACKING_URI."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient, log_metrics
    from mlflow.entities import Param
    from mlflow.tracking import get_tracking_uri

    client = MlflowClient()
    # Names of runs repeat, and a store may hold those of many folders.
    digest = sha256(f"{run.status.run}\n{run.status.folder}".encode()).hexdigest()[:32]
    known = client.get_experiment_by_name(_PROJECT)
    experiment = known.experiment_id if known else client.create_experiment(_PROJECT)
    for old in client.search_runs([experiment], f"tags.dance_flwr_id = '{digest}'"):
        client.delete_run(old.info.run_id)
    tags = {"dance_flwr_id": digest, **_tags(run)}
    own = client.create_run(experiment, tags=tags, run_name=run.status.run).info.run_id
    params = [Param(key, str(value)) for key, value in run.config.items()]
    for first in range(0, len(params), 100):  # MLflow takes 100 at once
        client.log_batch(own, params=params[first : first + 100])
    for row in run.rows:
        log_metrics(round_numbers(row), step=row.round, run_id=own)
    if run.result:
        log_metrics(final_numbers(run.result), step=len(run.rows), run_id=own)
    client.update_run(own, _MLFLOW_STATES[run.status.state])
    return f"{get_tracking_uri()}, experiment {_PROJECT}; look with: mlflow ui"


def tensorboard(run: Run) -> str:
    """Store a run for TensorBoard: event files in the run's folder."""
    from torch.utils.tensorboard import SummaryWriter

    folder = Path(run.status.folder) / "tensorboard"
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    with SummaryWriter(str(folder)) as writer:
        for row in run.rows:
            for name, value in round_numbers(row).items():
                writer.add_scalar(name, value, row.round)
        for name, text in {"run": run.status.run, "state": run.status.state, **_tags(run)}.items():
            writer.add_text(name, text)
        if run.result:  # `run_name` keeps them in the folder of the run
            config = {k: v if isinstance(v, int | float) else str(v) for k, v in run.config.items()}
            numbers, step = final_numbers(run.result), len(run.rows)
            writer.add_hparams(config, numbers, run_name=".", global_step=step)
    return f"{folder}; look with: tensorboard --logdir {folder.parent.parent}"
