"""What can be wrong with an upload, in words; "" stands for nothing."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

ExpectedShapes = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


def model_fault(model: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> str:
    """Return what is wrong with an uploaded model: other names, shapes or types, or not finite.

    Parameters
    ----------
    start : the model that the round started from
    """
    other = sorted(model.keys() ^ start.keys())
    if other:
        return (
            f"expected the {len(start)} tensors of the global model, found others or none: "
            f"{', '.join(other)}"
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


def statistics_fault(found: Mapping[str, Tensor], names: Sequence[str]) -> str:
    """Return what is wrong with the statistics beside a model: other names, or not finite."""
    if sorted(found) != sorted(names):
        return f"expected the statistics {sorted(names)}, found {sorted(found)}"
    broken = [name for name, tensor in found.items() if not bool(torch.isfinite(tensor).all())]
    return f"expected finite numbers, found NaN or infinity in {broken[0]}" if broken else ""


def shapes_fault(found: Mapping[str, Tensor], expected: ExpectedShapes) -> str:
    """Return which of these tensors has another shape or type than expected."""
    for name, (kind, shape) in expected.items():
        tensor = found[name]
        if (tensor.dtype, tuple(tensor.shape)) != (kind, shape):
            return (
                f"expected {name} of {kind} and shape {shape}, found {tensor.dtype} and "
                f"{tuple(tensor.shape)}"
            )
    return ""


def _finite(tensor: Tensor) -> bool:
    """Whether all entries are finite.

    A finite sum says so at a quarter of the cost, but large entries may overflow.
    """
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())
