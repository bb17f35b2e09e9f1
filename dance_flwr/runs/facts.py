"""Read a run from its folder: while it runs, after its end, after a kill."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dance_flwr.config.paths import ERROR, HISTORY, RESULT, data_root
from dance_flwr.config.tree import flatten
from dance_flwr.errors import UserError
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.history import Round, whole_lines
from dance_flwr.runs.reader import read_result
from dance_flwr.runs.status import FINISHED, RUNNING, Status, checkpoint_of, read_status

_GRIDS = "grids"  # a folder that only a study has


@dataclass(frozen=True)
class RunFacts:
    """A run as far as it has come.

    Attributes
    ----------
    status : as `dance-flwr status` prints it; rows : its completed rounds
    config : flat keys; empty while the server gathers its clients
    result : content of `result.json`, empty before the end
    messages : kinds of messages so far, as in the run's record
    client_seconds : client -> seconds by phase; empty where only sums are known
    privacy : settings, and what the completed rounds spent
    provenance : of the code, "" where it is not known
    data : name of the graph, or whose data it is where every client brought its own
    partition : folder of its clients, "" where every client brought its own data
    """

    status: Status
    rows: Sequence[Round] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[Mapping[str, Any]] = ()
    client_seconds: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)
    provenance: str = ""
    data: str = ""
    partition: str = ""

    @property
    def runs(self) -> bool:
        """Whether a server is at work."""
        return self.status.state == RUNNING

    @property
    def clients(self) -> list[int]:
        """The clients that a round asked, or that the result names, ascending."""
        clients = {client for row in self.rows for client in (*row.bytes_down, *row.bytes_up)}
        return sorted(clients | {int(row["client"]) for row in self.result.get("clients", ())})


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, which began its first round or ended."""
    return any((folder / name).is_file() for name in (RESULT, HISTORY, ERROR))


def read_facts(folder: Path, alive: bool | None = None) -> RunFacts:
    """Return a run as its folder records it; `alive` as for `read_status`."""
    if (folder / _GRIDS).is_dir():
        raise UserError(
            f"{folder}: expected the folder of a run, found that of a study; name one of the "
            f"folders in {folder / 'runs'}; the report of a study has neither page nor tracker"
        )
    status = read_status(folder, alive)
    # A finished run has no checkpoint: its result holds all that is known.
    if status.state == FINISHED:
        return _finished(folder, status)
    checkpoint = checkpoint_of(folder)
    if checkpoint is None:
        return RunFacts(status)
    lines = whole_lines(folder / HISTORY)[: status.round]  # a round may have ended since
    return RunFacts(
        status,
        [Round.read(line) for line in lines],
        flatten(checkpoint.config),
        messages=checkpoint.messages,
        client_seconds=checkpoint.client_seconds,
        privacy=_spent(checkpoint),
        provenance=", ".join(checkpoint.provenance),
        data=_data(checkpoint.config.data, checkpoint.partition),
        partition=_folder(checkpoint),
    )


def _folder(checkpoint: Checkpoint) -> str:
    """Return the folder of the partition, which the checkpoint knows by its name."""
    name = checkpoint.partition
    return str(data_root(checkpoint.config) / "partitions" / name) if name else ""


def _data(name: str, partition: str | None) -> str:
    """Return what a run was trained on; the key `data` says nothing without a partition of it."""
    return Path(name).name if partition else "the clients' own data"


def _finished(folder: Path, status: Status) -> RunFacts:
    result = read_result(folder)
    try:
        # The rows of the result are lines of the history, so that one reader serves both.
        rows = [Round.read(json.dumps(row)) for row in result["history"]]
        seconds = {
            int(client): phases for client, phases in result.get("seconds_by_client", {}).items()
        }
        privacy, code = result["privacy"], str(result.get("provenance", ""))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{folder}: expected the result of a run, found {error!r}; "
            "copy the run's folder again, or run again"
        ) from None
    config, messages = result["config"], result.get("messages", ())
    partition = result.get("partition_dir") or ""
    data = _data(str(config["data"]), partition)
    return RunFacts(status, rows, config, result, messages, seconds, privacy, code, data, partition)


def _spent(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the privacy settings and what the completed rounds spent."""
    settings = checkpoint.config.privacy
    plain = {"secure_aggregation": settings.secure_aggregation, "dp": settings.dp}
    if settings.dp == "none":
        return plain
    from dance_flwr.runs.summary import privacy_facts

    return privacy_facts(checkpoint.config, checkpoint.round, checkpoint.repeats)
