"""Report start, rounds and end of a run: events as JSON lines, numbers for Prometheus."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dance_flwr import events
from dance_flwr.errors import UserError
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.history import Round

LOG = logging.getLogger("flwr")
METRICS = "DANCE_FLWR_METRICS_DIR"


@contextmanager
def observe_run(checkpoint: Checkpoint, folder: Path) -> Iterator[None]:
    """Emit events for the start and the end of the run in the block, however it ends."""
    config = checkpoint.config
    facts: dict[str, Any] = {
        "method": config.method,
        "rounds": config.rounds,
        "clients": config.clients,
    }
    event, word = ("run_resumed", "resumes") if checkpoint.arrays else ("run_started", "starts")
    with events.log_context(run=checkpoint.run), events.log_to(folder, bool(checkpoint.arrays)):
        events.emit(
            event,
            f"run {checkpoint.run} {word} with round {checkpoint.round + 1}",
            **facts,
            round=checkpoint.round,
        )
        events.bind_context(round=checkpoint.round + 1)
        _export(checkpoint, folder, "running")
        try:
            yield
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            events.emit(
                "run_failed", f"run {checkpoint.run} failed: {reason}", logging.ERROR, reason=reason
            )
            _export(checkpoint, folder, "failed")
            raise
        except BaseException:
            # A signal is no failure: the checkpoint is whole, and the run can be resumed.
            events.emit("run_interrupted", f"run {checkpoint.run} was interrupted", logging.ERROR)
            _export(checkpoint, folder, "interrupted")
            raise
        _export(checkpoint, folder, "finished")


def round_ended(row: Round, checkpoint: Checkpoint, folder: Path) -> None:
    """Emit the event of a completed round; later events belong to the next one."""
    facts: dict[str, Any] = {
        "seconds": row.round_seconds,
        "loss": row.loss,
        "accuracy": row.val_accuracy,
    }
    facts |= {"bytes_down": sum(row.bytes_down.values()), "bytes_up": sum(row.bytes_up.values())}
    facts |= {"answered": row.answered, "absent": sorted(row.absent), "epsilon": row.epsilon}
    facts |= {"skipped": row.skipped} if row.skipped else {}
    message = f"round {row.round} of {checkpoint.config.rounds} took {row.round_seconds:.3g} s"
    events.emit("round_ended", message, round=row.round, **facts)
    # What comes next belongs to the next round.
    events.bind_context(round=row.round + 1)
    _export(checkpoint, folder, "running")


def _export(checkpoint: Checkpoint, folder: Path, state: str) -> None:
    """Write the run's numbers if the user asked for them; errors never fail the run."""
    # In the environment: where an operator watches a run is no part of it.
    target = os.environ.get(METRICS)
    if not target:
        return
    from dance_flwr.runs import metrics_export as prometheus
    from dance_flwr.runs.status import FINISHED, Status, read_status

    try:
        status = read_status(folder, alive=state != FINISHED)
    except (UserError, OSError) as error:
        # Numbers for a dashboard never cost a run; unknown ones are left out.
        LOG.warning("no numbers of this run in %s: %s", target, error)
        status = Status(str(folder), state)
    config, rounds = checkpoint.config, status.rounds or checkpoint.config.rounds
    status = replace(status, state=state, run=checkpoint.run, method=config.method, rounds=rounds)
    prometheus.write(status, Path(target).expanduser())
