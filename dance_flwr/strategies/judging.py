"""Which uploads can be averaged: a broken one is left out and its sender named, or the round ends."""

from collections.abc import Callable, Mapping, Sequence

import torch
from flwr.app import Message
from flwr.serverapp import Grid
from torch import Tensor

from dance_flwr import messages
from dance_flwr.errors import QuorumError
from dance_flwr.strategies.averaging import State
from dance_flwr.strategies.federation import LOG, FederationGrid


def usable(
    replies: Sequence[Message],
    start: Mapping[str, Tensor],
    grid: Grid,
    fewest: int,
    fault_beside: Callable[[Message], str],
) -> list[tuple[Message, State]]:
    """Return the replies whose models can be averaged, each with its model; the others are named in the log.

    Parameters
    ----------
    replies : valid training replies
    start : the global model that the clients started from
    grid : knows who sent a reply
    fewest : clients that a round must end with
    fault_beside : what is wrong with what came beside a model, "" where nothing is

    Raises
    ------
    QuorumError : fewer updates can be used; says whose cannot, and why
    """
    models = [(reply, messages.model_of(reply)) for reply in replies]
    faults = [fault_of(model, start) or fault_beside(reply) for reply, model in models]
    _tell(grid, replies, faults)
    rejected = "; ".join(f"{_sender(grid, r)}: {fault}" for r, fault in zip(replies, faults, strict=True) if fault)
    good = [upload for upload, fault in zip(models, faults, strict=True) if not fault]
    fewest = min(len(replies), fewest)
    if len(good) < fewest:
        raise QuorumError(f"expected at least {fewest} usable updates, found {len(good)}; {rejected}")
    if rejected:
        LOG.error("left out of the mean: %s", rejected)
    return good


def fault_of(model: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> str:
    """Return what is wrong with an uploaded model, "" where nothing is: other names, shapes or types, or not finite."""
    other = sorted(model.keys() ^ start.keys())
    if other:
        return f"expected the {len(start)} tensors of the global model, found others or none: {', '.join(other)}"
    for name, tensor in model.items():
        if tensor.shape != start[name].shape:
            return f"expected {name} of shape {tuple(start[name].shape)}, found {tuple(tensor.shape)}"
        if tensor.dtype != start[name].dtype:
            return f"expected {name} of type {start[name].dtype}, found {tensor.dtype}"
        if tensor.is_floating_point() and not _finite(tensor):
            return f"expected finite numbers, found NaN or infinity in {name}"
    return ""


def _finite(tensor: Tensor) -> bool:
    """Whether all entries are finite; a finite sum says so at a quarter of the cost, but large entries may overflow."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def _tell(grid: Grid, replies: Sequence[Message], faults: Sequence[str]) -> None:
    """Take note of the clients whose uploads cannot be used."""
    for reply, fault in zip(replies, faults, strict=True):
        client = grid.author(reply) if fault and isinstance(grid, FederationGrid) else None
        if client is not None and isinstance(grid, FederationGrid):
            grid.miss("upload_rejected", client, fault)


def _sender(grid: Grid, reply: Message) -> str:
    client = grid.author(reply) if isinstance(grid, FederationGrid) else None
    return "all clients together" if client is None else f"client {client}"
