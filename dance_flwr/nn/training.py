"""The local training loop that every method shares."""

from collections.abc import Callable

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
    # Why anew in each round: moments of a model that aggregation has replaced are stale.
    optimizer = torch.optim.Adam(parameters, lr=rate, weight_decay=config.weight_decay, fused=True)
    model.train()
    loss = torch.zeros(())
    for _ in range(config.local_epochs):
        optimizer.zero_grad()
        loss = loss_of()
        # A client without labelled nodes has a constant loss, and nothing to learn from.
        if not loss.requires_grad:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return float(loss.detach())
