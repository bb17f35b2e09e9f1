"""Validation of uploads: each function returns what is wrong, in words, or ""."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

ExpectedShapes = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


def model_fault(model: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> str:
    """Return a fault of an uploaded model: names, shapes or types differ, or it is not finite.

    Parameters
    ----------
    start : the model that the round started from
    """
    if different := sorted(model.keys() ^ start.keys()):
        return (
            f"expected the {len(start)} tensors of the global model, found others or none: "
            f"{', '.join(different)}"
        )
    for name, tensor in model.items():
        if tensor.shape != start[name].shape:
            return (
                f"expected {name} of shape {tuple(start[name].shape)}, found {tuple(tensor.shape)}"
            )
        if tensor.dtype != start[name].dtype:
            return f"expected {name} of type {start[name].dtype}, found {tensor.dtype}"
        if tensor.is_floating_point() and not _finite(tensor):
            return f"expected finite numbers, found NaN or infinity in {name}"
    return ""


def statistics_fault(statistics: Mapping[str, Tensor], names: Sequence[str]) -> str:
    """Return a fault of the statistics beside a model: names differ, or they are not finite."""
    if sorted(statistics) != sorted(names):
        return f"expected the statistics {sorted(names)}, found {sorted(statistics)}"
    broken = [name for name, tensor in statistics.items() if not bool(tensor.isfinite().all())]
    return f"expected finite numbers, found NaN or infinity in {broken[0]}" if broken else ""


def shapes_fault(tensors: Mapping[str, Tensor], expected: ExpectedShapes) -> str:
    """Return the first tensor whose shape or type is not the expected one."""
    for name, (kind, shape) in expected.items():
        tensor = tensors[name]
        if (tensor.dtype, tuple(tensor.shape)) != (kind, shape):
            return (
                f"expected {name} of {kind} and shape {shape}, found {tensor.dtype} and "
                f"{tuple(tensor.shape)}"
            )
    return ""


def _finite(tensor: Tensor) -> bool:
    """Whether all entries are finite.

    A finite sum proves it at a quarter of the cost; the sum of large entries may overflow.
    """
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())
