"""Sums of model updates in fixed point: the same to the last bit in any order of the clients.

An update is written as s * (omega - omega_0) / R, with s the client's share of all weights and R
the bound of an update, and rounded to a multiple of 2 / q. Such numbers add up without rounding,
so a weighted mean depends neither on the order in which clients answer nor on whether secure
aggregation (`federation.secagg`) adds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]


def levels_for(clients: int) -> int:
    """Return q = 2^(31 - bits of M): the most levels that keep a sum over M clients below 2^31."""
    # Why (decision 8): sums of multiples of one step are exact in any order, hence masks change no
    # bit of the model. With 5 clients, a step is 2^-27 of the bound.
    return int(2 ** (31 - max(clients, 1).bit_length()))


def to_steps(update: Vector, levels: int) -> Integers:
    """Return an update in steps of 2 / q, rounded to the nearest."""
    # Why (decision 14): nearest and not stochastic, which has up to twice the error.
    steps: Integers = np.rint(update * (levels / 2)).astype(np.int64)
    return steps


def to_grid(vector: Vector, levels: int) -> Vector:
    """Round to the nearest multiple of 2 / q, exact in float64 up to 2^53 / q."""
    rounded: Vector = np.rint(vector * (levels / 2)) / (levels / 2)
    return rounded


def encode_update(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], share: float, bound: float
) -> Vector:
    """Return s * (omega - omega_0) / R as a flat float64 vector, in the order of `start`.

    The values are not bounded.

    Parameters
    ----------
    share : s, in (0, 1]
    bound : R, the largest |omega - omega_0| that may occur
    """
    # Imported by the function that needs it: the process of a client in most stages of secure
    # aggregation imports this module, but has no use for torch, which takes seconds to load.
    import torch

    # float64: a float32 has 24 significant bits, the grid up to 31.
    parts = [
        (state[name].detach().cpu().double() - start[name].cpu().double()).flatten()
        for name in start
    ]
    update = torch.cat(parts).numpy()
    return share * update / bound


def decode_update(
    total: Vector, start: Mapping[str, Tensor], shares: float, bound: float
) -> dict[str, Tensor]:
    """Return omega_0 + (sum of s * (omega - omega_0)) / (sum of s), in the types of `start`.

    Parameters
    ----------
    total : sum of the clients' `encode_update`, on the grid; later entries are ignored
    shares : sum of s over the clients in the sum
    """
    import torch

    state, place = {}, 0
    for name, tensor in start.items():
        part = torch.from_numpy(total[place : place + tensor.numel()] * (bound / shares)).view(
            tensor.shape
        )
        value = tensor.cpu().double() + part
        # Counters among the buffers stay integers.
        state[name] = (value if tensor.is_floating_point() else value.round()).to(tensor.dtype)
        place += tensor.numel()
    return state
