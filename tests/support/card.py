"""A graphics card that is made up: what a client would launch there and wait for, counted on a CPU.

The card is `torch.device("cpu:0")`, the host `torch.device("cpu")`: torch computes the same on both
and holds them for different devices. Within `Card()` a tensor is of one or the other, as it would
be of CUDA or of the host, and the modes count what CUDA would do:

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

from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from traceback import extract_stack
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from dance_flwr.nn import training

CARD, HOST = torch.device("cpu:0"), torch.device("cpu")

# Their results are as long as their values say, or on the host.
_WAITS = {
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "bincount"),
    *("_unique2", "unique_dim", "unique_consecutive", "isin", "_coalesce", "_linalg_eigh"),
    *("linalg_inv_ex", "_linalg_solve_ex", "_linalg_svd", "linalg_cholesky_ex", "histc"),
    "to_sparse",
    *("_to_sparse", "_to_sparse_csr", "_to_sparse_coo"),
}
_UNORDERED = {"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce"}
_UNORDERED |= {"scatter_reduce_", "index_put_", "embedding_dense_backward", "put_"}
# `index_add`, `index_put_` and `scatter_add` of one dimension have another implementation there.
_ALERTS = {"histc", "kthvalue", "put_", "_scatter_reduce_two", "grid_sampler_2d", "median"}
_PRODUCTS = {"mm", "mv", "addmv", "addmm", "bmm", "dot", "baddbmm"}
_NO_KERNELS = {"empty", "empty_like", "empty_strided", "new_empty", "lift_fresh", "detach"}
_NO_KERNELS |= {"_unsafe_view", "_reshape_alias", "alias", "sym_size", "resize_"}


@dataclass
class Counts:
    """What was counted, by name or by line of the package.

    Attributes
    ----------
    launches, waits : outside of epochs; epoch_launches, epoch_waits : inside
    unordered, alerts, integer_products, mixed : by operation and line
    """

    launches: Counter = field(default_factory=Counter)
    waits: Counter = field(default_factory=Counter)
    epoch_launches: Counter = field(default_factory=Counter)
    epoch_waits: Counter = field(default_factory=Counter)
    unordered: Counter = field(default_factory=Counter)
    alerts: Counter = field(default_factory=Counter)
    integer_products: Counter = field(default_factory=Counter)
    mixed: Counter = field(default_factory=Counter)
    epochs: int = 0
    bytes_moved: int = 0


def _line() -> str:
    """The innermost line of the package, and its caller there."""
    lines = [
        f"{frame.filename.split('/dance_flwr/')[1]}:{frame.lineno}"
        for frame in extract_stack()
        if "/dance_flwr/" in frame.filename
    ]
    return " < ".join(reversed(lines[-2:])) or "outside"


class Card:
    """Count while a client computes on the card; `with Card() as card: ...`, then `card.counts`."""

    def __init__(self):
        self.counts, self.in_epoch, self.on = Counts(), False, True

    def __enter__(self):
        self._stack = stack = ExitStack()
        stack.enter_context(_Functions(self))
        stack.enter_context(_Operations(self))
        stack.enter_context(self._epochs())
        # Not told to modes, and of the host.
        from_numpy = torch.from_numpy
        of_host = lambda array: _mark(from_numpy(array), False)  # noqa: E731
        stack.enter_context(patch.object(torch, "from_numpy", of_host))
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    @contextmanager
    def _epochs(self):
        """An epoch lasts from the removal of old gradients to the end of the step of Adam."""
        forget, step = training._forget_gradients, training._adam_step

        def begin(parameters):
            self.in_epoch = True
            self.counts.epochs += 1
            forget(parameters)

        def end(*arguments):
            try:
                return step(*arguments)
            finally:
                self.in_epoch = False

        started = patch.object(training, "_forget_gradients", begin)
        with started, patch.object(training, "_adam_step", end):
            yield

    def wait(self, name, tensor=None):
        where = f"{name} {_line()}"
        (self.counts.epoch_waits if self.in_epoch else self.counts.waits)[where] += 1
        if tensor is not None:
            self.counts.bytes_moved += tensor.numel() * tensor.element_size()

    def launch(self, name):
        (self.counts.epoch_launches if self.in_epoch else self.counts.launches)[name] += 1


# Memory -> whether it is of the card. A parameter is another object than the tensor that it is made
# of, and has the same memory.
_SIDES: dict[int, bool] = {}


def on_card(tensor: Tensor) -> bool:
    """Whether a tensor is of the card; one that was made before the counting is."""
    if (known := getattr(tensor, "_of_card", None)) is not None:
        return known
    return _SIDES.get(_memory(tensor), True)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def _mark(value, card: bool):
    for tensor in tree_flatten(value)[0]:
        if isinstance(tensor, Tensor):
            tensor._of_card = card
            if memory := _memory(tensor):
                _SIDES[memory] = card
    return value


class _Functions(TorchFunctionMode):
    """Calls that torch answers on a CPU without an operation: devices, copies, lists."""

    def __init__(self, card: Card):
        super().__init__()
        self.card = card

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if func == Tensor.device.__get__:
            return CARD if on_card(first) else HOST
        if func is Tensor.cpu or (func is Tensor.to and _target(args, kwargs) == HOST):
            if on_card(first):
                self.card.wait("to host", first)
                result = first.detach().clone()
                dtype = next(
                    (a for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)), None
                )
                return _mark(result if dtype is None else func(result, dtype), False)
            if func is Tensor.cpu:
                return first
        if func is Tensor.to and _target(args, kwargs) == CARD and on_card(first):
            dtype = _dtype(args, kwargs)
            return first if dtype is None else first.to(dtype)
        if func is Tensor.to and _target(args, kwargs) == CARD:
            return first.to(CARD, _dtype(args, kwargs) or first.dtype, copy=True)
        if func is Tensor.tolist and on_card(first):
            self.card.wait("tolist", first)
        if func in (Tensor.numpy, Tensor.__array__) and on_card(first):
            raise TypeError("can't convert a tensor of the card to NumPy; use Tensor.cpu() first")
        if func is torch.nn.functional.one_hot and on_card(first):
            # torch makes the zeros on the device of a CPU, and checks the labels there alone.
            with torch.utils._python_dispatch._disable_current_modes():
                result = func(*args, **kwargs)
            self.card.launch("one_hot")
            return _mark(result, True)
        if func in (torch.tensor, Tensor.new_tensor):
            result = func(*args, **kwargs)
            card = kwargs.get("device") == CARD or (func is Tensor.new_tensor and on_card(first))
            if card:
                self.card.wait("to card", result)
            return _mark(result, card)
        return func(*args, **kwargs)


def _dtype(args, kwargs):
    """The type that `Tensor.to` is asked for; None = it keeps its own."""
    for value in (*args[1:], *kwargs.values()):
        if isinstance(value, torch.dtype):
            return value
        if isinstance(value, Tensor):
            return value.dtype
    return None


def _target(args, kwargs):
    """The device that `Tensor.to` is asked for; None = it keeps its own."""
    for value in (*args[1:], *kwargs.values()):
        if isinstance(value, torch.device):
            return value
        if isinstance(value, Tensor):
            return CARD if on_card(value) else HOST
        if isinstance(value, str):
            return torch.device(value)
    return None


class _Operations(TorchDispatchMode):
    """Operations, after autograd and after what torch composes of others."""

    def __init__(self, card: Card):
        super().__init__()
        self.card = card

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
        sides = {on_card(t) for t in tensors if t.dim() or name in ("copy_", "_to_copy")}
        to_card = name == "_to_copy" and kwargs.get("device") == CARD and False in sides
        if to_card or (name == "copy_" and len(sides) == 2):
            self.card.wait("to card", tensors[-1])
        elif len(sides) == 2:
            if name in ("index", "index_put_", "index_put"):  # indices are moved first
                self.card.wait("indices to card")
            else:
                self.card.counts.mixed[f"{name} {_line()}"] += 1
        masks = name in ("index", "index_put_", "index_put") and any(
            isinstance(i, Tensor) and i.dtype == torch.bool for i in args[1]
        )
        unsized = name == "repeat_interleave" and kwargs.get("output_size") is None
        if name in _WAITS or masks or unsized:
            self.card.wait(name)
        floats = any(t.is_floating_point() for t in tensors)
        # Integer sums are exact in any order; `index_put_` adds only where it accumulates.
        adds = name != "index_put_" or (len(args) > 3 and args[3]) or kwargs.get("accumulate")
        extremes = name.startswith("scatter_reduce") and args[4:5] in (["amax"], ("amax",))
        sparse = name in _PRODUCTS and any(t.layout == torch.sparse_csr for t in tensors)
        if sparse or (name in _UNORDERED and floats and adds and not extremes):
            self.card.counts.unordered[f"{name} {_line()}"] += 1
        weighed = name == "bincount" and len(tensors) > 1
        wide = name in ("scatter_add", "scatter_add_") and tensors[0].dim() > 1
        if name in _ALERTS or (floats and (name in ("cumsum", "cumprod") or weighed or wide)):
            self.card.counts.alerts[f"{name} {_line()}"] += 1
        if name in _PRODUCTS and not floats:
            self.card.counts.integer_products[f"{name} {_line()}"] += 1
        if not _is_view(func) and name not in _NO_KERNELS:
            self.card.launch(name)


def _is_view(func) -> bool:
    """Whether the results of an operation share memory that it does not write."""
    returns = func._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


class CountingApp:
    """A ClientApp whose clients compute on the card; `counts` has the counts of each answer.

    Attributes
    ----------
    counts : (round, kind of message, node) -> `Counts`; rounds from 1
    all : the `Counts` of every answer
    """

    def __init__(self, app):
        self.app, self.counts, self.all = app, {}, []

    def __call__(self, message, context):
        from dance_flwr.federation.client import handlers
        from dance_flwr.federation.wire import keys, messages

        kind = message.metadata.message_type
        with patch.object(handlers, "pick_device", lambda *_: CARD), Card() as card:
            reply = self.app(message, context)
        self.all.append(card.counts)
        if not message.has_content() or kind.partition(".")[0] not in ("train", "evaluate"):
            return reply
        settings = messages.config_of(message)
        if not settings.get(keys.FINAL, False) and keys.ROUND in settings:
            key = settings[keys.ROUND], kind.partition(".")[0], message.metadata.dst_node_id
            self.counts[key] = card.counts
        return reply
