"""TensorBoard: event files in `tensorboard/` of the run's folder."""

from collections.abc import Mapping

from dance_flwr.runs.trackers.contract import TrackedRun

_FOLDER, _FILES = "tensorboard", "events.out.tfevents.*"


class TensorboardTracker:
    """Event files of one run, which are written again from round 1."""

    package = "tensorboard"

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / _FOLDER
        # Why (decision 25): event files cannot be amended, so they are written again from round 1.
        for old in folder.glob(_FILES):
            old.unlink()
        self.rounds, self.ended = 0, False
        self.place = f"{folder}; look with: tensorboard --logdir {run.folder.parent}"
        self._config = {
            key: value if isinstance(value, bool | int | float) else str(value)
            for key, value in run.config.items()
        }
        self._writer = SummaryWriter(str(folder))
        for name, value in {"run": run.name, **run.facts}.items():
            self._writer.add_text(name, value)

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of one round as scalars of this step."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round_)
        # After each round, as the run may be watched.
        self._writer.flush()
        self.rounds = round_

    def end(self, state: str, numbers: Mapping[str, float], facts: Mapping[str, str]) -> None:
        """Store the configuration and the result as hyper-parameters, and how the run ended."""
        for name, value in {"state": state, **facts}.items():
            self._writer.add_text(name, value)
        if numbers:
            step = self.rounds
            # `run_name` keeps these in the folder of the run; by default they become a run of their
            # own.
            self._writer.add_hparams(self._config, dict(numbers), run_name=".", global_step=step)
        self._writer.close()
