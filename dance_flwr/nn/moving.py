"""Tensors between a device and the host: all of a structure in one copy."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dance_flwr.nn.propagation import csr
from dance_flwr.nn.sums import HOST as HOST

T = TypeVar("T")

_CONTENTS: "WeakKeyDictionary[Tensor, bytes]" = WeakTensorKeyDictionary()  # type: ignore[assignment]


def moved(structure: T, device: torch.device) -> T:
    """Return tuples, lists, dicts and dataclasses of tensors with the tensors on a device.

    All tensors that are elsewhere travel as one buffer of bytes: a copy from or to a GPU waits for
    all that was launched before it, whatever its size. On the host of the tensors this is the
    structure itself, and nothing is copied.
    """
    tensors = [tensor.detach() for tensor in tensors_of(structure) if tensor.device != device]
    if not tensors:
        return structure
    # The widest types first, so that each tensor starts at a multiple of its own width.
    order = sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size())
    parts = [tensors[i].contiguous().view(-1).view(torch.uint8) for i in order]
    arrived = torch.split(torch.cat(parts).to(device), [part.numel() for part in parts])
    copies = {
        i: part.view(tensors[i].dtype).view(tensors[i].shape)
        for i, part in zip(order, arrived, strict=True)
    }
    numbers = iter(range(len(tensors)))
    return mapped(structure, lambda t: t if t.device == device else copies[next(numbers)])  # type: ignore[no-any-return]


def tensors_of(structure: Any) -> list[Tensor]:
    """Return the tensors of tuples, lists, dicts and dataclasses, in their order."""
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    mapped(structure, collect)
    return tensors


def mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return a structure as `moved` takes it, with the function's results for its tensors."""
    if isinstance(value, Tensor) and value.layout == torch.sparse_csr:
        indices = value.crow_indices(), value.col_indices()
        ptr, cols, values = map(function, (*indices, value.values()))
        return value if values.device == value.device else csr(ptr, cols, values, value.shape)  # type: ignore[arg-type]
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(mapped(item, function) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {item.name: getattr(value, item.name) for item in fields(value)}
        return replace(value, **{name: mapped(part, function) for name, part in parts.items()})
    return value


def content(tensor: Tensor) -> bytes:
    """Return the bytes of a tensor that nothing changes, read from its device once."""
    if (found := _CONTENTS.get(tensor)) is None:
        found = _CONTENTS[tensor] = tensor.cpu().numpy().tobytes()
    return found
