"""The local training loop that every method shares, and FedProx's proximal term."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from dance_flwr.config.sections import BALANCED, TrainingConfig


def learning_rate(config: TrainingConfig, round_: int) -> float:
    """lr_t = lr * (1 + cos(pi (t - 1) / T)) / 2 under "cosine", lr under "constant"; t from 1."""
    if config.lr_schedule == "constant":
        return config.learning_rate
    # From t - 1: the first round has the full rate, and no round has the rate 0.
    angle = torch.pi * (round_ - 1) / config.rounds
    return config.learning_rate * (1 + float(torch.cos(torch.tensor(angle)))) / 2


def class_weights(labels: Tensor, classes: int, config: TrainingConfig) -> Tensor | None:
    """w_c = n / (C n_c) under `loss-weights` = balanced, [C]; None (all 1) under "none".

    An absent class counts as one node, since pseudo-labels may have it.

    Parameters
    ----------
    labels : [m] int64, training labels of the client, -1 where unknown, n of them known
    classes : C

    Examples
    --------
    >>> from dance_flwr.config.tree import parse
    >>> class_weights(torch.tensor([0, 0, 0, 1, -1]), 2, parse({"loss-weights": "balanced"}))
    tensor([0.6667, 2.0000])
    """
    if config.loss_weights != BALANCED:
        return None
    counts = torch.bincount(labels[labels >= 0], minlength=classes).float().clamp(min=1)
    return counts.sum() / (classes * counts)


def train_epochs(
    model: nn.Module, loss_of: Callable[[], Tensor], config: TrainingConfig, *, round_: int
) -> float:
    """Minimise `loss_of` over full-batch local epochs with a fresh Adam; return the last loss.

    Adam is reset in each round: the moments of an earlier round belong to a model that aggregation
    has replaced.
    """
    parameters = list(model.parameters())
    rate = learning_rate(config, round_)
    moments: list[list[Tensor]] = []
    model.train()
    loss = torch.zeros(())
    for _ in range(config.local_epochs):
        _forget_gradients(parameters)
        loss = loss_of()
        # A client without labelled nodes has a constant loss, and nothing to learn from.
        if not loss.requires_grad:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        _adam_step(parameters, moments, rate, config.weight_decay)
    return float(loss.detach())


def _forget_gradients(parameters: list[nn.Parameter]) -> None:
    # As `zero_grad` of the model, which looks for its parameters in each epoch.
    for parameter in parameters:
        parameter.grad = None


@torch.no_grad()
def _adam_step(
    parameters: list[nn.Parameter], moments: list[list[Tensor]], rate: float, decay: float
) -> None:
    """Step as `torch.optim.Adam(parameters, rate, weight_decay=decay, fused=True)` does.

    Why not that class: its constructor imports the compiler of torch, a second of every process.
    """
    if not moments:
        moments += [[torch.zeros_like(p), torch.zeros_like(p), p.new_zeros(())] for p in parameters]
    states = [
        (p, p.grad, *m) for p, m in zip(parameters, moments, strict=True) if p.grad is not None
    ]
    moved, gradients, means, squares, steps = map(list, zip(*states, strict=True))
    torch._foreach_add_(steps, 1)
    torch._fused_adam_(
        *(moved, gradients, means, squares, [], steps),
        amsgrad=False,
        maximize=False,
        lr=rate,
        weight_decay=decay,
        beta1=0.9,  # these and eps are the defaults of the class
        beta2=0.999,
        eps=1e-8,
    )


@contextmanager
def proximal_term(
    model: nn.Module,
    mu: float,
    anchor: Iterable[Tensor] | None = None,
    *,
    gradient: Callable[[Tensor], Tensor] = lambda moved: moved,
) -> Iterator[None]:
    """Add mu * `gradient`(omega - omega_0) to the gradient of every backward pass of the block.

    By default that is the gradient of (mu / 2) ||omega - omega_0||^2 (Li et al. 2020); `torch.sign`
    gives that of mu ||omega - omega_0||_1. omega_0 is `anchor`, one tensor per parameter; without
    it the parameters at the start of the block. No effect if `mu` is 0. Blocks may be nested.
    """

    # A hook on the gradient and no term of the loss: it works with any local training.
    def add(start: Tensor, changed: Tensor) -> None:
        assert changed.grad is not None
        changed.grad.add_(gradient(changed.detach() - start), alpha=mu)

    parameters = list(model.parameters()) if mu else []
    starts = [parameter.detach().clone() for parameter in parameters] if anchor is None else anchor
    # Removed also after an error: the model outlives the block.
    with ExitStack() as hooks:
        for parameter, start in zip(parameters, starts, strict=True) if mu else ():
            hook = parameter.register_post_accumulate_grad_hook(partial(add, start))  # type: ignore[no-untyped-call]
            hooks.enter_context(hook)
        yield
