"""Hand a run's rounds to a tracker: while it runs, or from its folder after the fact.

Everything is read from the run's folder on the server's side, so that both ways store the same
numbers, and no client sends anything more. No text of a client is in them.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from dance_flwr.config.paths import RESULT
from dance_flwr.config.plugins import TRACKERS
from dance_flwr.errors import UserError
from dance_flwr.runs.facts import RunFacts, read_facts
from dance_flwr.runs.trackers.contract import TrackedRun, Tracker, final_numbers, round_numbers

Log = Callable[[str], None]


class Tracking:
    """One run and one tracker, which is opened when the run is known."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._make = TRACKERS.get(name)
        self.tracker: Tracker | None = None

    def catch_up(self, facts: RunFacts) -> None:
        """Hand over each round that the tracker lacks."""
        if not facts.status.run:  # the server gathers its clients
            return
        if self.tracker is None:
            self.tracker = self._make(TrackedRun.of(facts))
        # The store says how far it is, so that nothing is stored twice and nothing is lost.
        for row in facts.rows[self.tracker.rounds :]:
            self.tracker.log(row.round, round_numbers(row))
            self.tracker.rounds = row.round

    def end(self, facts: RunFacts) -> None:
        """Hand over what is left and how the run ended, and close the store."""
        self.catch_up(facts)
        if self.tracker is None or self.tracker.ended:
            return
        result = facts.result
        known = ("model_fingerprint", "strategy")
        names = {name: str(result[name]) for name in known if name in result}
        self.tracker.end(facts.status.state, final_numbers(result), names)
        self.tracker.ended = True

    def report(self, log: Log) -> None:
        """Log where the run is stored."""
        place = self.tracker.place if self.tracker is not None else "nothing: no round has begun"
        log(f"tracked     {place}")


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
    """Yield a function that is called after each round of the run in `folder`.

    A tracker that fails is left out from then on, with one warning: it never costs a run.
    """
    # Before anything runs: a package that is missing must not end a day of rounds.
    check_trackers(names)
    every = [Tracking(name, folder) for name in names]

    def after_round() -> None:
        # Over a copy, as a tracker that fails is removed.
        for one in list(every):
            with _without_harm(one, every):
                one.catch_up(read_facts(folder, alive=True))

    try:
        yield after_round
    finally:
        for one in list(every):
            # A run that was refused has nothing to store.
            if one.tracker is not None or (folder / RESULT).is_file():
                with _without_harm(one, every):
                    one.end(read_facts(folder))
                    one.report(log)


@contextmanager
def _without_harm(one: Tracking, every: list[Tracking]) -> Iterator[None]:
    """Turn any error of a tracker into one warning, and leave the tracker out from then on."""
    try:
        yield
    except Exception as error:
        # One warning and no more of it: the run goes on, and its folder can be read later.
        every.remove(one)
        warnings.warn(
            f"--track {one.name}: {_reason(error)}; the run goes on without, and "
            f"`dance-flwr report {quote(str(one.folder))} --track {one.name}` catches up",
            stacklevel=3,
        )


def track(trackings: Sequence[Tracking], facts: RunFacts) -> None:
    """Store a run, as far as it went, in each of these trackers."""
    for one in trackings:
        try:
            one.catch_up(facts) if facts.runs else one.end(facts)
        except Exception as error:
            # After the fact no run can be lost, so the command fails and says why.
            raise UserError(
                f"--track {one.name}: expected a store that can be written, found {_reason(error)}"
            ) from error


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
