"""Report start, rounds and end of a run: events as JSON lines, numbers for Prometheus.

The numbers are a file for node_exporter's textfile collector, in the folder that
$DANCE_FLWR_METRICS_DIR names. Errors of that file never cost a run.
"""

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dance_flwr import events
from dance_flwr.errors import UserError
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.result import Round
from dance_flwr.runs.run import FINISHED, STATES, Status, read_status

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LOG = logging.getLogger("flwr")
METRICS = "DANCE_FLWR_METRICS_DIR"


@contextmanager
def observe_run(checkpoint: Checkpoint, folder: Path) -> Iterator[None]:
    """Emit events for the start and the end of the run in the block, however it ends."""
    config, resumes = checkpoint.config, bool(checkpoint.arrays)
    event, word = ("run_resumed", "resumes") if resumes else ("run_started", "starts")
    with events.log_context(run=checkpoint.run), events.log_to(folder, resumes):
        events.emit(
            event,
            f"run {checkpoint.run} {word} with round {checkpoint.round + 1}",
            method=config.method,
            rounds=config.rounds,
            clients=config.clients,
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
            # A signal is no failure: the run can be resumed.
            events.emit("run_interrupted", f"run {checkpoint.run} was interrupted", logging.ERROR)
            _export(checkpoint, folder, "interrupted")
            raise
        _export(checkpoint, folder, "finished")


def round_ended(row: Round, checkpoint: Checkpoint, folder: Path) -> None:
    """Emit the event of a completed round; later events belong to the next one."""
    values: dict[str, Any] = {
        "seconds": row.round_seconds,
        "loss": row.loss,
        "accuracy": row.val_accuracy,
        "bytes_down": sum(row.bytes_down.values()),
        "bytes_up": sum(row.bytes_up.values()),
        "answered": row.answered,
        "absent": sorted(row.absent),
        "epsilon": row.epsilon,
    }
    values |= {"skipped": row.skipped} if row.skipped else {}
    message = f"round {row.round} of {checkpoint.config.rounds} took {row.round_seconds:.3g} s"
    events.emit("round_ended", message, round=row.round, **values)
    events.bind_context(round=row.round + 1)
    _export(checkpoint, folder, "running")


def _export(checkpoint: Checkpoint, folder: Path, state: str) -> None:
    """Write the run's numbers if the user asked for them."""
    target = os.environ.get(METRICS)
    if not target:
        return
    try:
        status = read_status(folder, alive=state != FINISHED)
    except (UserError, OSError) as error:
        LOG.warning("no numbers of this run in %s: %s", target, error)
        status = Status(str(folder), state)
    config, rounds = checkpoint.config, status.rounds or checkpoint.config.rounds
    status = replace(status, state=state, run=checkpoint.run, method=config.method, rounds=rounds)
    write_metrics(status, Path(target).expanduser())


def write_metrics(status: Status, folder: Path) -> None:
    """Write `dance_flwr_<run>.prom` into `folder`, whole or not at all; warn if that fails."""
    from prometheus_client import CollectorRegistry, write_to_textfile
    from prometheus_client.registry import Collector

    class Metrics(Collector):
        def collect(self) -> "Iterator[Metric]":
            return _metrics(status)

    registry = CollectorRegistry()
    registry.register(Metrics())
    # The name of a run becomes part of a file name.
    name = re.sub(r"[^\w.-]", "_", status.run)
    path = folder / f"dance_flwr_{name}.prom"
    try:
        # Why (decision 10): a file, as a run has no server to scrape, and ends. The library
        # replaces it whole, since the collector may read at any moment.
        write_to_textfile(str(path), registry)
        # node_exporter runs as another user, whom the umask of a service would exclude.
        path.chmod(0o644)
    except OSError as error:
        _warn(folder, error.strerror or str(error))


@lru_cache(maxsize=16)  # once, not in every round
def _warn(folder: Path, reason: str) -> None:
    LOG.warning(
        "%s: expected a writable folder for metrics, found: %s; the run continues without",
        folder,
        reason,
    )


def _metrics(status: Status) -> "Iterator[Metric]":
    """Yield the metrics of a run; unknown numbers are left out."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels, run = ("run", "method"), (status.run, status.method)
    answered, expected = len(status.answered), len(status.answered) + len(status.absent)
    gauges: dict[str, tuple[str, float | None]] = {
        "round": ("Whole rounds so far.", status.round),
        "rounds": ("Rounds of the whole run.", status.rounds),
        "round_seconds": ("Wall clock of the last round.", status.last_seconds),
        "validation_accuracy": ("Last validation, 0 to 1.", status.val_accuracy),
        "best_validation_accuracy": ("Best validation, 0 to 1.", status.best_accuracy),
        "test_accuracy": ("Test nodes, 0 to 1, once the run is over.", status.test_accuracy),
        "clients_answered": ("Clients that answered in the last round.", answered),
        "clients_expected": ("Clients that were asked in the last round.", expected),
        "last_update_timestamp_seconds": ("Unix time of this file.", time.time()),
    }
    for name, (text, value) in gauges.items():
        if value is not None:
            gauge = GaugeMetricFamily(f"dance_flwr_{name}", text, labels=labels)
            gauge.add_metric(run, value)
            yield gauge
    sizes = CounterMetricFamily(
        "dance_flwr_bytes", "Model bytes of all rounds.", labels=(*labels, "direction")
    )
    sizes.add_metric((*run, "down"), status.bytes_down)
    sizes.add_metric((*run, "up"), status.bytes_up)
    yield sizes
    states = GaugeMetricFamily(
        "dance_flwr_run_state", "1 for the state of the run.", labels=(*labels, "state")
    )
    for state in STATES:
        states.add_metric((*run, state), float(state == status.state))
    yield states
