"""Check uploads: an invalid one is omitted and its sender named, or the round fails."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from flwr.app import Message
from flwr.serverapp import Grid

from dance_flwr.config.sections import FLOAT32
from dance_flwr.errors import QuorumError
from dance_flwr.federation.server.grid import LOG, FederationGrid
from dance_flwr.federation.wire import messages
from dance_flwr.methods.server_side import ServerSide, State, Upload
from dance_flwr.methods.upload_checks import model_fault
from dance_flwr.privacy.quantiser import Quantised, dequantise, expected_types, scales_fault


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
    uploads: list[Upload] = []
    metrics: list[Mapping[str, Any]] = []
    rejected: list[str] = []
    for reply in replies:
        client = grid.author(reply) if isinstance(grid, FederationGrid) else None
        upload, fault = read_upload(reply, client, side, start)
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


def read_upload(
    reply: Message, client: int | None, side: ServerSide, start: State
) -> tuple[Upload, str]:
    """Return the upload of a reply as a model, and what is wrong with it; "" where nothing is.

    A rounded update is added to the model that its client received. Under masks the sum has been
    decoded already.
    """
    precision, upload = side.config.upload_precision, messages.upload_of(reply, client)
    expected = side.expected(start)
    if precision == FLOAT32 or side.config.privacy.secure_aggregation:
        return upload, model_fault(upload.state, expected)
    scales = messages.scales_of(reply)
    fault = model_fault(upload.state, expected_types(expected, precision))
    if fault := fault or scales_fault(scales, expected, precision):
        return upload, fault
    if any(bool((t == -128).any()) for t in upload.state.values() if t.dtype == torch.int8):
        return upload, "expected steps from -127 to 127, found -128"
    received = start if client is None else side.model_for(client, start)
    floats = {name: t for name, t in upload.state.items() if expected[name].is_floating_point()}
    update = dequantise(Quantised(floats, scales))
    state = {
        name: (received[name].double() + update[name]).to(received[name].dtype)
        if name in update
        else tensor
        for name, tensor in upload.state.items()
    }
    return replace(upload, state=state), model_fault(state, expected)


def _sender(client: int | None) -> str:
    return "all clients together" if client is None else f"client {client}"
