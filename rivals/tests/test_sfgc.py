"""SFGC: gradients, students and experts against autograd, limits of its loss, runs."""

from dataclasses import replace

import numpy as np
import torch
from dance_flwr_rivals.condensation.graphs import layer_normalise
from dance_flwr_rivals.selected_core.client import k_center_rows
from dance_flwr_rivals.sfgc import SfgcConfig
from dance_flwr_rivals.sfgc.trajectories import (
    ExpertData,
    TrajectoryMatching,
    Weights,
    trajectory,
    trajectory_loss,
)
from hypothesis import given
from hypothesis import strategies as st
from rival_support.blocks import blocks as blocks  # a stochastic block model of 90 nodes
from rival_support.blocks import draw
from torch.nn import functional as F

CPU = torch.device("cpu")
FEW = SfgcConfig(experts=2, latest_start=10, span=5, steps=6, unroll=3)


def weights(dim, hidden, classes, seed=0):
    """Return random weights and biases in float64."""
    made = Weights.draw(dim, hidden, classes, draw(seed), CPU)
    return Weights(
        *(
            part.double() + 0.1 * torch.randn(part.shape, generator=draw(seed + 1)).double()
            for part in made
        )
    )


def logits(theta, features, operator):
    """Return the logits of the network as in the paper, for autograd."""
    first, bias, second, shift = theta
    return operator @ torch.relu(operator @ features @ first + bias) @ second + shift


# Experts


def test_an_expert_is_plain_gradient_descent(blocks):
    real, *_ = blocks
    theta, known = Weights.draw(12, 5, 3, draw(), CPU), real.labels >= 0
    path = trajectory(theta, ExpertData.of(real, 3), 0.3, {0, 4, 7})
    leaves = [part.clone().requires_grad_() for part in theta]
    plain = torch.optim.SGD(leaves, lr=0.3)
    for _ in range(7):
        plain.zero_grad()
        F.cross_entropy(
            logits(leaves, layer_normalise(real.features), real.operator)[known], real.labels[known]
        ).backward()
        plain.step()
    assert list(path) == [0, 4, 7] and path[0] is theta
    for mine, own in zip(path[7], leaves, strict=True):
        torch.testing.assert_close(mine, own.detach(), atol=1e-5, rtol=1e-4)


# The student


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 6), st.integers(0, 4))
def test_the_unrolled_student_is_that_of_autograd(seed, rows, dim, steps):
    """With more rows than dimensions and fewer; gradients of X' and of the rate too."""
    nodes = torch.randn(rows, dim, generator=draw(seed)).double().requires_grad_()
    labels = torch.randint(3, (rows,), generator=draw(seed + 1))
    rate = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    start, goal = weights(dim, 5, 3, seed), weights(dim, 5, 3, seed + 7)
    actual = trajectory_loss(nodes, F.one_hot(labels, 3).double(), start, goal, steps, rate)
    theta = [part.clone().requires_grad_() for part in start]
    for _ in range(steps):
        loss = F.cross_entropy(logits(theta, nodes, torch.eye(rows).double()), labels)
        slopes = torch.autograd.grad(loss, theta, create_graph=True)
        theta = [own - rate * slope for own, slope in zip(theta, slopes, strict=True)]
    missed = sum(
        (own - reference).square().sum() for own, reference in zip(theta, goal, strict=True)
    )
    apart = sum(
        (own - reference).square().sum() for own, reference in zip(start, goal, strict=True)
    )
    torch.testing.assert_close(actual, missed / apart)
    if steps:
        for mine, own in zip(
            torch.autograd.grad(actual, (nodes, rate)),
            torch.autograd.grad(missed / apart, (nodes, rate)),
            strict=True,
        ):
            torch.testing.assert_close(mine, own)


# Matching


def matching(real, quotas=(3, 3, 3), **changes):
    return TrajectoryMatching(real, torch.tensor(quotas), 8, replace(FEW, **changes), draw())


def test_it_starts_from_distinct_centres_in_the_order_of_their_classes(blocks):
    real, *_ = blocks
    actual = matching(real, (4, 0, 6))
    assert actual.labels.tolist() == [0] * 4 + [2] * 6
    points, rows = real.propagated(), []
    for number, count in ((0, 4), (2, 6)):
        nodes = torch.nonzero(real.labels == number).flatten()
        rows += sorted(nodes[k_center_rows(points[nodes], count, draw())].tolist())
    assert len(set(rows)) == 10 and actual.features.detach().equal(
        layer_normalise(real.features)[rows]
    )


def test_a_student_that_diverges_moves_nothing(blocks):
    real, *_ = blocks
    actual = matching(real, student_rate=1e30, unroll=8)
    before = actual.features.detach().clone()
    assert not np.isfinite([actual.step(number) for number in range(3)]).all()
    assert actual.features.detach().equal(before)
