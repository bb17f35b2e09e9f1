"""How far a run is, read from its folder at any time: while the server writes it, after its end,
after a kill.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dance_flwr.config.paths import ERROR, HISTORY, RESULT
from dance_flwr.errors import ResumeError, UserError
from dance_flwr.runs.checkpoint import BEFORE, CHECKPOINT, Checkpoint, how_to_resume
from dance_flwr.runs.history import Round, whole_lines
from dance_flwr.runs.locks import held

RUNNING, FINISHED, FAILED, INTERRUPTED = STATES = ("running", "finished", "failed", "interrupted")
_RECENT = 5  # rounds that the remaining time is reckoned from


@dataclass(frozen=True)
class Absent:
    """A client that did not take part in the last round.

    Attributes
    ----------
    rounds : missed in a row, the last one included; seconds : that those took
    last_answered : round, None = never
    """

    client: int
    reason: str
    rounds: int
    seconds: float
    last_answered: int | None


@dataclass(frozen=True)
class Status:
    """How far a run is.

    Attributes
    ----------
    round : whole rounds so far; rounds : of the whole run, None where not yet known
    val_accuracy, val_round : of the last validation; best_accuracy, best_round : of the best
    last_seconds : of the last round; seconds_per_round : mean of the last few; seconds_left : until
        the last round
    bytes_down, bytes_up : model bytes of all rounds and clients
    answered, absent : clients in the last round; a client that was not drawn is in neither
    updated : Unix time of the last change of what this was read from
    reason : why a run failed; resume : how to go on with one that stopped, or why that cannot be
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
    last_seconds: float | None = None
    seconds_per_round: float | None = None
    seconds_left: float | None = None
    bytes_down: int = 0
    bytes_up: int = 0
    answered: list[int] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)
    updated: float | None = None
    reason: str = ""
    resume: str = ""


def read_status(folder: Path, alive: bool | None = None) -> Status:
    """Return how far the run in `folder` is; nothing is changed there.

    Parameters
    ----------
    alive : whether a server is at work; None = ask the folder's lock

    Raises
    ------
    UserError : there is no run in it, or it cannot be read
    """
    try:
        return _read(folder, alive)
    except OSError as error:
        raise UserError(
            f"{folder}: expected a folder that can be read, found: {error.strerror}"
        ) from None


def _read(folder: Path, alive: bool | None) -> Status:
    changed = _changed(folder)
    alive = held(folder) if alive is None else alive
    if not changed and not alive:
        raise UserError(
            f"{folder}: expected the folder of a run, with {HISTORY} or {ERROR} in it, found neither; give the run's "
            "`out`, or wait until it has begun"
        )
    state = _state(changed, alive)
    result = json.loads((folder / RESULT).read_text(encoding="utf-8")) if state == FINISHED else {}
    point = None if state == FINISHED else _checkpoint(folder)
    rows = _rows(folder, point, alive)
    values = (
        _facts(result, point) | _numbers(rows) | {"updated": max(changed.values(), default=None)}
    )
    if (
        state != FINISHED
        and values["rounds"] is not None
        and values["seconds_per_round"] is not None
    ):
        values["seconds_left"] = values["seconds_per_round"] * max(0, values["rounds"] - len(rows))
    if state == FAILED:
        values["reason"] = (folder / ERROR).read_text(encoding="utf-8").strip()
    if state in (FAILED, INTERRUPTED):
        values["resume"] = how_to_resume(folder)
    return Status(str(folder), state, **values)


def _changed(folder: Path) -> dict[str, float]:
    """Return when the files that tell of a run were last changed, of those that are there."""
    times: dict[str, float] = {}
    for name in (RESULT, ERROR, HISTORY, CHECKPOINT, BEFORE):
        with suppress(FileNotFoundError, NotADirectoryError):
            times[name] = (folder / name).stat().st_mtime
    return times


def _state(changed: dict[str, float], alive: bool) -> str:
    """Return the state of a run; the latest of its files has the say where an earlier attempt left
    others.
    """
    if alive:
        return RUNNING
    error = changed.get(ERROR, 0.0)
    if changed.get(RESULT, -1.0) >= error:
        return FINISHED
    if error and error >= max(changed.get(CHECKPOINT, 0.0), changed.get(BEFORE, 0.0)):
        return FAILED
    return INTERRUPTED


def _checkpoint(folder: Path) -> Checkpoint | None:
    """Return the checkpoint, None where there is none that can be read."""
    for _ in range(3):  # it changes its name while a new one takes its place
        with suppress(ResumeError):
            return Checkpoint.load(folder)
        time.sleep(0.02)
    return None


def _rows(folder: Path, point: Checkpoint | None, alive: bool) -> list[Round]:
    """Return the whole rounds of the run: of one that stopped those that are kept."""
    if alive and point is None:  # it gathers its clients; a history is that of an earlier run
        return []
    path = folder / HISTORY
    try:
        rows = [Round.read(line) for line in whole_lines(path)]
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: expected a JSON object per line, found {error}; the file was altered"
        ) from None
    return rows if alive or point is None else rows[: point.round]


def _facts(result: dict[str, Any], point: Checkpoint | None) -> dict[str, Any]:
    """Return what is the same in all rounds."""
    if point is not None:
        return {"run": point.run, "method": point.config.method, "rounds": _rounds(point)}
    facts = {key: result[key] for key in ("run", "method", "test_accuracy") if key in result}
    return facts | {"rounds": result.get("config", {}).get("rounds")}


def _rounds(point: Checkpoint) -> int:
    """Return how many rounds a run has, which a privacy budget may end early."""
    if point.config.privacy.dp == "none":
        return point.config.rounds
    from dance_flwr.privacy.dp import affordable_rounds

    with suppress(UserError):  # the accountant is not installed on this machine
        return affordable_rounds(point.config, point.repeats)
    return point.config.rounds


def _numbers(rows: Sequence[Round]) -> dict[str, Any]:
    """Return what the rows of the history say."""
    values: dict[str, Any] = {"round": len(rows), "seconds_per_round": None}
    if not rows:
        return values
    last, recent = rows[-1], rows[-_RECENT:]
    values |= {
        "last_seconds": last.round_seconds,
        "answered": last.answered,
        "absent": _absent(rows),
    }
    values["seconds_per_round"] = sum(row.round_seconds for row in recent) / len(recent)
    values |= {
        way: sum(sum(getattr(row, way).values()) for row in rows)
        for way in ("bytes_down", "bytes_up")
    }
    validated = [(row.val_accuracy, row.round) for row in rows if row.val_accuracy is not None]
    if validated:
        values["val_accuracy"], values["val_round"] = validated[-1]
        values["best_accuracy"], values["best_round"] = max(validated, key=lambda pair: pair[0])
    return values


def _absent(rows: Sequence[Round]) -> list[Absent]:
    """Return the clients that were missing in the last round, and for how long."""
    found = []
    for client, reason in sorted(rows[-1].absent.items()):
        answered = max((row.round for row in rows if client in row.answered), default=None)
        since = [row for row in rows if row.round > (answered or 0)]
        missed, seconds = (
            sum(client in row.absent for row in since),
            sum(row.round_seconds for row in since),
        )
        found.append(Absent(client, reason, missed, seconds, answered))
    return found
