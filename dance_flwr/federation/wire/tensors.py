"""Convert state dicts and arrays to Flower's ArrayRecords and back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_TYPES = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}
# Bounds of what a shape may make a reader allocate, far beyond any model.
_MAX_DIMENSIONS, _MAX_SIZE = 8, 2**40


def arrays_of(state: Mapping[str, Tensor]) -> ArrayRecord:
    """Return a model's state dict as an ArrayRecord, on the CPU."""
    return _record({name: array_of(tensor) for name, tensor in state.items()})


def _record(arrays: Mapping[str, Array]) -> ArrayRecord:
    record = ArrayRecord()
    record.update(arrays)  # its constructor makes each array a second time
    return record


def array_of(tensor: Tensor) -> Array:
    """Return the same bytes as Flower's `Array(tensor)`."""
    return array_from(tensor.detach().cpu().numpy())


def array_from(array: NDArray[Any]) -> Array:
    """Return the same as Flower's `Array(array)`, in C order.

    Flower's own grows a buffer, which is ten times slower at 16 MB.
    """
    array = array if array.flags.c_contiguous else array.copy(order="C")
    kind, shape = _name_of(array.dtype), array.shape
    data = b"".join((header_of(kind, shape), array.data))
    return Array(dtype=kind, shape=shape, stype="numpy.ndarray", data=data)


@lru_cache  # NumPy composes it anew
def _name_of(kind: np.dtype[Any]) -> str:
    return str(kind)


def state_of(arrays: ArrayRecord) -> dict[str, Tensor]:
    """Return an ArrayRecord as a state dict."""
    import torch

    return {name: torch.from_numpy(_copy_of(array)) for name, array in arrays.items()}


def numpy_of(arrays: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return an ArrayRecord as NumPy arrays by name."""
    return {name: _copy_of(array) for name, array in arrays.items()}


def array_fault(array: Array) -> str:
    """Return the error in this array, or "" if it is valid.

    Its bytes must be the header that `array_of` writes for its type and shape, and their number of
    values. Nothing is parsed or allocated before: any other header is refused.
    """
    if array.stype != "numpy.ndarray" or array.dtype not in _TYPES:
        return f"expected an array of numbers, found {array.stype[:40]} of {array.dtype[:40]}"
    shape = tuple(array.shape)
    if len(shape) > _MAX_DIMENSIONS or any(not 0 <= size <= _MAX_SIZE for size in shape):
        return f"expected a shape of at most {_MAX_DIMENSIONS} dimensions, found {str(shape)[:80]}"
    header = header_of(array.dtype, shape)
    size = len(header) + np.dtype(array.dtype).itemsize * prod(shape)
    if len(array.data) != size or not array.data.startswith(header):
        return f"expected {size} bytes of {array.dtype} {shape}, found other bytes"
    return ""


@lru_cache(maxsize=4096)  # the messages of a run have the same few
def header_of(kind: str, shape: tuple[int, ...]) -> bytes:
    """Return NumPy's header of an array of this type and shape."""
    header = BytesIO()
    described = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(header, described)
    return header.getvalue()


def _copy_of(array: Array) -> NDArray[Any]:
    """Return the same as Flower's `array.numpy()`.

    NumPy parses a header as Python code, which takes longer than copying a small array. A header
    that `array_of` writes for this type and shape needs no parsing.
    """
    with suppress(TypeError, ValueError):  # not written by `array_of`
        kind, shape = np.dtype(array.dtype), tuple(array.shape)
        header, data = header_of(array.dtype, shape), array.data
        size, values = len(header), kind.itemsize * prod(shape)
        if data.startswith(header) and len(data) == size + values and values:
            # Copied, as the message owns its bytes and torch needs writable memory.
            return np.frombuffer(data, kind, offset=size).reshape(shape).copy()
    return array.numpy()


def record_of(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return NumPy arrays as an ArrayRecord; the inverse of `numpy_of`."""
    return _record({name: array_from(array) for name, array in arrays.items()})


def in_types_of(start: Mapping[str, Tensor], arrays: ArrayRecord) -> ArrayRecord:
    """Return the model with the dtypes of `start`.

    Flower's FedAdam returns float64 for float32, which doubles the bytes.
    """
    if all(str(start[name].dtype) == f"torch.{array.dtype}" for name, array in arrays.items()):
        return arrays
    model = state_of(arrays)
    return arrays_of({name: tensor.to(start[name].dtype) for name, tensor in model.items()})
