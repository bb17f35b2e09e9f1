"""The local training loop that every method shares."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dance_flwr.config import RunConfig


def learning_rate(config: RunConfig, round_: int) -> float:
    """lr_t = lr * (1 + cos(pi (t - 1) / T)) / 2 under "cosine", lr under "constant"; t from 1."""
    if config.lr_schedule == "constant":
        return config.learning_rate
    angle = torch.pi * (round_ - 1) / config.rounds
    return config.learning_rate * (1 + float(torch.cos(torch.tensor(angle)))) / 2


def train_epochs(model: nn.Module, loss_of: Callable[[], Tensor], config: RunConfig, *, round_: int) -> float:
    """Minimise `loss_of` over full-batch local epochs with a fresh Adam; return the last loss.

    Adam starts anew in each round: moments of an earlier round belong to a model that aggregation replaced. Under
    fedprox the gradient of (mu / 2) ||omega - omega^(t-1)||^2 is added (Li et al. 2020).
    """
    parameters = list(model.parameters())
    anchor = [p.detach().clone() for p in parameters] if config.strategy == "fedprox" else []
    rate = learning_rate(config, round_)
    optimizer = torch.optim.Adam(parameters, lr=rate, weight_decay=config.weight_decay, fused=True)
    model.train()
    loss = torch.zeros(())
    for _ in range(config.local_epochs):
        optimizer.zero_grad()
        loss = loss_of()
        if not loss.requires_grad:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        for p, start in zip(parameters, anchor, strict=False):
            if p.grad is not None:
                p.grad.add_(p.detach() - start, alpha=config.proximal_mu)
        optimizer.step()
    return float(loss.detach())
