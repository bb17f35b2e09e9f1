"""The share of a client's own model: a naive twin of its losses, and who decides."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.nn.mixture import MAX_LOSS, SHARES, Mixture, best_candidate, mixture_losses


def probabilities(seed, nodes=7, classes=3):
    draw = torch.Generator().manual_seed(seed)
    return torch.softmax(3 * torch.randn(2, nodes, classes, generator=draw), dim=2)


@given(st.integers(0, 1000))
def test_losses_are_those_of_each_mixture(seed):
    own, shared = probabilities(seed)
    labels = torch.arange(7) % 3
    for share, loss in zip(SHARES, mixture_losses(own, shared, labels), strict=True):
        mixed = Mixture("alone", own, share).of(shared, torch.arange(7))
        naive = -sum(log(max(float(mixed[v, labels[v]]), 1e-6)) for v in range(7))
        assert loss == pytest.approx(1000 * naive, abs=1)


def test_a_confident_error_has_a_bound_and_no_nodes_have_no_loss():
    wrong = torch.tensor([[1.0, 0.0]])
    assert mixture_losses(wrong, wrong, torch.tensor([1])) == [MAX_LOSS] * 11
    assert mixture_losses(wrong[:0], wrong[:0], torch.zeros(0).long()) == [0] * 11


def test_a_client_with_few_nodes_follows_the_federation_and_one_with_many_itself():
    prefers_own = [1000 - 10 * k for k in range(11)]  # of ten nodes
    federation = [100_000 + 5_000 * k for k in range(11)]  # of a thousand: the global model
    assert best_candidate(prefers_own) == 10
    assert best_candidate(prefers_own, federation, 1000) == 0
    assert best_candidate([100 * loss for loss in prefers_own], federation, 1000) == 10
