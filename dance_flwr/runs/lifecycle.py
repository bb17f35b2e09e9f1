"""The begin, the rounds and the end of a run, as its server tells of them: JSON lines, and numbers
for Prometheus.
"""

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
def observed(point: Checkpoint, folder: Path) -> Iterator[None]:
    """Tell of the begin and of the end of the run in the block, whatever ends it."""
    config = point.config
    facts: dict[str, Any] = {
        "method": config.method,
        "rounds": config.rounds,
        "clients": config.clients,
    }
    event, word = ("run_resumed", "goes on") if point.arrays else ("run_started", "begins")
    with events.bound(run=point.run), events.kept(folder, bool(point.arrays)):
        events.emit(
            event,
            f"run {point.run} {word} with round {point.round + 1}",
            **facts,
            round=point.round,
        )
        events.bind(round=point.round + 1)
        _export(point, folder, "running")
        try:
            yield
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            events.emit(
                "run_failed", f"run {point.run} failed: {reason}", logging.ERROR, reason=reason
            )
            _export(point, folder, "failed")
            raise
        except BaseException:
            events.emit("run_interrupted", f"run {point.run} was interrupted", logging.ERROR)
            _export(point, folder, "interrupted")
            raise
        _export(point, folder, "finished")


def round_ended(row: Round, point: Checkpoint, folder: Path) -> None:
    """Tell of a round that is over; what comes is of the next one."""
    facts: dict[str, Any] = {
        "seconds": row.round_seconds,
        "loss": row.loss,
        "accuracy": row.val_accuracy,
    }
    facts |= {"bytes_down": sum(row.bytes_down.values()), "bytes_up": sum(row.bytes_up.values())}
    facts |= {"answered": row.answered, "absent": sorted(row.absent), "epsilon": row.epsilon}
    message = f"round {row.round} of {point.config.rounds} took {row.round_seconds:.3g} s"
    events.emit("round_ended", message, round=row.round, **facts)
    events.bind(round=row.round + 1)
    _export(point, folder, "running")


def _export(point: Checkpoint, folder: Path, state: str) -> None:
    """Write the run's numbers where the user asked for them; never a reason for a run to fail."""
    target = os.environ.get(METRICS)
    if not target:
        return
    from dance_flwr.runs import metrics_export as prometheus
    from dance_flwr.runs.status import FINISHED, Status, read_status

    try:
        status = read_status(folder, alive=state != FINISHED)
    except (UserError, OSError) as error:
        LOG.warning("no numbers of this run in %s: %s", target, error)
        status = Status(str(folder), state)
    config, rounds = point.config, status.rounds or point.config.rounds
    status = replace(status, state=state, run=point.run, method=config.method, rounds=rounds)
    prometheus.write(status, Path(target).expanduser())
