"""The proximal terms: their gradients are autograd's, and nothing stays behind."""

import pytest
import torch
from torch import nn

from dance_flwr.nn.training import proximal_term


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def data_loss(model):
    x = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(4, 5)
    return model(x).square().sum()


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def move(model):
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.add_(0.1 * (number + 1))


def hooks_of(model):
    return [len(p._post_accumulate_grad_hooks or {}) for p in model.parameters()]


@pytest.mark.parametrize("mu", [0.01, 5.0])
def test_the_gradient_is_that_of_the_distances(model, mu):
    """Half the squared one, and in the block around it the L1 distance."""
    start = [parameter.detach().clone() for parameter in model.parameters()]
    with proximal_term(model, 0.3, gradient=torch.sign), proximal_term(model, mu):
        for _ in range(2):  # also after a second move
            move(model)
            hooked = gradients(model, data_loss(model))
    moved = [p - first for p, first in zip(model.parameters(), start, strict=True)]
    distance = sum(mu / 2 * part.square().sum() + 0.3 * part.abs().sum() for part in moved)
    expected = gradients(model, data_loss(model) + distance)
    for ours, autograd in zip(hooked, expected, strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-12, atol=1e-12)


def test_hooks_are_removed_afterwards(model):
    with proximal_term(model, 1.0):
        assert hooks_of(model) == [1] * 4
    assert not any(hooks_of(model))
