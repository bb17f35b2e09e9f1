"""Read a run from its folder: while it runs, after its end, after a kill."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dance_flwr.config.paths import ERROR, HISTORY, RESULT, state_root
from dance_flwr.config.tree import flatten
from dance_flwr.disk import write_text
from dance_flwr.errors import ResumeError, UserError, reason_of
from dance_flwr.federation.client.measured import MEASURED, Measured, read_measured
from dance_flwr.runs.checkpoint import BEFORE, CHECKPOINT, Checkpoint
from dance_flwr.runs.locks import is_locked
from dance_flwr.runs.result import Round, read_history, read_result, why_not_tested
from dance_flwr.runs.resume import how_to_resume

RUNNING, FINISHED, FAILED, INTERRUPTED = ("running", "finished", "failed", "interrupted")
_RECENT = 5  # rounds whose mean estimates the remaining time
_LATEST = "latest-run"  # a file of this user, which holds the path of a run's folder


def latest_run() -> Path:
    """Return the folder of the run that this user started last.

    Raises
    ------
    UserError : there is none, or its folder is gone
    """
    file = state_root() / _LATEST
    folder = Path(file.read_text("utf-8").strip()) if file.is_file() else None
    if folder is None or not folder.is_dir():
        found = "none" if folder is None else f"that {folder} is gone"
        raise UserError(
            f"latest: expected a run of this user, found {found}; start one with `dance-flwr run`"
        )
    return folder


def set_latest_run(folder: Path) -> None:
    """Make `latest` stand for the run in this folder."""
    write_text(state_root() / _LATEST, f"{folder.resolve()}\n")


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
class PrivateStatus:
    """The progress of a run under differential privacy, whose clients count no node.

    Attributes
    ----------
    budget, epsilon : of training nodes, to spend and spent; None = no round has ended
    withheld : whether clients leave validation and test nodes out of their counts
    sites : what each site measured at the end, in `files`; empty before the end, and if the sites
        are other machines
    elsewhere : whether the run has ended and the sites are other machines
    """

    budget: float
    withheld: bool
    epsilon: float | None = None
    sites: Sequence[Measured] = ()
    files: str = ""
    elsewhere: bool = False

    def rows(self) -> list[tuple[str, str]]:
        """Return all of it as names and texts, at most 10 sites."""
        rows = []
        if self.epsilon is not None:
            spent = f"{self.epsilon:.4g} of {self.budget:g} spent, of training nodes"
            rows.append(("epsilon", spent))
        if self.sites:
            rows.append(("sites", f"each measured for itself, in no message: {self.files}"))
        elif self.elsewhere:
            rows.append(("sites", "each sees what it measured with `dance-flwr site results`"))
        rows += [(f"client {site.client}", str(site)) for site in self.sites[:10]]
        if more := self.sites[10:]:
            rows.append(("", f"and {len(more):,} more"))
        return rows


@dataclass(frozen=True)
class Status:
    """The progress of a run.

    Attributes
    ----------
    round : completed rounds; rounds : of the whole run, None if not yet known
    val_accuracy, val_round : of the last validation; best_accuracy, best_round : of the best; all
        None if no round was validated
    test_accuracy : None before the end, and if it was not measured
    not_tested : why a finished run has no test accuracy
    private : None for a run without differential privacy
    last_seconds : of the last round; seconds_total : of all; seconds_per_round : their mean;
        seconds_left : until the last round at the pace of the last few, None if no server is at
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
    private: PrivateStatus | None = None
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


@dataclass(frozen=True)
class Run:
    """A run, finished or in progress.

    Attributes
    ----------
    status : as `dance-flwr status` prints it; rows : its completed rounds
    config : flat keys; empty while the server gathers its clients
    result : content of `result.json`, empty before the end
    provenance : of the code, "" if it is not known
    """

    status: Status
    rows: Sequence[Round] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    provenance: str = ""


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, which began its first round or ended."""
    return any((folder / name).is_file() for name in (RESULT, HISTORY, ERROR))


def read_status(folder: Path) -> Status:
    """Return the progress of the run in `folder`."""
    return read_run(folder).status


def read_run(folder: Path) -> Run:
    """Return the run in `folder`; changes nothing there."""
    if (folder / "grids").is_dir():
        raise UserError(
            f"{folder}: expected the folder of a run, found that of a study; name one of the "
            f"folders in {folder / 'runs'}; a study has no tracker"
        )
    try:
        return _read(folder)
    except OSError as error:
        raise UserError(
            f"{folder}: expected a folder that can be read, found: {error.strerror}"
        ) from None


def _read(folder: Path) -> Run:
    changed: dict[str, float] = {}
    for name in (RESULT, ERROR, HISTORY, CHECKPOINT, BEFORE):
        # A file may vanish at any time while a server is at work.
        with suppress(FileNotFoundError, NotADirectoryError):
            changed[name] = (folder / name).stat().st_mtime
    # By the lock and not by time: a round may take hours, and a killed server frees its lock.
    alive = is_locked(folder)
    if not changed and not alive:
        raise UserError(
            f"{folder}: expected the folder of a run, with {HISTORY} or {ERROR} in it, found "
            "neither; name the run's `out`, or wait until it has started"
        )
    state = _state(changed, alive)
    rows: list[Round] = []
    known: dict[str, Any] = {}
    if state == FINISHED:
        # A finished run has no checkpoint: its result holds all that is known.
        result = read_result(folder)
        try:
            rows = [Round.of(row) for row in result["history"]]
            known = {
                "result": result,
                "config": result["config"],
                "provenance": str(result.get("provenance", "")),
            }
            values = {key: result[key] for key in ("run", "method", "test_accuracy")}
            values |= {"rounds": result["config"]["rounds"]}
            if result["test_accuracy"] is None:
                values["not_tested"] = why_not_tested(result)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{folder}: expected the result of a run, found {reason_of(error)}; "
                "copy the run's folder again, or run again"
            ) from None
    elif checkpoint := read_checkpoint(folder):
        config, rows = checkpoint.config, read_history(folder)
        if (last := checkpoint.waiting_row) and last.round > len(rows):
            rows.append(last)
        if not alive:
            rows = rows[: checkpoint.round]  # a resumed run repeats the later ones
        known = {"config": flatten(config), "provenance": ", ".join(checkpoint.provenance)}
        values = {"run": checkpoint.run, "method": config.method, "rounds": config.rounds}
        if config.privacy.dp != "none":
            from dance_flwr.federation.privacy.dp import affordable_rounds

            with suppress(UserError):  # of a budget below one round
                values["rounds"] = affordable_rounds(config, checkpoint.repeats)
    else:
        # Without a checkpoint, a server waits for clients, and the history is of an earlier run.
        rows, values = [] if alive else read_history(folder), {"rounds": None}
    values |= _of_rounds(rows)
    values["private"] = _private_status(known, rows)
    # Nobody knows when a stopped run goes on.
    if state == RUNNING and rows and values["rounds"] is not None:
        recent = [row.round_seconds for row in rows[-_RECENT:]]
        rest = max(0, values["rounds"] - len(rows))
        values["seconds_left"] = sum(recent) / len(recent) * rest
    if state == FAILED:
        values["reason"] = (folder / ERROR).read_text(encoding="utf-8").strip()
    if state in (FAILED, INTERRUPTED):
        values["resume"] = how_to_resume(folder)
    status = Status(str(folder), state, updated=max(changed.values(), default=None), **values)
    return Run(status, rows, **known) if known else Run(status)


def _state(changed: Mapping[str, float], alive: bool) -> str:
    """Return the state of a run; the newest file decides if an earlier attempt left others."""
    if alive:
        return RUNNING
    error = changed.get(ERROR, 0.0)
    if changed.get(RESULT, -1.0) >= error:
        return FINISHED
    if error and error >= max(changed.get(CHECKPOINT, 0.0), changed.get(BEFORE, 0.0)):
        return FAILED
    return INTERRUPTED


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the checkpoint, to show it and not to resume it; None if missing or unreadable."""
    # It is renamed while a new one takes its place, which takes less than three attempts.
    for _ in range(3):
        with suppress(ResumeError):
            return Checkpoint.load(folder, own=False)
        time.sleep(0.02)
    return None


def _of_rounds(rows: Sequence[Round]) -> dict[str, Any]:
    if not rows:
        return {}
    total = sum(row.round_seconds for row in rows)
    values: dict[str, Any] = {
        "round": len(rows),
        "last_seconds": rows[-1].round_seconds,
        "seconds_total": total,
        "seconds_per_round": total / len(rows),
        "bytes_down": sum(sum(row.bytes_down.values()) for row in rows),
        "bytes_up": sum(sum(row.bytes_up.values()) for row in rows),
        "answered": rows[-1].answered,
        "absent": [_absent(rows, *item) for item in sorted(rows[-1].absent.items())],
        "skipped": [row.round for row in rows if row.skipped],
    }
    validated = [(row.val_accuracy, row.round) for row in rows if row.val_accuracy is not None]
    if validated:
        values["val_accuracy"], values["val_round"] = validated[-1]
        # `max` returns the first of equal rounds, as the recorder keeps it.
        values["best_accuracy"], values["best_round"] = max(validated, key=lambda pair: pair[0])
    return values


def _absent(rows: Sequence[Round], client: int, reason: str) -> Absent:
    answered = max((row.round for row in rows if client in row.answered), default=None)
    # Rounds in between that did not draw the client are no absence.
    since = [row for row in rows if row.round > (answered or 0)]
    missed = sum(client in row.absent for row in since)
    return Absent(client, reason, missed, sum(row.round_seconds for row in since), answered)


def _private_status(known: Mapping[str, Any], rows: Sequence[Round]) -> PrivateStatus | None:
    config, result = known.get("config", {}), known.get("result", {})
    if config.get("privacy.dp", "none") == "none":
        return None
    partition, run = result.get("partition_dir"), str(result.get("run", ""))
    folders = Path(partition).glob("client-*") if partition else ()
    sites = [site for folder in folders if (site := read_measured(folder, run))]
    return PrivateStatus(
        float(config["privacy.epsilon"]),
        not config["privacy.seeded"],
        next((row.epsilon for row in reversed(rows) if row.epsilon is not None), None),
        sorted(sites, key=lambda site: site.client),
        f"{partition}/client-*/runs/{run}/{MEASURED}" if partition else "",
        bool(result) and not partition,
    )
