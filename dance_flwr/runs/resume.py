"""Start and resume runs: from a new checkpoint, or from the one of an interrupted run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote

from dance_flwr.config.paths import ERROR, HISTORY, MODEL, RESULT, SETTINGS
from dance_flwr.config.text import to_toml
from dance_flwr.config.tree import FREE, RunConfig, flatten
from dance_flwr.disk import write_text
from dance_flwr.errors import ResumeError, UserError, counted
from dance_flwr.fingerprint import PROTOCOL
from dance_flwr.runs.checkpoint import BEFORE, CHECKPOINT, Checkpoint, other_protocol
from dance_flwr.runs.history import whole_lines

_OVERWRITE = "--overwrite (overwrite=true for `flwr run`)"


def load_resumable(folder: Path) -> Checkpoint:
    """Return the checkpoint of an interrupted run."""
    # First of all: a finished run has no checkpoint either, and the error would hide why.
    if (folder / RESULT).is_file():
        raise ResumeError(
            f"{folder}: expected an interrupted run, found {RESULT} of a finished one; read that"
        )
    checkpoint = Checkpoint.load(folder)
    if checkpoint.protocol != PROTOCOL:
        raise other_protocol(folder, checkpoint.protocol)
    return checkpoint


def begin(name: str, config: RunConfig, folder: Path) -> Checkpoint:
    """Return where a run starts: a new checkpoint of round 0, or the one in `folder` on `resume`.

    A new run deletes the checkpoint of an earlier one in the same folder; a refused one changes
    nothing there. The configuration of the result is that of the run with the paths of this
    machine, without `resume` and `overwrite`.

    Raises
    ------
    UserError : the folder holds a finished run
    ResumeError : the folder holds an interrupted run that is not to be resumed; or it cannot be
        resumed, or the configuration has changed
    """
    refuse_earlier(config, folder)
    # Neither is part of a run: with them, a resumed result would differ from an uninterrupted one.
    settings = replace(config, resume=False, overwrite=False)
    if not config.resume:
        (folder / ERROR).unlink(missing_ok=True)
        forget(folder)
        return Checkpoint(name, settings)
    checkpoint = load_resumable(folder)
    before, now = flatten(checkpoint.config), flatten(settings)
    # Places, timeouts and the device may change; what is computed may not.
    changed = [key for key in before if key not in FREE and before[key] != now[key]]
    if changed:
        other = [f"{key} = {now[key]!r} instead of {before[key]!r}" for key in changed]
        raise ResumeError(
            f"{folder}: expected the configuration that the run started with, found "
            f"{', '.join(other)}; pass --run-config {folder / SETTINGS}"
        )
    (folder / ERROR).unlink(missing_ok=True)
    # The places, timeouts and device of this start; all else is equal.
    checkpoint.config = settings
    return checkpoint


def holds_run(folder: Path) -> bool:
    """Whether there is anything of a run in a folder, however far it came."""
    return any((folder / name).is_file() for name in (RESULT, ERROR, HISTORY, CHECKPOINT, BEFORE))


def refuse_earlier(config: RunConfig, folder: Path) -> None:
    """Refuse to start a new run where an earlier one is, unless `overwrite` is set.

    Call it while no server is at work there: its run would be called interrupted.
    """
    if config.resume or config.overwrite:
        return
    if (folder / RESULT).is_file():
        raise UserError(
            f"{folder}: expected a folder without a finished run, found {RESULT}; choose another "
            f"`out`, or replace the run with {_OVERWRITE}"
        )
    expected = f"{folder}: expected a folder without a run, found an interrupted run"
    try:
        checkpoint = Checkpoint.load(folder, own=False)
    except ResumeError:
        # Rounds were computed here. They are not deleted silently, even where they cannot be
        # resumed.
        rounds = len(whole_lines(folder / HISTORY))
        if rounds and any((folder / name).is_file() for name in (CHECKPOINT, BEFORE)):
            raise ResumeError(
                f"{expected} whose {CHECKPOINT} cannot be read, rounds in {HISTORY}: {rounds}; "
                f"choose another `out`, or replace it with {_OVERWRITE}"
            ) from None
        return
    # Nothing was computed yet, so that a new start loses nothing.
    if not checkpoint.round:
        return
    how = f"it with `{_command(checkpoint, folder)}`"
    if checkpoint.protocol != PROTOCOL:
        how = f"it with a release of protocol {checkpoint.protocol}"
    # A `ResumeError`, as `resume_hint` would say once more how to resume.
    raise ResumeError(
        f"{expected}, {checkpoint.round} of {counted(checkpoint.config.rounds, 'round')}; resume "
        f"{how}, or "
        f"replace it with {_OVERWRITE}"
    )


def write_settings(checkpoint: Checkpoint, folder: Path) -> None:
    """Write the configuration with which `flwr run` resumes this run."""
    settings = replace(checkpoint.config, out=str(folder), resume=True)
    write_text(folder / SETTINGS, to_toml(settings))


def truncate_history(checkpoint: Checkpoint, folder: Path) -> None:
    """Truncate `history.jsonl` to the rows of the checkpoint and delete the last error."""
    write_text(folder / HISTORY, "".join(line + "\n" for line in checkpoint.history))
    (folder / ERROR).unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Delete what only an unfinished run needs, drafts of killed processes included."""
    for name in (CHECKPOINT, BEFORE, SETTINGS):
        (folder / name).unlink(missing_ok=True)
    # Drafts carry the number of a process, which a kill has kept from removing them.
    for name in (CHECKPOINT, SETTINGS, MODEL, HISTORY, RESULT):
        for draft in folder.glob(f".{name}.*"):
            draft.unlink(missing_ok=True)


def how_to_resume(folder: Path) -> str:
    """Return one line that says how to resume the run in `folder`; empty if it cannot resume."""
    try:
        checkpoint = load_resumable(folder)
    except ResumeError:
        return ""
    return (
        f"{checkpoint.round} of {checkpoint.config.rounds} rounds are kept; resume with: "
        f"{_command(checkpoint, folder)}"
    )


def _command(checkpoint: Checkpoint, folder: Path) -> str:
    """Return the command that resumes a run."""
    # Clients with data of their own are a deployment.
    command = "run" if checkpoint.partition else "deploy run"
    return f"dance-flwr {command} --resume {quote(str(folder))}"


@contextmanager
def resume_hint(folder: Path) -> Iterator[None]:
    """Add the command that resumes the run to the message of any exception."""
    try:
        yield
    except ResumeError:
        # It says itself how to go on.
        raise
    except UserError as error:
        hint = _hint(folder)
        if hint:
            error.args = (f"{error}; {hint}", *error.args[1:])
        raise
    except Exception as error:
        hint = _hint(folder)
        if hint:
            # No mistake of the user: the error stays as it is, and the hint is a note below it.
            error.add_note(hint)
        raise


def _hint(folder: Path) -> str:
    """Return how to resume; empty where the server has already written it to `error.txt`."""
    return "" if (folder / ERROR).is_file() else how_to_resume(folder)
