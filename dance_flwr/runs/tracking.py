"""Store a run in a tracker of experiments: while it runs, or from its folder afterwards.

Everything is read from the run's folder at the server, so that both ways store the same numbers,
and no client sends anything more. No text of a client is stored.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from time import time_ns
from typing import Any

from dance_flwr.config.paths import RESULT
from dance_flwr.config.plugins import TRACKERS
from dance_flwr.errors import UserError
from dance_flwr.runs.result import Round, validated
from dance_flwr.runs.run import Run, read_run

Log = Callable[[str], None]
Numbers = dict[str, float]


class Tracker:
    """A store that is open for one run; the base class of trackers.

    A run is stored from round 1 on, and replaces an earlier copy of itself.

    Attributes
    ----------
    package : what must be importable, "" = nothing beside this package; of the class
    rounds : number of rounds that were stored
    place : where the store is, and how to look at it
    """

    package = ""
    rounds = 0
    place = ""

    def __init__(self, run: Run) -> None:
        """Open the store for a run that has begun."""

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of one round, from 1."""
        raise NotImplementedError

    def end(self, state: str, numbers: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Store how the run ended, and close the store.

        Parameters
        ----------
        state : "finished", "failed" or "interrupted"
        numbers : of the result, empty if there is none; tags : fingerprint of the model, strategy
        """
        raise NotImplementedError


def round_numbers(row: Round) -> Numbers:
    """Return the known numbers of a round under the names of its history."""
    values: dict[str, float | None] = {
        "loss": row.loss,
        "val_accuracy": row.val_accuracy,
        "val_macro_f1": row.val_macro_f1,
        "epsilon": row.epsilon,
        "train_seconds": row.train_seconds,
        "round_seconds": row.round_seconds,
        "clients/answered": len(row.answered),
        "clients/absent": len(row.absent),
    }
    for group in ("views", "seconds", "counts"):
        values |= {f"{group}/{name}": value for name, value in getattr(row, group).items()}
    for way in ("bytes_down", "bytes_up"):
        by_client: Mapping[int, int] = getattr(row, way)
        values |= {way: sum(by_client.values())}
        values |= {f"{way}/client-{client}": count for client, count in by_client.items()}
    return {name: float(value) for name, value in values.items() if value is not None}


def final_numbers(result: Mapping[str, Any]) -> Numbers:
    """Return the measured numbers of a result, under "final/"; none before there is one.

    The best round is left out if no round was validated.
    """
    if not result:
        return {}
    measured = ("test_accuracy", "val_accuracy", "test_macro_f1", "seconds_total")
    values = {name: result[name] for name in measured}
    if validated(result):
        values["best_round"] = result["best_round"]
    by_view = result["test_accuracy_by_view"]
    values |= {f"test_accuracy/{view}": value for view, value in by_view.items()}
    for row in result["clients"]:
        values[f"test_accuracy/client-{row['client']}"] = row["test_accuracy"]
    values["epsilon"] = result["privacy"].get("epsilon")
    return {f"final/{name}": float(value) for name, value in values.items() if value is not None}


class Tracking:
    """One run and one tracker, which is opened when the run is known."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._make = TRACKERS.get(name)
        self.tracker: Tracker | None = None

    def catch_up(self, run: Run) -> None:
        """Store each round that the tracker lacks, and the end of a run that has ended."""
        if not run.status.run:  # the server gathers its clients
            return
        self.tracker = tracker = self.tracker or self._make(run)
        for row in run.rows[tracker.rounds :]:
            tracker.log(row.round, round_numbers(row))
            tracker.rounds = row.round
        if not run.runs:
            names = ("model_fingerprint", "strategy")
            tags = {name: str(run.result[name]) for name in names if name in run.result}
            tracker.end(run.status.state, final_numbers(run.result), tags)

    @property
    def place(self) -> str:
        """Where the run is stored."""
        return self.tracker.place if self.tracker else "nothing: no round has begun"


def check_trackers(names: Sequence[str]) -> None:
    """Check that each of these trackers can be used."""
    TRACKERS.check(names)
    for name in names:
        package = str(getattr(TRACKERS.get(name), "package", ""))
        if package and find_spec(package) is None:
            raise UserError(
                f"--track {name}: expected the package {package}, found none; "
                "pip install 'dance-flwr[track]'"
            )


@contextmanager
def tracked(names: Sequence[str], folder: Path, log: Log) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each round of the run in `folder`.

    A tracker that fails is left out from then on, with one warning: it never costs a run.
    """
    check_trackers(names)
    trackings = [Tracking(name) for name in names]

    def update(step: Callable[[Tracking], None]) -> None:
        for one in list(trackings):
            try:
                step(one)
            except Exception as error:
                trackings.remove(one)
                warnings.warn(
                    f"--track {one.name}: {_reason(error)}; the run goes on without, and "
                    f"`dance-flwr report {quote(str(folder))} --track {one.name}` catches up",
                    stacklevel=3,
                )

    def end(one: Tracking) -> None:
        # A run that was refused has nothing to store.
        if one.tracker is not None or (folder / RESULT).is_file():
            one.catch_up(read_run(folder))
            log(f"tracked     {one.place}")

    try:
        yield lambda: update(lambda one: one.catch_up(read_run(folder, alive=True)))
    finally:
        update(end)


def track_run(names: Sequence[str], folder: Path) -> list[str]:
    """Send the rounds so far, and the end of a run that has ended, to trackers.

    Returns
    -------
    where the run is stored, by tracker
    """
    check_trackers(names)
    trackings, run = [Tracking(name) for name in names], read_run(folder)
    for one in trackings:
        try:
            one.catch_up(run)
        except Exception as error:
            raise UserError(
                f"--track {one.name}: expected a store that can be written, found {_reason(error)}"
            ) from error
    return [one.place for one in trackings]


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _tags(run: Run) -> dict[str, str]:
    status = run.status
    return {"method": status.method, "provenance": run.provenance, "folder": status.folder}


_PROJECT = "dance-flwr"  # of all runs, in trackers that group them
_MLFLOW_STATES = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class MlflowTracker(Tracker):
    """MLflow: `./mlflow.db`, or the user's $MLFLOW_TRACKING_URI."""

    package = "mlflow"

    def __init__(self, run: Run) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.tracking import get_tracking_uri

        client = self._client = MlflowClient()
        # Names of runs repeat, and a store may hold those of many folders.
        digest = sha256(f"{run.status.run}\n{run.status.folder}".encode()).hexdigest()[:32]
        known = client.get_experiment_by_name(_PROJECT)
        experiment = known.experiment_id if known else client.create_experiment(_PROJECT)
        self.place = f"{get_tracking_uri()}, experiment {_PROJECT}; look with: mlflow ui"
        for old in client.search_runs([experiment], f"tags.dance_flwr_id = '{digest}'"):
            client.delete_run(old.info.run_id)
        tags = {"dance_flwr_id": digest, **_tags(run)}
        self._id = client.create_run(experiment, tags=tags, run_name=run.status.run).info.run_id
        params = [Param(key, str(value)) for key, value in run.config.items()]
        for first in range(0, len(params), 100):  # MLflow takes 100 at once
            client.log_batch(self._id, params=params[first : first + 100])

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of one round as metrics of this step."""
        from mlflow.entities import Metric

        now = time_ns() // 1_000_000
        metrics = [Metric(name, value, now, round_) for name, value in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def end(self, state: str, numbers: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Store the result as metrics and tags, and the state."""
        if numbers:
            self.log(self.rounds, numbers)
        for name, value in tags.items():
            self._client.set_tag(self._id, name, value)
        self._client.set_terminated(self._id, _MLFLOW_STATES[state])


class TensorboardTracker(Tracker):
    """TensorBoard: event files in the run's folder."""

    package = "tensorboard"

    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(run.status.folder) / "tensorboard"
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self.place = f"{folder}; look with: tensorboard --logdir {folder.parent.parent}"
        self._config = {
            key: value if isinstance(value, bool | int | float) else str(value)
            for key, value in run.config.items()
        }
        self._writer = SummaryWriter(str(folder))
        for name, value in {"run": run.status.run, **_tags(run)}.items():
            self._writer.add_text(name, value)

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of one round as scalars of this step."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round_)
        self._writer.flush()  # the run may be watched

    def end(self, state: str, numbers: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Store the configuration and the result as hyper-parameters, and how the run ended."""
        for name, value in {"state": state, **tags}.items():
            self._writer.add_text(name, value)
        if numbers:  # `run_name` keeps them in the folder of the run
            step, numbers = self.rounds, dict(numbers)
            self._writer.add_hparams(self._config, numbers, run_name=".", global_step=step)
        self._writer.close()
