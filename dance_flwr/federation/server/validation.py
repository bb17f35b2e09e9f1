"""Check uploads: an invalid one is omitted and its sender named, or the round fails."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import torch
from flwr.app import Message
from flwr.serverapp import Grid

from dance_flwr import events
from dance_flwr.config.sections import FLOAT32
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import QuorumError
from dance_flwr.federation.privacy.dp import fewest_clients, update_bound
from dance_flwr.federation.privacy.mechanism import clip
from dance_flwr.federation.privacy.quantiser import (
    Quantised,
    dequantise,
    expected_types,
    scales_fault,
)
from dance_flwr.federation.server.grid import LOG, FederationGrid
from dance_flwr.federation.wire import messages
from dance_flwr.methods.server_side import ServerSide, State, Upload
from dance_flwr.methods.upload_checks import NormHistory, model_fault, norm_bounds, update_norm


def valid_updates(
    replies: Sequence[Message],
    side: ServerSide,
    start: State,
    grid: Grid,
    norm: float | None = None,
) -> tuple[list[Upload], list[Mapping[str, Any]]]:
    """Return the valid uploads and their metrics; log the sender of every other one.

    Parameters
    ----------
    replies : valid training replies, ordered by client
    side : defines what an upload must hold
    start : the model that the round started from
    norm : C, what updates were clipped to under differential privacy

    Raises
    ------
    QuorumError : fewer uploads are valid; says whose are not, and why
    """
    # All uploads are read before any is judged: norms are compared with their median.
    read: list[tuple[Upload, str]] = []
    for reply in replies:
        client = grid.author(reply) if isinstance(grid, FederationGrid) else None
        upload, fault = read_upload(reply, client, side, start)
        read.append((upload, fault or side.statistics_fault(client, upload.statistics)))
    read = _without_outliers(read, side, start, norm)
    uploads = [upload for upload, fault in read if not fault]
    metrics: list[Mapping[str, Any]] = [
        messages.metrics_of(reply.content)
        for reply, (_, fault) in zip(replies, read, strict=True)
        if not fault
    ]
    rejected = [f"{_sender(upload.client)}: {fault}" for upload, fault in read if fault]
    for upload, fault in read:
        if fault and upload.client is not None and isinstance(grid, FederationGrid):
            grid.mark_absent("upload_rejected", upload.client, fault)
    # Refused uploads count as absent clients: the quorum is that of what is left.
    fewest = min(len(replies), fewest_clients(side.config))
    if len(uploads) < fewest:
        raise QuorumError(
            f"expected at least {fewest} valid updates, found {len(uploads)}; {'; '.join(rejected)}"
        )
    if rejected:
        LOG.error("omitted from the mean: %s", "; ".join(rejected))
    return uploads, metrics


def shorten(
    uploads: Sequence[Upload], side: ServerSide, start: State, history: NormHistory
) -> list[Upload]:
    """Return the uploads with no update longer than honest ones are; log whose was.

    Masked sums are bounded where they are decoded, and under differential privacy the clipping
    norm bounds every update.
    """
    # Why shortened and not refused: a length says nothing of the direction, which may be honest;
    # a refusal would cost an unusual client its part in the model, and a small run its quorum.
    if side.config.privacy.dp != "none" or any(upload.client is None for upload in uploads):
        return list(uploads)
    norms = {upload.client: upload.norm for upload in uploads if upload.client is not None}
    bounds, shortened = history.bounds(norms), list(uploads)
    for place, upload in enumerate(uploads):
        client = upload.client
        # The honest rest stays what it is, to the last bit.
        if client is None or norms[client] <= bounds[client]:
            continue
        state, _ = clip(upload.state, side.model_for(client, start), bounds[client])
        shortened[place] = replace(upload, state=state)
        line = (
            f"client {client}: expected an update of norm {bounds[client]:.3g} at most, found "
            f"{norms[client]:.3g}; it is shortened"
        )
        LOG.warning("%s", line)
        events.emit("update_shortened", line, logging.WARNING, client=client)
    return shortened


def _without_outliers(
    read: Sequence[tuple[Upload, str]], side: ServerSide, start: State, norm: float | None
) -> list[tuple[Upload, str]]:
    """Return uploads with the norms of their updates, and a fault for each that is too long.

    The bound is `norm_bounds`; under differential privacy, what a client may send at most. A masked
    sum is bounded where it is decoded.
    """
    places = [
        place
        for place, (upload, fault) in enumerate(read)
        if not fault and upload.client is not None
    ]
    received = [side.model_for(read[place][0].client or 0, start) for place in places]
    norms = [
        update_norm(read[place][0].state, model)
        for place, model in zip(places, received, strict=True)
    ]
    # Most methods send all clients one model.
    lengths = {key: _length(model) for key, model in {id(m): m for m in received}.items()}
    starts = [lengths[id(model)] for model in received]
    bounds = norm_bounds(norms, starts)
    if norm is not None and side.config.privacy.dp != "none":
        # Here the longest honest update is known, and no median is needed.
        bounds = [_private_bound(side.config, norm, start) for start in received]
    checked = list(read)
    for place, length, bound in zip(places, norms, bounds, strict=True):
        fault = f"expected an update of norm {bound:.3g} at most, found {length:.3g}"
        # Why not `>`: a norm that is NaN is refused as well.
        checked[place] = replace(read[place][0], norm=length), "" if length <= bound else fault
    return checked


def _private_bound(config: RunConfig, norm: float, start: Mapping[str, Any]) -> float:
    """Return the largest norm of an update that was clipped to C and noised as the run says.

    A thousandth is left for rounding: of the update in few bits, and of the model to float32.
    """
    if config.privacy.dp == "central":
        return 1.001 * norm + 1e-5 * _length(start)
    entries = sum(t.numel() for t in start.values() if t.is_floating_point())
    return 1.001 * update_bound(config, norm) * sqrt(entries)


def _length(model: Mapping[str, Any]) -> float:
    return update_norm(model, {name: t.new_zeros(()) for name, t in model.items()})


def read_upload(
    reply: Message, client: int | None, side: ServerSide, start: State
) -> tuple[Upload, str]:
    """Return the upload of a reply as a model, and what is wrong with it; "" where nothing is.

    A rounded update is added to the model that its client received. Under masks the sum has been
    decoded already.
    """
    precision, upload = side.config.upload_precision, messages.upload_of(reply, client)
    expected = side.expected(start)
    # Masked steps are decoded where the sum is.
    if precision == FLOAT32 or side.config.privacy.secure_aggregation:
        return upload, model_fault(upload.state, expected)
    scales = messages.scales_of(reply)
    fault = model_fault(upload.state, expected_types(expected, precision))
    if fault := fault or scales_fault(scales, expected, precision):
        return upload, fault
    # Why (decision 14): -128 has no opposite, and no honest client sends it.
    steps = [t.flatten() for t in upload.state.values() if t.dtype == torch.int8]
    if steps and bool((torch.cat(steps) == -128).any()):
        return upload, "expected steps from -127 to 127, found -128"
    # The change is against the model that this client received, which the method may choose.
    received = start if client is None else side.model_for(client, start)
    floats = {name: t for name, t in upload.state.items() if expected[name].is_floating_point()}
    update = dequantise(Quantised(floats, scales))
    state = {
        name: (received[name].double() + update[name]).to(received[name].dtype)
        if name in update
        else tensor
        for name, tensor in upload.state.items()
    }
    # Again: a step and a scale that are finite may have a product that is not.
    return replace(upload, state=state), model_fault(state, expected)


def _sender(client: int | None) -> str:
    return "all clients together" if client is None else f"client {client}"
