"""Weights & Biases: files in `./wandb`, or its service if the user's $WANDB_MODE is online."""

import os
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree

from dance_flwr.runs.trackers.contract import PROJECT, TrackedRun

# Why (decision 25): nothing of the machine or its programs; a tracker stores the numbers of a run.
_TRUE = (
    *("silent", "disable_git", "disable_code"),
    *("x_disable_meta", "x_disable_stats", "x_disable_machine_info"),
)


class WandbTracker:
    """A run of the project `dance-flwr`, which is written again from round 1."""

    package = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        # Why (decision 25): it sends to a service and reports to its makers unless it is told.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        mode = os.environ.get("WANDB_MODE", "offline")
        import wandb

        settings = wandb.Settings(
            mode=mode,
            root_dir=os.environ.get("WANDB_DIR") or str(Path.cwd()),
            console="off",
            x_save_requirements=False,
            **dict.fromkeys(_TRUE, True),
        )
        # Files of it cannot be amended; at its service a run of the same id is replaced.
        for old in Path(settings.wandb_dir).glob(f"offline-run-*-{run.digest}"):
            rmtree(old)
        self._run = wandb.init(
            project=PROJECT,
            name=run.name,
            id=run.digest,
            config={**run.config, **run.facts},
            # Beside a run of the user's own in this process, if there is one.
            reinit="create_new",
            settings=settings,
        )
        self.rounds, self.ended = 0, False
        folder = self._run.settings.sync_dir
        local = f"{folder}; send it with: wandb sync {folder}"
        self.place = local if mode == "offline" else f"{self._run.url}"

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of one round at this step."""
        self._run.log(dict(numbers), step=round_)
        self.rounds = round_

    def end(self, state: str, numbers: Mapping[str, float], facts: Mapping[str, str]) -> None:
        """Store the result in the summary of the run, all of it when this process ends."""
        self._run.summary.update({**numbers, "state": state, **facts})
        self._run.finish(exit_code=int(state == "failed"))
