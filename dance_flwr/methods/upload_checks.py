"""Validation of uploads: each function returns a description of a fault, or "" if there is none."""

from collections.abc import Mapping, Sequence
from math import isfinite

import torch
from torch import Tensor

_LARGEST = 2.0**31  # of a statistic: of counts of nodes, and far beyond any mean or gradient


def model_fault(model: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> str:
    """Return a fault of an uploaded model: other names, shapes or types, or numbers not finite.

    Parameters
    ----------
    start : the model that the round started from
    """
    # Names, then shapes, types and numbers: the first fault often explains those after it.
    if different := sorted(model.keys() ^ start.keys()):
        return (
            f"expected the {len(start)} tensors of the global model, found others or none: "
            # Cut, as names come from a client and the line goes to a log.
            f"{', '.join(different)[:200]}"
        )
    for name, tensor in model.items():
        if tensor.shape != start[name].shape:
            return (
                f"expected {name} of shape {tuple(start[name].shape)}, found {tuple(tensor.shape)}"
            )
        if tensor.dtype != start[name].dtype:
            return f"expected {name} of type {start[name].dtype}, found {tensor.dtype}"
        # A finite sum proves it at a quarter of the cost; a sum of large entries may overflow.
        finite = not tensor.is_floating_point() or isfinite(tensor.sum())
        if not finite and not bool(torch.isfinite(tensor).all()):
            return f"expected finite numbers, found NaN or infinity in {name}"
    return ""


def statistics_fault(statistics: Mapping[str, Tensor], names: Sequence[str]) -> str:
    """Return a fault of the statistics beside a model: other names, or numbers not finite."""
    if sorted(statistics) != sorted(names):
        return f"expected the statistics {sorted(names)}, found {str(sorted(statistics))[:200]}"
    broken = [name for name, tensor in statistics.items() if not bool(tensor.isfinite().all())]
    if broken:
        return f"expected finite numbers, found NaN or infinity in {broken[0]}"
    # Sums over clients, and their squares, must stay finite in float32.
    huge = [name for name, t in statistics.items() if bool((t.double().abs() > _LARGEST).any())]
    return f"expected numbers up to {_LARGEST:g}, found larger ones in {huge[0]}" if huge else ""


def update_norm(model: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """Return || omega - omega_0 || over all float entries, in float64."""
    names = [name for name, tensor in start.items() if tensor.is_floating_point()]
    if not names:
        return 0.0
    # Why in one call for all tensors (decision 31): a model of DANCE has 18 of them.
    change = torch._foreach_sub([model[name] for name in names], [start[name] for name in names])
    # float64: squares of large float32 entries would overflow.
    lengths = torch._foreach_norm(change, 2, torch.float64)
    return float(torch.linalg.vector_norm(torch.stack(lengths)))
