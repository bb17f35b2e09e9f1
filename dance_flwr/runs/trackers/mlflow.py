"""MLflow: `./mlflow.db` of the current folder, or what the user's $MLFLOW_TRACKING_URI names."""

import os
from collections.abc import Mapping
from time import time_ns

from dance_flwr.runs.trackers.contract import PROJECT, TrackedRun

_ID = "dance_flwr_id"
_MAX_BATCH = 100  # parameters or tags that MLflow takes at once
_STATES = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class MlflowTracker:
    """A run of the experiment `dance-flwr`; one that is there already goes on."""

    package = "mlflow"

    def __init__(self, run: TrackedRun) -> None:
        # Why (decision 25): it reports to its makers otherwise; a value of the user stays.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # Imported when used, as it is part of an extra (decision 25).
        from mlflow import MlflowClient
        from mlflow.tracking import get_tracking_uri

        self._client = MlflowClient()
        known = self._client.get_experiment_by_name(PROJECT)
        experiment = known.experiment_id if known else self._client.create_experiment(PROJECT)
        runs = self._client.search_runs([experiment], f"tags.{_ID} = '{run.digest}'")
        self.rounds, self.ended = 0, False
        if runs:
            self._id, status = runs[0].info.run_id, runs[0].info.status
            # Every round has this metric, so that its last step is the last round that is stored.
            steps = self._client.get_metric_history(self._id, "round_seconds")
            self.rounds = max((metric.step for metric in steps), default=0)
            # One that was stopped may have gone on since: it is opened again.
            self.ended = status == _STATES["finished"]
            if not self.ended:
                self._client.update_run(self._id, "RUNNING")
        else:
            tags = {_ID: run.digest, **run.facts}
            made = self._client.create_run(experiment, tags=tags, run_name=run.name)
            self._id = made.info.run_id
            self._parameters(run.config)
        self.place = f"{get_tracking_uri()}, experiment {PROJECT}; look with: mlflow ui"

    def _parameters(self, config: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        params = [Param(key, str(value)) for key, value in config.items()]
        for first in range(0, len(params), _MAX_BATCH):
            self._client.log_batch(self._id, params=params[first : first + _MAX_BATCH])

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of one round as metrics of this step."""
        from mlflow.entities import Metric

        now = time_ns() // 1_000_000
        metrics = [Metric(name, value, now, round_) for name, value in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)
        self.rounds = round_

    def end(self, state: str, numbers: Mapping[str, float], facts: Mapping[str, str]) -> None:
        """Store the result as metrics and tags, and the state."""
        if numbers:
            self.log(self.rounds, numbers)
        for name, value in facts.items():
            self._client.set_tag(self._id, name, value)
        # A run at work is not terminated where only this process stops following it.
        if state in _STATES:
            self._client.set_terminated(self._id, _STATES[state])
