"""Local epochs on a GPU: all of a round are one CUDA graph, captured per shape and replayed.

An epoch of a small graph is some 250 operations of a few microseconds: the host takes longer to
launch each than the GPU to compute it. A graph launches all of them at once.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dance_flwr.config.sections import TrainingConfig
from dance_flwr.nn.moving import mapped, tensors_of
from dance_flwr.nn.training import learning_rate, train_epochs

T = TypeVar("T")

# Why a limit (decision 31): each holds a copy of what a round reads, some megabytes.
_MAX_GRAPHS = 64
_CAPTURED: "OrderedDict[Hashable, CapturedEpochs]" = OrderedDict()


def train_replayed(
    model: nn.Module,
    loss_of: Callable[[T], Tensor],
    inputs: T,
    config: TrainingConfig,
    *,
    round_: int,
) -> float:
    """Minimise `loss_of(inputs)` as `train_epochs` does; on CUDA, by replaying captured epochs.

    Parameters
    ----------
    loss_of : reads the model, and of the round nothing but `inputs`; anything else that it reads
        would be that of the round that was captured. Its gradient is of every parameter, or of the
        same ones in every round
    inputs : a structure of dense tensors, as `moved` takes it; a graph is captured per shape
    """
    tensors = tensors_of(inputs)
    # A hook on a gradient, as FedProx has it, reads the model of its round.
    hooked = any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    if tensors[0].device.type != "cuda" or hooked:
        return train_epochs(model, lambda: loss_of(inputs), config, round_=round_)
    # The epochs refer to their model, whose id is therefore that of no other.
    key = id(model), config, tuple((tensor.shape, tensor.dtype) for tensor in tensors)
    epochs = _CAPTURED.pop(key, None) or CapturedEpochs(model, loss_of, inputs, config)
    _CAPTURED[key] = epochs  # the last, as the one that was used last
    if len(_CAPTURED) > _MAX_GRAPHS:
        _CAPTURED.popitem(last=False)
    return epochs.run(tensors, learning_rate(config, round_))


def forget_captured() -> None:
    """Free the graphs of this process, and their memory."""
    _CAPTURED.clear()
    # The allocator refuses a pool that no graph holds any longer.
    _pool.cache_clear()


@lru_cache(maxsize=1)
def _pool() -> Any:
    return torch.cuda.graph_pool_handle()


class CapturedEpochs:
    """The local epochs of a fresh Adam on inputs of one shape; parameters as of `train_replayed`.

    They are captured as a CUDA graph when they are run a second time: a process that ends with its
    message, as a SuperNode's do, would capture what it never replays. Dropout draws from the
    generator of the device, which a replay advances as epochs would: the same seed gives the same
    bits, whether a round is run, captured or replayed.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_of: Callable[[T], Tensor],
        inputs: T,
        config: TrainingConfig,
    ) -> None:
        static = mapped(inputs, Tensor.clone)  # at addresses that the graph keeps
        self._inputs = tensors_of(static)
        device = self._inputs[0].device
        # Why another stream: a graph is captured beside the default one, and its epochs have to
        # find what the first run has set up.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._model, self._epochs = model, config.local_epochs
        self._loss_of: Callable[[], Tensor] = lambda: loss_of(static)
        self._rate = torch.zeros((), device=device)
        self._optimizer = torch.optim.Adam(
            model.parameters(),
            lr=self._rate,
            weight_decay=config.weight_decay,
            fused=True,
            capturable=True,
        )

    def run(self, inputs: list[Tensor], rate: float) -> float:
        """Train on these inputs; return the last loss."""
        torch._foreach_copy_(self._inputs, inputs)
        self._rate.fill_(rate)
        moments = [value for state in self._optimizer.state.values() for value in state.values()]
        if moments and self._graph is None:
            graph, pool, mode = torch.cuda.CUDAGraph(), _pool(), "thread_local"
            # Why one pool of memory: graphs are replayed one after the other, and each writes all
            # that it reads. Other threads of the process may use the device meanwhile.
            with torch.cuda.graph(graph, pool, self._stream, capture_error_mode=mode):
                torch._foreach_zero_(moments)
                self._train()
            self._graph = graph
        if self._graph is not None:
            self._graph.replay()
        else:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._train()
            torch.cuda.current_stream().wait_stream(self._stream)
        return float(self._loss)

    def _train(self) -> None:
        self._model.train()
        for _ in range(self._epochs):
            self._optimizer.zero_grad()
            loss: Tensor = self._loss_of()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            self._loss = loss.detach()
