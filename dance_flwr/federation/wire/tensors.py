"""Convert state dicts and arrays to Flower's ArrayRecords and back."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def arrays_of(state: Mapping[str, Tensor]) -> ArrayRecord:
    """Return a model's state dict as an ArrayRecord, on the CPU."""
    return ArrayRecord({name: array_of(tensor) for name, tensor in state.items()})


def array_of(tensor: Tensor) -> Array:
    """Return what Flower's `Array(tensor)` is, byte for byte.

    Flower's own grows a buffer, which is ten times slower at 16 MB.
    """
    array, header = tensor.detach().cpu().numpy(), BytesIO()
    array = array if array.flags.c_contiguous else array.copy(order="C")
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(array))
    data = b"".join((header.getvalue(), array.reshape(-1).view("u1").data))
    return Array(dtype=str(array.dtype), shape=tuple(array.shape), stype="numpy.ndarray", data=data)


def state_of(arrays: ArrayRecord) -> dict[str, Tensor]:
    """Return an ArrayRecord as a state dict."""
    return dict(arrays.to_torch_state_dict())


def numpy_of(arrays: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return an ArrayRecord as NumPy arrays by name."""
    return {name: array.numpy() for name, array in arrays.items()}


def record_of(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return NumPy arrays as an ArrayRecord; the inverse of `numpy_of`."""
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def in_types_of(start: Mapping[str, Tensor], arrays: ArrayRecord) -> ArrayRecord:
    """Return the model with the dtypes of `start`.

    Flower's FedAdam returns float64 for float32, which doubles the bytes.
    """
    model = state_of(arrays)
    return arrays_of({name: tensor.to(start[name].dtype) for name, tensor in model.items()})
