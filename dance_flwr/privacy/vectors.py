"""The vector summed under masks: a model update and integers, all of them integers modulo 2^b.

Flower's SecAgg+ sums float vectors in fixed point; it silently clips to a range and damages 0-d
arrays. So a client sends a single 1-d vector, nothing is clipped, and integers are recovered
exactly:

    [ s * (omega - omega_0) / R * q / 2  ||  digits of the integers ],  s = w / W

with w the client's nodes, W all nodes of the federation, R the bound of an update and q the levels
of the sum. Every entry is rounded to an integer: sums are exact in any order, so a mean is the same
number with and without masks. As the s of all clients sum to at most 1, a sum over M clients is
within q / 2 + M / 2: this, and not M times the range of one client, is what b bits must hold. The
integers (w itself, counts, microseconds) are written as digits of 15 bits or fewer; sums of digits
are sums of integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.config.sections import FLOAT16, FLOAT32, INT8
from dance_flwr.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

VALUE_BITS, DIGIT_BITS = 60, 15
LARGEST = 2**VALUE_BITS - 1
MICRO = 1_000_000
WIDEST = 32  # bits of a masked integer at most
# Steps of a client of mean weight on each side of zero.
_STEPS = {FLOAT16: 2**15 - 1, INT8: 127}

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]


def levels_for(clients: int) -> int:
    """Return q = 2^(31 - bits of M): the most levels that keep a sum over M clients below 2^31."""
    return int(2 ** (31 - max(clients, 1).bit_length()))


@dataclass(frozen=True)
class SumFormat:
    """The integers of a sum.

    Attributes
    ----------
    levels : q; an update of 1 (that is, of R with s = 1) is q / 2 steps
    bits : b; sums are modulo 2^b
    digit_bits : bits of one digit of an integer
    """

    levels: int
    bits: int
    digit_bits: int

    @property
    def offset(self) -> int:
        """Half the range that Flower's quantisation may fill: it stores 31 bits and a sign."""
        return int(2 ** (min(self.bits, WIDEST - 1) - 1))

    @property
    def quantisation(self) -> tuple[float, float, int, int]:
        """Flower's largest weight, clipping range, target range and modulus.

        It multiplies by 1 / largest weight, and stores what is left as it is, plus the offset.
        """
        return 2.0 * self.offset, float(self.offset), 2 * self.offset, 2**self.bits

    @property
    def digits(self) -> int:
        """Digits of an integer of 60 bits."""
        return -(-VALUE_BITS // self.digit_bits)

    def wrap(self, numbers: Integers) -> Integers:
        """Return the numbers modulo 2^b, from -2^(b-1)."""
        half = 1 << (self.bits - 1)
        wrapped: Integers = ((numbers + half) & ((1 << self.bits) - 1)) - half
        return wrapped


def sum_format(clients: int, precision: str) -> SumFormat:
    """Return levels and bits of a sum over M clients.

    float32: `levels_for` levels in 32 bits. Otherwise q = 2 M n with n = 127 (int8) or 32767
    (float16): a client of mean weight, s = 1 / M, has n steps up to R. Bits are the fewest with
    2^(b-1) > q / 2 + M, and digits those whose sum over M clients fits: 11 bits for int8 and 19 for
    float16 with 5 clients.
    """
    if precision == FLOAT32:
        return SumFormat(levels_for(clients), WIDEST, DIGIT_BITS)
    half = min(_STEPS[precision] * clients, 2 ** (WIDEST - 3))
    bits = (half + clients).bit_length() + 1
    return SumFormat(2 * half, bits, min(DIGIT_BITS, (2 ** (bits - 1) // clients).bit_length() - 1))


def shares_needed(clients: int, ratio: float) -> int:
    """Return ceil(ratio * M), but more than half: two disjoint groups must not both unmask."""
    return max(ceil(round(ratio * clients, 9)), clients // 2 + 1)


def to_steps(update: Vector, levels: int, *, toward_zero: bool = False) -> Integers:
    """Return an update in steps of 2 / q, rounded to the nearest or towards zero."""
    steps = update * (levels / 2)
    whole: Integers = (np.trunc(steps) if toward_zero else np.rint(steps)).astype(np.int64)
    return whole


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


def encode_integers(values: Sequence[int], form: SumFormat) -> Integers:
    """Return the digits of m values, lowest first; [m * digits] int64 from 0.

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
    digits = (numbers >> (form.digit_bits * np.arange(form.digits))) & (2**form.digit_bits - 1)
    flat: Integers = digits.ravel()
    return flat


def decode_integers(total: Integers, form: SumFormat) -> list[int]:
    """Return the exact sum of each value over clients.

    Parameters
    ----------
    total : sum of vectors of `encode_integers`
    """
    return [
        sum(int(digit) << (form.digit_bits * place) for place, digit in enumerate(row))
        for row in total.reshape(-1, form.digits)
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
