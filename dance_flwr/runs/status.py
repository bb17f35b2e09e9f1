"""Read the progress of a run from its folder: during the run, after its end, after a kill."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dance_flwr.config.paths import ERROR, HISTORY, RESULT
from dance_flwr.config.tree import flatten
from dance_flwr.errors import ResumeError, UserError
from dance_flwr.federation.client.measured import NAME as MEASURED
from dance_flwr.federation.client.measured import read_measured
from dance_flwr.runs.checkpoint import BEFORE, CHECKPOINT, Checkpoint
from dance_flwr.runs.history import Round, whole_lines
from dance_flwr.runs.locks import is_locked
from dance_flwr.runs.private import Private
from dance_flwr.runs.reader import read_result, why_not_tested
from dance_flwr.runs.resume import how_to_resume

RUNNING, FINISHED, FAILED, INTERRUPTED = STATES = ("running", "finished", "failed", "interrupted")
_RECENT = 5  # rounds from which the remaining time is estimated


@dataclass(frozen=True)
class Absent:
    """A client that did not take part in the last round.

    Attributes
    ----------
    rounds : missed in a row up to the last one; seconds : duration of those
    last_answered : round, None = never
    """

    client: int
    reason: str
    rounds: int
    seconds: float
    last_answered: int | None


@dataclass(frozen=True)
class Status:
    """The progress of a run.

    Attributes
    ----------
    round : completed rounds; rounds : of the whole run, None if not yet known
    val_accuracy, val_round : of the last validation; best_accuracy, best_round : of the best; all
        None where no round was validated
    test_accuracy : None before the end, and where it was not measured
    not_tested : why a finished run has none
    private : what is known of a run under differential privacy; None = it is not under it
    last_seconds : of the last round; seconds_total : of all; seconds_per_round : their mean;
        seconds_left : until the last round at the pace of the last few, None where no server is at
        work
    bytes_down, bytes_up : model bytes of all rounds and clients
    answered, absent : clients in the last round; a client that was not sampled is in neither
    skipped : numbers of the rounds that left the model as it was
    updated : Unix time of the last change of the files
    reason : why a run failed; resume : how to resume one that stopped, empty if it cannot
    """

    folder: str
    state: str
    run: str = ""
    method: str = ""
    round: int = 0
    rounds: int | None = None
    val_accuracy: float | None = None
    val_round: int | None = None
    best_accuracy: float | None = None
    best_round: int | None = None
    test_accuracy: float | None = None
    not_tested: str = ""
    private: Private | None = None
    last_seconds: float | None = None
    seconds_total: float | None = None
    seconds_per_round: float | None = None
    seconds_left: float | None = None
    bytes_down: int = 0
    bytes_up: int = 0
    answered: list[int] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    updated: float | None = None
    reason: str = ""
    resume: str = ""


def read_status(folder: Path, alive: bool | None = None) -> Status:
    """Return the progress of the run in `folder`; changes nothing there.

    Parameters
    ----------
    alive : whether a server is running; None = look at the folder's lock
    """
    try:
        return _read(folder, alive)
    except OSError as error:
        raise UserError(
            f"{folder}: expected a folder that can be read, found: {error.strerror}"
        ) from None


def _read(folder: Path, alive: bool | None) -> Status:
    changed = _changed(folder)
    # By the lock and not by time: a round may take hours, and a killed server frees its lock.
    alive = is_locked(folder) if alive is None else alive
    if not changed and not alive:
        raise UserError(
            f"{folder}: expected the folder of a run, with {HISTORY} or {ERROR} in it, found "
            "neither; name the run's `out`, or wait until it has started"
        )
    state = _state(changed, alive)
    result = read_result(folder) if state == FINISHED else {}
    checkpoint = None if state == FINISHED else checkpoint_of(folder)
    rows = _rows(folder, checkpoint, alive)
    values = (
        _facts(result, checkpoint)
        | _numbers(rows)
        | {"private": _private(result, checkpoint, rows)}
        | {"updated": max(changed.values(), default=None)}
    )
    # Of a run that stopped, nobody knows when it goes on.
    if state == RUNNING and rows and values["rounds"] is not None:
        recent = [row.round_seconds for row in rows[-_RECENT:]]
        rest = max(0, values["rounds"] - len(rows))
        values["seconds_left"] = sum(recent) / len(recent) * rest
    if state == FAILED:
        values["reason"] = (folder / ERROR).read_text(encoding="utf-8").strip()
    if state in (FAILED, INTERRUPTED):
        values["resume"] = how_to_resume(folder)
    return Status(str(folder), state, **values)


def _changed(folder: Path) -> dict[str, float]:
    """Return the modification times of the existing files of a run."""
    times: dict[str, float] = {}
    for name in (RESULT, ERROR, HISTORY, CHECKPOINT, BEFORE):
        # A file may vanish between two looks while a server is at work.
        with suppress(FileNotFoundError, NotADirectoryError):
            times[name] = (folder / name).stat().st_mtime
    return times


def _state(changed: dict[str, float], alive: bool) -> str:
    """Return the state of a run, by the latest of its files if an earlier attempt left others."""
    # The lock decides first: files of an earlier attempt may lie beside those of a run at work.
    if alive:
        return RUNNING
    error = changed.get(ERROR, 0.0)
    if changed.get(RESULT, -1.0) >= error:
        return FINISHED
    if error and error >= max(changed.get(CHECKPOINT, 0.0), changed.get(BEFORE, 0.0)):
        return FAILED
    return INTERRUPTED


def checkpoint_of(folder: Path) -> Checkpoint | None:
    """Return the checkpoint, None if it is missing or unreadable."""
    # It is renamed while a new one takes its place, which takes less than three looks.
    for _ in range(3):
        with suppress(ResumeError):
            return Checkpoint.load(folder, own=False)  # to show it is not to resume it
        time.sleep(0.02)
    return None


def _rows(folder: Path, checkpoint: Checkpoint | None, alive: bool) -> list[Round]:
    """Return the completed rounds; of a stopped run, those of the checkpoint."""
    if alive and checkpoint is None:  # waiting for clients; the history is of an earlier run
        return []
    path = folder / HISTORY
    try:
        rows = [Round.read(line) for line in whole_lines(path)]
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: expected a JSON object per line, found {error}; the file was altered"
        ) from None
    # Rows after the checkpoint are of a round that resuming repeats.
    return rows if alive or checkpoint is None else rows[: checkpoint.round]


def _facts(result: dict[str, Any], checkpoint: Checkpoint | None) -> dict[str, Any]:
    """Return the facts that are the same in all rounds."""
    if checkpoint is not None:
        return {
            "run": checkpoint.run,
            "method": checkpoint.config.method,
            "rounds": _rounds(checkpoint),
        }
    facts: dict[str, Any] = {key: result[key] for key in ("run", "method") if key in result}
    if "test_accuracy" in result:
        facts["test_accuracy"] = result["test_accuracy"]
        if result["test_accuracy"] is None:
            facts["not_tested"] = why_not_tested(result)
    return facts | {"rounds": result.get("config", {}).get("rounds")}


def _private(
    result: Mapping[str, Any], checkpoint: Checkpoint | None, rows: Sequence[Round]
) -> Private | None:
    config = flatten(checkpoint.config) if checkpoint else result.get("config", {})
    if config.get("privacy.dp", "none") == "none":
        return None
    partition, run = result.get("partition_dir"), str(result.get("run", ""))
    folders = Path(partition).glob("client-*") if partition else ()
    sites = [site for folder in folders if (site := read_measured(folder, run))]
    return Private(
        withheld=not config["privacy.seeded"],
        losses=[(row.round, row.loss) for row in rows if row.loss is not None],
        epsilon=next((row.epsilon for row in reversed(rows) if row.epsilon is not None), None),
        budget=float(config["privacy.epsilon"]),
        sites=sorted(sites, key=lambda site: site.client),
        files=f"{partition}/client-*/runs/{run}/{MEASURED}" if partition else "",
        elsewhere=bool(result) and not partition,
    )


def _rounds(checkpoint: Checkpoint) -> int:
    """Return the number of rounds, which a privacy budget may reduce."""
    if checkpoint.config.privacy.dp == "none":
        return checkpoint.config.rounds
    from dance_flwr.federation.privacy.dp import affordable_rounds

    with suppress(UserError):  # the accountant is not installed on this machine
        return affordable_rounds(checkpoint.config, checkpoint.repeats)
    return checkpoint.config.rounds


def _numbers(rows: Sequence[Round]) -> dict[str, Any]:
    values: dict[str, Any] = {"round": len(rows), "seconds_per_round": None}
    if not rows:
        return values
    last = rows[-1]
    values |= {
        "last_seconds": last.round_seconds,
        "answered": last.answered,
        "absent": _absent(rows),
        "skipped": [row.round for row in rows if row.skipped],
    }
    values["seconds_total"] = sum(row.round_seconds for row in rows)
    values["seconds_per_round"] = values["seconds_total"] / len(rows)
    values |= {
        way: sum(sum(getattr(row, way).values()) for row in rows)
        for way in ("bytes_down", "bytes_up")
    }
    validated = [(row.val_accuracy, row.round) for row in rows if row.val_accuracy is not None]
    if validated:
        values["val_accuracy"], values["val_round"] = validated[-1]
        # `max` returns the first of equal rounds, as the recorder keeps it.
        values["best_accuracy"], values["best_round"] = max(validated, key=lambda pair: pair[0])
    return values


def _absent(rows: Sequence[Round]) -> list[Absent]:
    """Return the clients that missed the last round, and for how long."""
    absences = []
    for client, reason in sorted(rows[-1].absent.items()):
        answered = max((row.round for row in rows if client in row.answered), default=None)
        # Rounds in which the client was not drawn lie between and are no absence.
        since = [row for row in rows if row.round > (answered or 0)]
        missed, seconds = (
            sum(client in row.absent for row in since),
            sum(row.round_seconds for row in since),
        )
        absences.append(Absent(client, reason, missed, seconds, answered))
    return absences
