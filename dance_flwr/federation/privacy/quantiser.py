"""Model updates in few bits: Q(D), the change of a model rounded to float16 or int8."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.config.sections import FLOAT16, INT8
from dance_flwr.federation.privacy.clipping import State

# Why (decision 14): symmetric, so that a sign never changes a step's size; -128 is not used.
STEPS = 127
_MAX_HALF = float(np.finfo(np.float16).max)
_TYPES = {FLOAT16: torch.float16, INT8: torch.int8}


@dataclass(frozen=True)
class Quantised:
    """An update in few bits.

    Attributes
    ----------
    tensors : float16 or int8, in the shapes of the update
    scales : [f] float32, under int8 the step of each of the f tensors; otherwise empty
    """

    tensors: State
    scales: Tensor = field(default_factory=lambda: torch.zeros(0))


def quantise(
    update: Mapping[str, Tensor], precision: str, *, toward_zero: bool = False
) -> Quantised:
    """Return Q(y): float16, or int8 z = round(y / s) with s = max |y| / 127 of each tensor.

    The error of an entry is at most s / 2 under int8, and 2^-11 |y| + 2^-25 under float16. Numbers
    beyond the range of float16 become its largest. Values that are not finite stay so, under int8
    as a scale of NaN.

    Parameters
    ----------
    update : y, float64
    toward_zero : round towards zero: no entry grows, and errors are at most twice as large
    """
    if precision == FLOAT16:
        halves = {name: _half(y.numpy(), toward_zero) for name, y in update.items()}
        return Quantised({name: torch.from_numpy(half) for name, half in halves.items()})
    scales, steps = _scales(update), {}
    for (name, y), scale in zip(update.items(), scales.double().tolist(), strict=True):
        z = y / scale if scale > 0 else torch.zeros_like(y)  # of a finite scale: y is finite too
        # Why (decision 14): nearest and not stochastic, which has up to twice the error.
        z = z.trunc_() if toward_zero else z.round_()
        steps[name] = z.clamp_(-STEPS, STEPS).to(torch.int8)
    return Quantised(steps, scales)


def dequantise(sent: Quantised) -> State:
    """Return the update in float64: z * s under int8."""
    tensors = {name: tensor.double() for name, tensor in sent.tensors.items()}
    if not len(sent.scales):
        return tensors
    pairs = zip(tensors.items(), sent.scales.double(), strict=True)
    return {name: tensor * scale for (name, tensor), scale in pairs}


def expected_types(start: Mapping[str, Tensor], precision: str) -> State:
    """Return a model with the names, shapes and types of an upload; integers travel unchanged."""
    kind = _TYPES[precision]
    return {
        name: tensor.to(kind) if tensor.is_floating_point() else tensor
        for name, tensor in start.items()
    }


def scales_fault(scales: Tensor, start: Mapping[str, Tensor], precision: str) -> str:
    """Return the error in the scales of an upload, or "" if they are valid."""
    count = sum(tensor.is_floating_point() for tensor in start.values())
    shape = (count if precision == INT8 else 0,)
    if scales.dtype != torch.float32 or tuple(scales.shape) != shape:
        return (
            f"expected scales of torch.float32 and shape {shape}, found {scales.dtype} and "
            f"{tuple(scales.shape)}"
        )
    # One scale that is not finite makes a whole tensor so.
    if not bool((scales.isfinite() & (scales >= 0)).all()):
        return "expected finite scales from 0, found NaN, infinity or a negative one"
    return ""


def _scales(update: Mapping[str, Tensor]) -> Tensor:
    """Return max |y| / 127 of each tensor, [f] float32.

    It is 0 where that is too small for a normal number, and NaN where an entry is not finite.
    """
    largest = [y.abs().max() if y.numel() else y.new_zeros(()) for y in update.values()]
    scales = (torch.stack(largest) / STEPS).float() if largest else torch.zeros(0)
    # NaN, so that the server refuses an update that is not finite.
    scales = scales.where(scales.isfinite(), torch.nan)
    return scales.where(~(scales < torch.finfo(torch.float32).tiny), 0.0)


def _half(y: NDArray[Any], toward_zero: bool) -> NDArray[Any]:
    """Return the float16 nearest to each entry, or the next one towards zero."""
    # Beyond the largest float16 a conversion gives infinity.
    half = np.asarray(np.clip(y, -_MAX_HALF, _MAX_HALF).astype(np.float16))
    if toward_zero:
        grown = np.abs(half.astype(np.float64)) > np.abs(y)
        half = np.where(grown, np.nextafter(half, np.float16(0)), half)
    return half
