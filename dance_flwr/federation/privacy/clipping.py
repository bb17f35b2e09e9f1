"""Clip a model update to a norm."""

from collections.abc import Mapping
from math import isfinite, sqrt

from torch import Tensor

State = dict[str, Tensor]


def update_of(state: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> State:
    """Return D = omega - omega_0, in float64 on the CPU."""
    return {
        name: state[name].detach().cpu().double() - tensor.cpu().double()
        for name, tensor in start.items()
    }


def clip(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], norm: float
) -> tuple[State, bool]:
    """Return (omega_0 + D * min(1, C / ||D||), whether it was clipped) with D = omega - omega_0.

    D spans all float entries, scalars included; a zero update stays zero. Integer buffers, which
    noise cannot hide, stay those of omega_0. If the norm is not finite, D = 0.

    Parameters
    ----------
    norm : C
    """
    change, was_clipped = clipped_update(state, start, norm)
    return updated(start, change), was_clipped


def updated(start: Mapping[str, Tensor], change: Mapping[str, Tensor]) -> State:
    """Return omega_0 + D, rounded once to the types of omega_0; D holds its float entries."""
    new = {
        name: (start[name].cpu().double() + part).to(start[name].dtype)
        for name, part in change.items()
    }
    return {name: new.get(name, start[name].cpu()) for name in start}


def clipped_update(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], norm: float
) -> tuple[State, bool]:
    """Return (D * min(1, C / ||D||) of the float entries in float64, whether it was clipped)."""
    update = update_of(state, start)
    change = {k: part for k, part in update.items() if start[k].is_floating_point()}
    # In float64, as float32 loses an update of large weights.
    length = sqrt(sum(float(part.square().sum()) for part in change.values()))
    # 0 if not finite, as nan_to_num would leave huge values.
    factor = 0.0 if not isfinite(length) else min(1.0, norm / length) if length else 1.0
    return {name: factor * part.nan_to_num() for name, part in change.items()}, factor < 1
