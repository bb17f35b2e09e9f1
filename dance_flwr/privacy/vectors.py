"""The vector summed under masks: a model update and integers as floats in [-1, 1].

Flower's SecAgg+ sums float vectors in fixed point; it silently clips to a range and damages 0-d
arrays. So a client sends a single 1-d vector, nothing is clipped, and integers are recovered
exactly:

    [ s * (omega - omega_0) / R  ||  digits of the integers ],  s = w / W

with w the client's nodes, W all nodes of the federation and R the bound of an update. Every entry
is rounded to a multiple of 2 / q, q the levels of the protocol: sums of such multiples are exact in
any order, so a mean is the same number with and without masks. Integers (w itself, counts,
microseconds) are written as four digits of 15 bits, each as d / 2^14 - 1; sums of digits are sums
of integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

DIGITS, DIGIT_BITS = 4, 15
LARGEST = 2 ** (DIGITS * DIGIT_BITS) - 1
MICRO = 1_000_000

Vector = NDArray[np.float64]


def levels_for(clients: int) -> int:
    """Return q = 2^(31 - bits of M): the most levels that keep a sum over M clients below 2^31."""
    return int(2 ** (31 - max(clients, 1).bit_length()))


def shares_needed(clients: int, ratio: float) -> int:
    """Return ceil(ratio * M), but more than half: two disjoint groups must not both unmask."""
    return max(ceil(round(ratio * clients, 9)), clients // 2 + 1)


def to_grid(vector: Vector, levels: int) -> Vector:
    """Round to the nearest multiple of 2 / q, exact in float64 up to 2^53 / q."""
    rounded: Vector = np.rint(vector * (levels / 2)) / (levels / 2)
    return rounded


def encode_update(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], share: float, bound: float
) -> Vector:
    """Return s * (omega - omega_0) / R as a flat float64 vector, in the order of `start`.

    The values are not bounded; see `check_bounded`.

    Parameters
    ----------
    share : s, in (0, 1]
    bound : R, the largest |omega - omega_0| that may occur
    """
    import torch

    parts = [
        (state[name].detach().cpu().double() - start[name].cpu().double()).flatten()
        for name in start
    ]
    update = torch.cat(parts).numpy()
    return share * update / bound


def check_bounded(update: Vector, share: float, bound: float) -> None:
    """Refuse an update that the protocol would clip.

    Raises
    ------
    UserError : an entry exceeds the bound or is not finite; clipping would silently change the
        mean
    """
    largest = float(np.abs(update).max(initial=0.0)) * bound / share
    if not largest <= bound:
        raise UserError(
            f"secure aggregation: expected updates within +-{bound:g} per round, found "
            f"{largest:.3g}; raise privacy.update-range, or lower learning-rate or local-epochs"
        )


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
        state[name] = (value if tensor.is_floating_point() else value.round()).to(tensor.dtype)
        place += tensor.numel()
    return state


def encode_integers(values: Sequence[int]) -> Vector:
    """Return the digits of m values, lowest first; [4 m] float64 in [-1, 1).

    Raises
    ------
    ValueError : a value is negative or has more than 60 bits
    """
    wrong = [value for value in values if not 0 <= value <= LARGEST]
    if wrong:
        raise ValueError(
            f"expected integers from 0 to 2^60 - 1 under secure aggregation, found {wrong[0]}"
        )
    numbers = np.array(values, dtype=np.int64)[:, None]
    digits = (numbers >> (DIGIT_BITS * np.arange(DIGITS))) & (2**DIGIT_BITS - 1)
    flat: Vector = (digits / 2 ** (DIGIT_BITS - 1) - 1).ravel()
    return flat


def decode_integers(total: Vector, clients: int) -> list[int]:
    """Return the exact sum of each value over clients.

    Parameters
    ----------
    total : sum of `clients` vectors of `encode_integers`
    """
    digits = np.rint((total + clients) * 2 ** (DIGIT_BITS - 1)).astype(np.int64).reshape(-1, DIGITS)
    return [
        sum(int(digit) << (DIGIT_BITS * place) for place, digit in enumerate(row)) for row in digits
    ]


@dataclass(frozen=True)
class MetricLayout:
    """The layout of a reply's metrics as integers.

    Names are the same at every client and reveal nothing of its data; values are masked.

    Attributes
    ----------
    names : metrics, sorted
    lengths : number of values of each; 0 = a scalar
    micro : which are stored in millionths
    """

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    micro: tuple[bool, ...]

    @classmethod
    def of(cls, metrics: Mapping[str, int | float | Sequence[int]]) -> MetricLayout:
        """Return the layout of these metrics, sorted by name."""
        names = tuple(sorted(metrics))
        lengths = tuple(
            len(value) if isinstance(value, list) else 0
            for value in (metrics[name] for name in names)
        )
        return cls(names, lengths, tuple(isinstance(metrics[name], float) for name in names))

    def pack(self, metrics: Mapping[str, int | float | Sequence[int]]) -> list[int]:
        """Return the values as integers, in the order of the names."""
        values: list[int] = []
        for name, micro in zip(self.names, self.micro, strict=True):
            value = metrics[name]
            every: list[Any] = list(value) if isinstance(value, list) else [value]
            values += [round(number * MICRO) if micro else int(number) for number in every]
        return values

    def unpack(self, values: Sequence[int]) -> dict[str, int | float | list[int]]:
        """Return the metrics of these integers."""
        metrics: dict[str, int | float | list[int]] = {}
        place = 0
        for name, length, micro in zip(self.names, self.lengths, self.micro, strict=True):
            part = list(values[place : place + max(length, 1)])
            place += len(part)
            metrics[name] = part if length else part[0] / MICRO if micro else part[0]
        return metrics
