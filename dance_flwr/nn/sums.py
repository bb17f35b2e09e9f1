"""Sums over rows and at indices, in an order that is the same every time on every device.

On CUDA `index_add_` adds in an order that changes from run to run; sorted segments have one.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

HOST = torch.device("cpu")


def sums_of_rows(values: Float[Tensor, "E *d"], ptr: Int64[Tensor, "p"]) -> Float[Tensor, "m *d"]:
    """Return the sum of the values of each row; [E, ...] -> [m, ...], row i at ptr[i]:ptr[i + 1].

    Examples
    --------
    >>> sums_of_rows(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2, 3]))
    tensor([3., 0., 4.])
    """
    if values.device == HOST:
        return sums_at(values, torch.repeat_interleave(ptr.diff()), ptr.numel() - 1)
    return torch.segment_reduce(values, "sum", offsets=ptr, unsafe=True)


def sums_at(
    values: Float[Tensor, "E *d"], index: Int64[Tensor, "E"], size: int
) -> Float[Tensor, "m *d"]:
    """Return the sum of the values at each index from 0 to size - 1; [E, ...] -> [size, ...]."""
    if values.device == HOST:
        return values.new_zeros(size, *values.shape[1:]).index_add_(0, index, values)
    ordered, order = torch.sort(index, stable=True)
    ptr = torch.searchsorted(ordered, torch.arange(size + 1, device=index.device))
    return sums_of_rows(values[order], ptr)
