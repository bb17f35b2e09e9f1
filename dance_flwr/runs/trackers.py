"""MLflow, TensorBoard and Weights & Biases: each stores a run by its own library.

The libraries are an extra, and imported when used (decision 25). They send nothing to their makers
or to a service unless the user's environment says so.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from time import time_ns

from dance_flwr.runs.tracking import TrackedRun, Tracker

_PROJECT = "dance-flwr"  # of all runs, in trackers that group them
_MLFLOW_STATES = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class MlflowTracker(Tracker):
    """MLflow: `./mlflow.db`, or the user's $MLFLOW_TRACKING_URI."""

    package = "mlflow"

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.tracking import get_tracking_uri

        client = self._client = MlflowClient()
        known = client.get_experiment_by_name(_PROJECT)
        experiment = known.experiment_id if known else client.create_experiment(_PROJECT)
        self.place = f"{get_tracking_uri()}, experiment {_PROJECT}; look with: mlflow ui"
        for old in client.search_runs([experiment], f"tags.dance_flwr_id = '{run.digest}'"):
            client.delete_run(old.info.run_id)
        tags = {"dance_flwr_id": run.digest, **run.tags}
        self._id = client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
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
        if state in _MLFLOW_STATES:
            self._client.set_terminated(self._id, _MLFLOW_STATES[state])


class TensorboardTracker(Tracker):
    """TensorBoard: event files in the run's folder."""

    package = "tensorboard"

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self.place = f"{folder}; look with: tensorboard --logdir {run.folder.parent}"
        self._config = {
            key: value if isinstance(value, bool | int | float) else str(value)
            for key, value in run.config.items()
        }
        self._writer = SummaryWriter(str(folder))
        for name, value in {"run": run.name, **run.tags}.items():
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


class WandbTracker(Tracker):
    """Weights & Biases: `./wandb`, or its service if $WANDB_MODE is online."""

    package = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        mode = os.environ.get("WANDB_MODE", "offline")
        # Why (decision 25): nothing of the machine or its programs is stored.
        settings = wandb.Settings(
            mode=mode,
            root_dir=os.environ.get("WANDB_DIR") or str(Path.cwd()),
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            x_save_requirements=False,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
        )
        # At the service a run of the same id is replaced.
        for old in Path(settings.wandb_dir).glob(f"offline-run-*-{run.digest}"):
            rmtree(old)
        self._run = wandb.init(
            project=_PROJECT,
            name=run.name,
            id=run.digest,
            config={**run.config, **run.tags},
            reinit="create_new",  # the user may have a run in this process
            settings=settings,
        )
        folder = self._run.settings.sync_dir
        local = f"{folder}; send it with: wandb sync {folder}"
        self.place = local if mode == "offline" else f"{self._run.url}"

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of one round at this step."""
        self._run.log(dict(numbers), step=round_)

    def end(self, state: str, numbers: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Store the result in the summary of the run, all of it when this process ends."""
        self._run.summary.update({**numbers, "state": state, **tags})
        self._run.finish(exit_code=int(state == "failed"))
