"""Check uploads: an invalid one is omitted and its sender named, or the round fails."""

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from dance_flwr.errors import QuorumError
from dance_flwr.federation.server.grid import LOG, FederationGrid
from dance_flwr.federation.wire import messages
from dance_flwr.methods.server_side import ServerSide, State, Upload
from dance_flwr.methods.upload_checks import model_fault


def valid_updates(
    replies: Sequence[Message], side: ServerSide, start: State, grid: Grid, fewest: int
) -> tuple[list[Upload], list[Mapping[str, Any]]]:
    """Return the valid uploads and their metrics; log the sender of every other one.

    Parameters
    ----------
    replies : valid training replies, ordered by client
    side : defines what an upload must hold
    start : the model that the round started from
    fewest : clients that a round must end with

    Raises
    ------
    QuorumError : fewer uploads are valid; says whose are not, and why
    """
    expected = side.expected(start)
    uploads: list[Upload] = []
    metrics: list[Mapping[str, Any]] = []
    rejected: list[str] = []
    for reply in replies:
        client = grid.author(reply) if isinstance(grid, FederationGrid) else None
        upload = messages.upload_of(reply, client)
        fault = model_fault(upload.state, expected)
        fault = fault or side.statistics_fault(client, upload.statistics)
        if not fault:
            uploads.append(upload)
            metrics.append(messages.metrics_of(reply.content))
            continue
        rejected.append(f"{_sender(client)}: {fault}")
        if client is not None and isinstance(grid, FederationGrid):
            grid.mark_absent("upload_rejected", client, fault)
    fewest = min(len(replies), fewest)
    if len(uploads) < fewest:
        raise QuorumError(
            f"expected at least {fewest} valid updates, found {len(uploads)}; {'; '.join(rejected)}"
        )
    if rejected:
        LOG.error("omitted from the mean: %s", "; ".join(rejected))
    return uploads, metrics


def _sender(client: int | None) -> str:
    return "all clients together" if client is None else f"client {client}"
