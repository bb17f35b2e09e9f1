"""Export numbers of a run to Prometheus, as a file for node_exporter's textfile collector."""

import logging
import re
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dance_flwr.runs.status import STATES, Status

LOG = logging.getLogger("flwr")


def write(status: Status, folder: Path) -> None:
    """Write `dance_flwr_<run>.prom` into `folder`, whole or not at all; warn if that fails."""
    registry = CollectorRegistry()
    registry.register(_Numbers(status))
    # The name of a run becomes part of a file name.
    name = re.sub(r"[^\w.-]", "_", status.run)
    path = folder / f"dance_flwr_{name}.prom"
    try:
        # Why (decision 10): a file, as a run has no server to scrape, and ends. It is replaced
        # whole, since the collector may read at any moment.
        write_to_textfile(str(path), registry)
        # node_exporter runs as another user, whom the umask of a service would exclude.
        path.chmod(0o644)
    except OSError as error:
        _warn(folder, error.strerror or str(error))


@lru_cache(maxsize=16)
def _warn(folder: Path, reason: str) -> None:
    """Warn once, not in every round."""
    LOG.warning(
        "%s: expected a writable folder for metrics, found: %s; the run continues without",
        folder,
        reason,
    )


class _Numbers(Collector):
    """The current numbers."""

    def __init__(self, status: Status) -> None:
        self.status = status

    def collect(self) -> Iterator[Metric]:
        """Return the metrics; unknown ones are omitted."""
        status, labels = self.status, ("run", "method")
        values = (status.run, status.method)
        for name, text, value in _gauges(status):
            # A gauge of 0 would be a measurement; what is not known has none.
            if value is not None:
                gauge = GaugeMetricFamily(f"dance_flwr_{name}", text, labels=labels)
                gauge.add_metric(values, value)
                yield gauge
        sizes = CounterMetricFamily(
            "dance_flwr_bytes", "Model bytes of all rounds.", labels=(*labels, "direction")
        )
        for way, count in (("down", status.bytes_down), ("up", status.bytes_up)):
            sizes.add_metric((*values, way), count)
        yield sizes
        states = GaugeMetricFamily(
            "dance_flwr_run_state", "1 for the state of the run.", labels=(*labels, "state")
        )
        for state in STATES:
            states.add_metric((*values, state), float(state == status.state))
        yield states


def _gauges(status: Status) -> list[tuple[str, str, float | None]]:
    """Return name, help text and value of every gauge."""
    clients = len(status.answered)
    return [
        ("round", "Whole rounds so far.", status.round),
        ("rounds", "Rounds of the whole run.", status.rounds),
        ("round_seconds", "Wall clock of the last round.", status.last_seconds),
        ("validation_accuracy", "Accuracy of the last validation, 0 to 1.", status.val_accuracy),
        (
            "best_validation_accuracy",
            "Accuracy of the best validation, 0 to 1.",
            status.best_accuracy,
        ),
        (
            "test_accuracy",
            "Accuracy on the test nodes, 0 to 1, once the run is over.",
            status.test_accuracy,
        ),
        ("clients_answered", "Clients that answered in the last round.", clients),
        (
            "clients_expected",
            "Clients that should have answered in the last round.",
            clients + len(status.absent),
        ),
        ("last_update_timestamp_seconds", "Unix time of this file.", time.time()),
    ]
