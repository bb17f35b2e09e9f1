"""Trackio: its own folder on this machine, or the Space or server of the user's environment."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO

from dance_flwr.runs.trackers.contract import PROJECT, TrackedRun

_REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


class TrackioTracker:
    """A run of the project `dance-flwr`, which is written again from round 1."""

    package = "trackio"

    def __init__(self, run: TrackedRun) -> None:
        remote = [os.environ[name] for name in _REMOTE if os.environ.get(name)]
        name = f"{run.name}-{run.digest[:8]}"
        # Why (decision 25): it asks a hub for the name of the user when it starts, unless it is
        # offline. A Space or a server that the user named is asked.
        with redirect_stdout(StringIO()), _offline(not remote):
            import trackio

            # The run is written again from round 1, beside which an earlier copy would stand.
            if not remote:
                _forget(name)
            self._run = trackio.init(
                PROJECT,
                name,
                config={**run.config, **run.facts},
                embed=False,
                # Nothing of the machine: a tracker stores the numbers of the run.
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        self.rounds, self.ended = 0, False
        where = remote[0] if remote else str(trackio.TRACKIO_DIR)
        self.place = f"{where}, project {PROJECT}, run {name}; look with: trackio show"

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of one round at this step."""
        self._run.log(dict(numbers), step=round_)
        self.rounds = round_

    def end(self, state: str, numbers: Mapping[str, float], facts: Mapping[str, str]) -> None:
        """Store the result at the last step, and wait until all of it is stored."""
        import trackio

        if numbers:
            self._run.log({**numbers, "state": state, **facts}, step=self.rounds)
        with redirect_stdout(StringIO()):
            trackio.finish()  # and forgets the run, which would be finished again at the exit


@contextmanager
def _offline(local: bool) -> Iterator[None]:
    """Keep the library from asking a hub for the name of this machine's user."""
    before = os.environ.get("HF_HUB_OFFLINE")
    if local:
        os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        yield
    finally:
        if local and before is None:
            del os.environ["HF_HUB_OFFLINE"]
        elif local and before is not None:
            os.environ["HF_HUB_OFFLINE"] = before


def _forget(name: str) -> None:
    """Remove an earlier copy of this run from the local store."""
    import trackio

    try:
        runs = list(trackio.Api().runs(PROJECT))
    except ValueError:  # no such project yet
        return
    for old in runs:
        if old.name == name:
            old.delete()
