"""The interface of trackers: the configuration of a run once, its numbers by round, its result."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from dance_flwr.runs.facts import RunFacts
from dance_flwr.runs.history import Round
from dance_flwr.runs.reader import validated

PROJECT = "dance-flwr"  # of all runs, where a tracker groups them
Numbers = dict[str, float]


@dataclass(frozen=True)
class TrackedRun:
    """The description of a run with which a tracker opens its store.

    Attributes
    ----------
    name : of the run; folder : its own, where everything else is
    config : flat keys; facts : method, code and other short names of it
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    facts: Mapping[str, str]

    @classmethod
    def of(cls, facts: RunFacts) -> "TrackedRun":
        """Return the description of a run that a tracker receives when it first sees it."""
        status, folder = facts.status, Path(facts.status.folder)
        known = {"method": status.method, "provenance": facts.provenance, "folder": str(folder)}
        return cls(status.run, folder, facts.config, known)

    @property
    def digest(self) -> str:
        """Hash of name and folder, which identifies the run in a store."""
        # By name and folder: names of runs repeat, and a store may hold those of many folders.
        return sha256(f"{self.name}\n{self.folder}".encode()).hexdigest()[:32]


class Tracker(Protocol):
    """A store that is open for one run; made with a `TrackedRun`.

    A tracker that already holds the run goes on with it, or writes it again from round 1.

    Attributes
    ----------
    package : what must be importable, "" = nothing beside this package; of the class
    rounds : that the store already holds, from round 1 on; ended : whether it holds the result, too
    place : where the store is, and how it is looked at
    """

    package: str
    rounds: int
    ended: bool
    place: str

    def __init__(self, run: TrackedRun) -> None:
        """Open the store."""
        ...

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of one round, from 1."""
        ...

    def end(self, state: str, numbers: Mapping[str, float], facts: Mapping[str, str]) -> None:
        """Store how the run ended, and close the store.

        Parameters
        ----------
        state : of `dance_flwr.runs.status`; "running" = only this process stops following
        """
        ...


def round_numbers(row: Round) -> Numbers:
    """Return the numbers of a round under the names of its history, without those not known."""
    values: dict[str, float | None] = {
        "loss": row.loss,
        "val_accuracy": row.val_accuracy,
        "val_macro_f1": row.val_macro_f1,
        "epsilon": row.epsilon,
        "train_seconds": row.train_seconds,
        "round_seconds": row.round_seconds,
        # Numbers of the run's history alone: no client sends anything for a tracker (decision 25).
        "clients/answered": len(row.answered),
        "clients/absent": len(row.absent),
    }
    for group in ("views", "seconds", "counts"):
        values |= {f"{group}/{name}": value for name, value in getattr(row, group).items()}
    for way in ("bytes_down", "bytes_up"):
        by_client: Mapping[int, int] = getattr(row, way)
        values |= {way: sum(by_client.values())}
        values |= {f"{way}/client-{client}": count for client, count in by_client.items()}
    # A store of numbers has no null: what is not known is left out.
    return {name: float(value) for name, value in values.items() if value is not None}


def final_numbers(result: Mapping[str, Any]) -> Numbers:
    """Return the numbers of a result, under "final/"; none before there is one.

    Without what was not measured, and without a best round where none was validated.
    """
    # A run that failed or was stopped has rounds, and no result.
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
