"""The mechanisms of differential privacy on one model state: clipping and Gaussian noise."""

from collections.abc import Mapping
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from dance_flwr.federation.privacy.noise import NoiseStream

State = dict[str, Tensor]


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
    change = {
        k: state[k].detach().cpu().double() - v.cpu().double()
        for k, v in start.items()
        if v.is_floating_point()
    }
    # In float64: where a server sends large weights, float32 would lose the update itself.
    length = sqrt(sum(float(part.square().sum()) for part in change.values()))
    # A norm that is not finite has no multiple within C, and nan_to_num must not leave a huge one.
    factor = 0.0 if not np.isfinite(length) else min(1.0, norm / length) if length else 1.0
    return {name: factor * part.nan_to_num() for name, part in change.items()}, factor < 1


def add_noise(state: Mapping[str, Tensor], deviation: float, draw: NoiseStream) -> State:
    """Add independent Gaussian noise of this standard deviation to every float entry."""
    return {
        name: tensor
        + torch.from_numpy(deviation * draw.normal(tensor.numel()))
        .view(tensor.shape)
        .to(tensor.dtype)
        # Integer buffers have no noise: `clip` leaves those of the model that was received.
        if tensor.is_floating_point()
        else tensor
        for name, tensor in state.items()
    }
