"""Start and resume runs: from a new checkpoint, or from the one of an interrupted run."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from dance_flwr.config.paths import ERROR, HISTORY, MODEL, RESULT, SETTINGS
from dance_flwr.config.text import to_toml
from dance_flwr.config.tree import FREE, RunConfig, flatten
from dance_flwr.disk import write_text
from dance_flwr.errors import ResumeError, UserError, counted
from dance_flwr.fingerprint import PROTOCOL
from dance_flwr.runs.checkpoint import BEFORE, CHECKPOINT, Checkpoint
from dance_flwr.runs.result import whole_lines

if TYPE_CHECKING:  # reading the status of a run needs no torch
    from dance_flwr.federation.server.grid import FederationGrid
    from dance_flwr.federation.server.round import Model, Round

LOG = logging.getLogger("flwr")
_OVERWRITE = "--overwrite (overwrite=true for `flwr run`)"


def load_resumable(folder: Path) -> Checkpoint:
    """Return the checkpoint of an interrupted run."""
    if (folder / RESULT).is_file():
        raise ResumeError(
            f"{folder}: expected an interrupted run, found {RESULT} of a finished one; read that"
        )
    return Checkpoint.load(folder)


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
    # With these two keys, a resumed result would differ from an uninterrupted one.
    settings = replace(config, resume=False, overwrite=False)
    if not config.resume:
        (folder / ERROR).unlink(missing_ok=True)
        forget(folder)
        return Checkpoint(name, settings)
    checkpoint = load_resumable(folder)
    before, now = flatten(checkpoint.config), flatten(settings)
    changed = [key for key in before if key not in FREE and before[key] != now[key]]
    if changed:
        other = [f"{key} = {now[key]!r} instead of {before[key]!r}" for key in changed]
        raise ResumeError(
            f"{folder}: expected the configuration that the run started with, found "
            f"{', '.join(other)}; pass --run-config {folder / SETTINGS}"
        )
    (folder / ERROR).unlink(missing_ok=True)
    checkpoint.config = settings  # its places, timeouts and device may differ
    return checkpoint


def holds_run(folder: Path) -> bool:
    """Whether a folder holds files of a run, however far it came."""
    return any((folder / name).is_file() for name in (RESULT, ERROR, HISTORY, CHECKPOINT, BEFORE))


def refuse_earlier(config: RunConfig, folder: Path) -> None:
    """Refuse to start a new run in the folder of an earlier one, unless `overwrite` is set.

    Call it while no server is at work there; its run would be called interrupted.
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
        # Rounds are not deleted silently, even if they cannot be resumed; the last one may be in
        # the checkpoint alone.
        rounds = len(whole_lines(folder / HISTORY))
        if any((folder / name).is_file() for name in (CHECKPOINT, BEFORE)):
            raise ResumeError(
                f"{expected} whose {CHECKPOINT} cannot be read, rounds in {HISTORY}: {rounds}; "
                f"choose another `out`, or replace it with {_OVERWRITE}"
            ) from None
        return
    if not checkpoint.round:
        return  # nothing was computed yet
    how = f"it with `{_command(checkpoint, folder)}`"
    if checkpoint.protocol != PROTOCOL:
        how = f"it with a release of protocol {checkpoint.protocol}"
    # A `ResumeError`, as `resume_hint` would say once more how to resume.
    raise ResumeError(
        f"{expected}, {checkpoint.round} of {counted(checkpoint.config.rounds, 'round')}; resume "
        f"{how}, or replace it with {_OVERWRITE}"
    )


def save_checkpoint(
    round_: "Round",
    federation: "FederationGrid",
    arrays: "Model",
    checkpoint: Checkpoint,
    folder: Path,
) -> None:
    """Write the checkpoint of a completed round, or of the start, and how `flwr run` resumes it."""
    checkpoint.arrays, numbers = round_.state(arrays)
    checkpoint.numbers |= numbers  # a temperature that was settled stays
    checkpoint.messages, checkpoint.total_weight = federation.log.rows(), federation.total_weight
    checkpoint.traffic = [dict(federation.bytes_down), dict(federation.bytes_up)]
    checkpoint.save(folder)
    if not (folder / SETTINGS).is_file():  # the same in every round
        settings = replace(checkpoint.config, out=str(folder), resume=True)
        write_text(folder / SETTINGS, to_toml(settings))


def restore(
    round_: "Round", federation: "FederationGrid", checkpoint: Checkpoint, initial: "Model"
) -> "Model":
    """Restore round and federation from `checkpoint`; return the global model.

    Before round 1 this is `initial`. The record of messages becomes that of complete rounds,
    without the queries of a later start and without a round that was cut off. So a resumed result
    equals that of an uninterrupted run bit by bit (decision 10).
    """
    from dance_flwr.federation.privacy.dp import affordable_rounds, repeats_cost

    config, done = checkpoint.config, checkpoint.round
    round_.deployed = initial
    federation.absent.clear()  # absences during the queries before the first round
    round_.offset, round_.last = done, affordable_rounds(config, checkpoint.repeats)
    if not checkpoint.arrays:
        return initial
    checkpoint.resumed_after.append(done)
    # Why (decision 10): the noisy sums of both attempts may have been seen.
    if repeats_cost(config.privacy) and done < round_.last:
        checkpoint.repeats += 1
        # The charge may end the run a round earlier; completed rounds stay.
        round_.last = max(done, affordable_rounds(config, checkpoint.repeats))
        LOG.warning("round %d may be repeated with new noise: it is charged twice", done + 1)
    arrays = round_.restore(checkpoint.arrays, checkpoint.numbers)
    federation.restore(checkpoint.sizes, checkpoint.total_weight)
    federation.log.restore(checkpoint.messages)
    federation.bytes_down, federation.bytes_up = map(Counter, checkpoint.traffic)
    LOG.info("run %s resumes with round %d of %d", checkpoint.run, done + 1, round_.last)
    return arrays


def forget(folder: Path) -> None:
    """Delete what only an unfinished run needs, drafts of killed processes included."""
    for name in (CHECKPOINT, BEFORE, SETTINGS):
        (folder / name).unlink(missing_ok=True)
    # A killed process leaves drafts, whose names end with its number.
    for name in (CHECKPOINT, SETTINGS, MODEL, HISTORY, RESULT):
        for draft in folder.glob(f".{name}.*"):
            draft.unlink(missing_ok=True)


def how_to_resume(folder: Path) -> str:
    """Return in one line how to resume the run in `folder`, or why not; "" without a checkpoint."""
    try:
        checkpoint = Checkpoint.load(folder, own=False)
        # The key of a deployment is in the home of its server, which is that of `deploy serve`.
        if checkpoint.partition or checkpoint.protocol != PROTOCOL:
            load_resumable(folder)
    except ResumeError as error:
        return str(error) if (folder / CHECKPOINT).exists() else ""
    return (
        f"{checkpoint.round} of {checkpoint.config.rounds} rounds are kept; resume with: "
        f"{_command(checkpoint, folder)}"
    )


def _command(checkpoint: Checkpoint, folder: Path) -> str:
    # Clients with data of their own are a deployment.
    command = "run" if checkpoint.partition else "deploy run"
    return f"dance-flwr {command} --resume {quote(str(folder))}"


@contextmanager
def resume_hint(folder: Path) -> Iterator[None]:
    """Add the command that resumes the run to any exception, unless `error.txt` has it already."""
    try:
        yield
    except ResumeError:
        raise  # it says itself how to go on
    except Exception as error:
        if not (folder / ERROR).is_file() and (hint := how_to_resume(folder)):
            if isinstance(error, UserError):
                error.args = (f"{error}; {hint}", *error.args[1:])
            else:  # no mistake of the user: the error stays, with the hint as a note below it
                error.add_note(hint)
        raise
