"""A graphics card that is made up: what a client would launch there and wait for, counted on a CPU.

The card is `torch.device("cpu:0")`, the host `torch.device("cpu")`: torch computes the same on both
and holds them for different devices. While it is `counting`, a tensor is of one or the other, as it
would be of CUDA or of the host, and the modes count what CUDA would do:

- a launch: an operation on the card that is no view and allocates no memory alone;
- a wait: an operation after which the host knows a value or a size of the card, or a copy between
  the two in pageable memory;
- a sum without a fixed order: float additions at indices, which are atomic on CUDA, and products
  with sparse matrices, for whose sums cuSPARSE promises no order;
- an alert: what `torch.use_deterministic_algorithms` refuses on CUDA, by torch's documentation;
- a product that CUDA lacks: of matrices of integers;
- a mixture: an operation on tensors of both, which CUDA refuses.

One operation of torch is taken for one kernel, so launches are a lower bound for those of sorts and
scans.
"""

import sys
from collections import Counter
from contextlib import contextmanager
from traceback import extract_stack
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten

from dance_flwr.nn import training

CARD, HOST = torch.device("cpu:0"), torch.device("cpu")

# Their results are as long as their values say, or on the host.
_WAITS = {
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "bincount"),
    *("_unique2", "unique_dim", "unique_consecutive", "isin", "_coalesce", "_linalg_eigh"),
    *("linalg_inv_ex", "_linalg_solve_ex", "_linalg_svd", "linalg_cholesky_ex", "histc"),
    *("to_sparse", "_to_sparse", "_to_sparse_csr", "_to_sparse_coo"),
}
_INDEXED = {"index", "index_put_", "index_put"}  # by masks, whose sizes are not known
_UNORDERED = {
    *("index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce"),
    *("scatter_reduce_", "index_put_", "embedding_dense_backward", "put_"),
}
# `index_add`, `index_put_` and `scatter_add` of one dimension have another implementation there.
_ALERTS = {"histc", "kthvalue", "put_", "_scatter_reduce_two", "grid_sampler_2d", "median"}
_PRODUCTS = {"mm", "mv", "addmv", "addmm", "bmm", "dot", "baddbmm"}
_NO_KERNELS = {
    *("empty", "empty_like", "empty_strided", "new_empty", "lift_fresh", "detach", "_unsafe_view"),
    *("_reshape_alias", "alias", "sym_size", "resize_"),
}


class Counts:
    """What was counted, by operation and line of the package.

    Attributes
    ----------
    launches, waits : outside of epochs; epoch_waits : inside
    """

    def __init__(self):
        self.launches, self.waits, self.epoch_waits = Counter(), Counter(), Counter()
        self.unordered, self.alerts = Counter(), Counter()
        self.integer_products, self.mixed = Counter(), Counter()
        self.epochs, self.in_epoch = 0, False

    def wait(self, name):
        (self.epoch_waits if self.in_epoch else self.waits)[_at(name)] += 1

    def launch(self, name):
        if not self.in_epoch:
            self.launches[name] += 1


def _at(name):
    """The name of an operation, with the innermost line of the package and its caller there."""
    lines = [
        f"{frame.filename.split('/dance_flwr/')[1]}:{frame.lineno}"
        for frame in extract_stack()
        if "/dance_flwr/" in frame.filename
    ]
    return f"{name} {' < '.join(reversed(lines[-2:]))}"


@contextmanager
def counting():
    """Yield the `Counts` of what a client computes on the card meanwhile."""
    counts = Counts()
    # An epoch lasts from the removal of old gradients to the end of the step of Adam.
    forget, step, from_numpy = training._forget_gradients, training._adam_step, torch.from_numpy

    def begin(parameters):
        counts.in_epoch = True
        counts.epochs += 1
        forget(parameters)

    def end(*arguments):
        try:
            return step(*arguments)
        finally:
            counts.in_epoch = False

    with (
        _Functions(counts),
        _Operations(counts),
        patch.object(training, "_forget_gradients", begin),
        patch.object(training, "_adam_step", end),
        # Not told to modes, and of the host.
        patch.object(torch, "from_numpy", lambda array: _mark(from_numpy(array), False)),
    ):
        yield counts


# Memory -> whether it is of the card. A parameter is another object than the tensor that it is made
# of, and has the same memory.
_SIDES: dict[int, bool] = {}


def forget_caches():
    """Empty the caches of the package: what a run on the host left there is of neither side."""
    for name, module in list(sys.modules.items()):
        if name.startswith("dance_flwr"):
            for function in vars(module).values():
                if hasattr(function, "cache_clear"):
                    function.cache_clear()
    _SIDES.clear()


def on_card(tensor):
    """Whether a tensor is of the card; one that was made before the counting is."""
    if (known := getattr(tensor, "_of_card", None)) is not None:
        return known
    return _SIDES.get(_memory(tensor), True)


def _memory(tensor):
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def _mark(value, card):
    for tensor in tree_flatten(value)[0]:
        if isinstance(tensor, Tensor):
            tensor._of_card = card
            if memory := _memory(tensor):
                _SIDES[memory] = card
    return value


class _Functions(TorchFunctionMode):
    """Calls that torch answers on a CPU without an operation: devices, copies, lists."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if func == Tensor.device.__get__:
            return CARD if on_card(first) else HOST
        if func is Tensor.cpu or func is Tensor.to:
            device, dtype = _target((*args[1:], *kwargs.values()))
            device = HOST if func is Tensor.cpu else device
            if device == HOST and on_card(first):
                self.counts.wait("to host")
                return _mark(first.detach().clone().to(dtype or first.dtype), False)
            if func is Tensor.cpu:
                return first
            if device == CARD and on_card(first):
                return first if dtype is None else first.to(dtype)
            if device == CARD:
                return func(first, CARD, dtype or first.dtype, copy=True)
        if func is Tensor.tolist and on_card(first):
            self.counts.wait("tolist")
        if func in (Tensor.numpy, Tensor.__array__) and on_card(first):
            raise TypeError("can't convert a tensor of the card to NumPy; use Tensor.cpu() first")
        if func is torch.nn.functional.one_hot and on_card(first):
            # torch makes the zeros on the device of a CPU, and checks the labels there alone.
            with _disable_current_modes():
                result = func(*args, **kwargs)
            self.counts.launch("one_hot")
            return _mark(result, True)
        if func in (torch.tensor, Tensor.new_tensor):
            result = func(*args, **kwargs)
            card = kwargs.get("device") == CARD or (func is Tensor.new_tensor and on_card(first))
            if card:
                self.counts.wait("to card")
            return _mark(result, card)
        return func(*args, **kwargs)


def _target(values):
    """The device and the type that `Tensor.to` is asked for; None = it keeps its own."""
    device = dtype = None
    for value in values:
        if isinstance(value, Tensor):
            return CARD if on_card(value) else HOST, value.dtype
        if isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, str | torch.device):
            device = torch.device(value)
    return device, dtype


class _Operations(TorchDispatchMode):
    """Operations, after autograd and after what torch composes of others."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func._schema.name.split("::")[1]
        tensors = [a for a in tree_flatten((args, kwargs))[0] if isinstance(a, Tensor)]
        card = self._is_card(name, tensors, kwargs)
        if card:
            self._count(func, name, args, tensors, kwargs)
        result = func(*args, **kwargs)
        # Numbers are of the host already, and an operation in place leaves its tensor where it is.
        in_place = name.endswith("_") and not name.endswith("__")  # as in __rshift__
        if not (in_place and tensors):
            _mark(result, card)
        return result

    def _is_card(self, name, tensors, kwargs):
        device = kwargs.get("device")
        if name == "_to_copy" and device is not None:
            return device == CARD or on_card(tensors[0])
        if name == "copy_":
            return on_card(tensors[0]) or on_card(tensors[1])
        if name == "lift_fresh":
            return hasattr(tensors[0], "_of_card") and on_card(tensors[0])
        return any(map(on_card, tensors)) if tensors else device == CARD

    def _count(self, func, name, args, tensors, kwargs):
        counts = self.counts
        sides = {on_card(t) for t in tensors if t.dim() or name in ("copy_", "_to_copy")}
        to_card = name == "_to_copy" and kwargs.get("device") == CARD and False in sides
        if to_card or (name == "copy_" and len(sides) == 2):
            counts.wait("to card")
        elif len(sides) == 2 and name in _INDEXED:  # indices are moved first
            counts.wait("indices to card")
        elif len(sides) == 2:
            counts.mixed[_at(name)] += 1
        masks = name in _INDEXED and any(
            isinstance(i, Tensor) and i.dtype == torch.bool for i in args[1]
        )
        unsized = name == "repeat_interleave" and kwargs.get("output_size") is None
        if name in _WAITS or masks or unsized:
            counts.wait(name)
        floats = any(t.is_floating_point() for t in tensors)
        # Integer sums are exact in any order; `index_put_` adds only where it accumulates.
        adds = name != "index_put_" or (len(args) > 3 and args[3]) or kwargs.get("accumulate")
        extremes = name.startswith("scatter_reduce") and args[4:5] in (["amax"], ("amax",))
        sparse = name in _PRODUCTS and any(t.layout == torch.sparse_csr for t in tensors)
        if sparse or (name in _UNORDERED and floats and adds and not extremes):
            counts.unordered[_at(name)] += 1
        weighed = name == "bincount" and len(tensors) > 1
        wide = name in ("scatter_add", "scatter_add_") and tensors[0].dim() > 1
        if name in _ALERTS or (floats and (name in ("cumsum", "cumprod") or weighed or wide)):
            counts.alerts[_at(name)] += 1
        if name in _PRODUCTS and not floats:
            counts.integer_products[_at(name)] += 1
        # A view shares memory that it does not write.
        returned = [r.alias_info for r in func._schema.returns if r.alias_info is not None]
        if name not in _NO_KERNELS and all(alias.is_write for alias in returned):
            counts.launch(name)
