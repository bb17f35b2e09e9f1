"""Graph condensation: budget, adjacency, distances and matching against naive twins and limits."""

from itertools import product

import numpy as np
import pytest
import torch
from dance_flwr_rivals.condensation.adjacency import PairNetwork, edges, normalise
from dance_flwr_rivals.condensation.client import training_quotas
from dance_flwr_rivals.condensation.config import CondenseConfig
from dance_flwr_rivals.condensation.graphs import RealGraph
from dance_flwr_rivals.condensation.matching import (
    DISTANCES,
    Matching,
    Network,
    class_gradients,
    condense,
    initial_graph,
)
from dance_flwr_rivals.selected_core import client as coresets
from dance_flwr_rivals.selected_core.client import RULES, select_core
from hypothesis import given, settings
from hypothesis import strategies as st
from rival_support.blocks import blocks as blocks  # a stochastic block model of 90 nodes
from rival_support.blocks import draw, labels_of
from torch.nn import functional as F

from dance_flwr.dance.nodes import node_budget
from dance_flwr.nn.propagation import operator

CPU = torch.device("cpu")


# Budget


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    unknown=st.integers(0, 80),
    ratio=st.floats(0.01, 1.0),
)
def test_quotas_add_up_and_reach_every_class(sizes, unknown, ratio):
    total = sum(sizes)
    quotas = training_quotas(
        labels_of(*sizes, unknown=unknown), total + unknown, len(sizes), ratio
    ).tolist()
    present = sum(size > 0 for size in sizes)
    assert sum(quotas) == min(max(present, node_budget(total + unknown, ratio)), total)
    assert all(
        (quota > 0) == (size > 0) and quota <= size
        for quota, size in zip(quotas, sizes, strict=True)
    )


# Coresets


@pytest.fixture
def cloud():
    return torch.randn(14, 3, dtype=torch.float64, generator=draw(3))


def test_herding_is_that_of_the_loop(cloud):
    chosen = []
    for _ in range(9):
        gaps = {
            i: float((cloud.mean(0) - cloud[[*chosen, i]].mean(0)).norm())
            for i in range(14)
            if i not in chosen
        }
        chosen.append(min(gaps, key=gaps.get))
    assert coresets.herding_rows(cloud, 9, draw()).tolist() == chosen


def test_k_center_is_that_of_the_loop(cloud):
    chosen = [int((cloud - cloud.mean(0)).norm(dim=1).argmin())]
    while len(chosen) < 9:
        nearest = [min(float((cloud[i] - cloud[j]).norm()) for j in chosen) for i in range(14)]
        chosen.append(int(np.argmax(nearest)))
    assert coresets.k_center_rows(cloud, 9, draw()).tolist() == chosen


@pytest.mark.parametrize("rule", RULES)
def test_a_core_has_its_quotas_even_among_equal_points(rule):
    labels = labels_of(5, 4, 0, 3, unknown=2)
    quotas = torch.tensor([3, 4, 0, 1])
    core = select_core(torch.ones(14, 2), labels, quotas, RULES[rule], draw())
    assert torch.bincount(labels[core], minlength=4).equal(quotas) and core.equal(core.unique())
    assert not select_core(
        torch.ones(14, 2), labels, torch.zeros(4).long(), RULES[rule], draw()
    ).numel()


# The learnt adjacency


def pair_network(dim=5):
    with torch.random.fork_rng():
        torch.manual_seed(4)
        network = PairNetwork(dim, width=6).double()
        for parameters in (network.scales, network.shifts):
            torch.nn.init.uniform_(parameters, 0.5, 1.5)
    return network


def naive_adjacency(network, nodes):
    """Return A' pair by pair, with torch's batch normalisation over the K^2 rows."""
    pairs = torch.stack([torch.cat([a, b]) for a, b in product(nodes, nodes)])
    for layer, scale, shift in zip(
        (network.first, network.second), network.scales, network.shifts, strict=True
    ):
        pairs = F.batch_norm(layer(pairs), None, None, scale, shift, training=True)
        pairs = torch.relu(pairs)
    logits = network.last(pairs).view(len(nodes), len(nodes))
    adjacency = torch.zeros_like(logits)
    for i, j in product(range(len(nodes)), repeat=2):
        if i != j:
            adjacency[i, j] = torch.sigmoid((logits[i, j] + logits[j, i]) / 2)
    return adjacency


def test_the_pair_network_is_that_of_the_pairs():
    nodes = torch.randn(7, 5, dtype=torch.float64, generator=draw(1))
    network, twin = pair_network(), pair_network()
    actual, expected = network(nodes.requires_grad_()), naive_adjacency(twin, nodes)
    torch.testing.assert_close(actual, expected)
    assert (
        actual.equal(actual.T)
        and not actual.diag().any()
        and bool(((actual >= 0) & (actual <= 1)).all())
    )
    weights = torch.randn(7, 7, dtype=torch.float64, generator=draw(2))
    ours = torch.autograd.grad((actual * weights).sum(), [nodes, *network.parameters()])
    theirs = torch.autograd.grad((expected * weights).sum(), [nodes, *twin.parameters()])
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, atol=1e-9, rtol=1e-6)


def test_the_dense_operator_is_the_sparse_one():
    adjacency = pair_network()(torch.randn(6, 5, dtype=torch.float64, generator=draw(1))).detach()
    sparse = operator("gcn", *edges(adjacency, 0.0), 6).to_dense()
    torch.testing.assert_close(normalise(adjacency), sparse)
    few = edges(adjacency, 0.5)
    assert 0 < len(few[2]) < 30 and float(few[2].min()) >= 0.5


# Distances


def naive_distance(kind, left, right):
    if kind == "mse":
        return sum(float((a - b).square().sum()) for a, b in zip(left, right, strict=True))
    total = 0.0
    for a, b in zip(np.asarray(left[0]).T, np.asarray(right[0]).T, strict=True):
        sizes = np.linalg.norm(a), np.linalg.norm(b)
        if min(sizes) >= 1e-8:
            total += 1 - a @ b / (sizes[0] * sizes[1] + 1e-6)
    return total


@pytest.mark.parametrize("kind", DISTANCES)
def test_a_distance_is_that_of_the_loops(kind):
    left = [
        torch.randn(3, 4, 5, dtype=torch.float64, generator=draw(1)),
        torch.randn(3, 5, generator=draw(2)).double(),
    ]
    right = [
        torch.randn(3, 4, 5, dtype=torch.float64, generator=draw(5)),
        torch.randn(3, 5, generator=draw(6)).double(),
    ]
    left[0][0, :, 1] = 0  # a dead column on either side, and a gradient that is dead altogether
    right[0][1, :, 2] = 0
    right[0][2], right[1][2] = 0, 0
    actual = DISTANCES[kind]([part.requires_grad_() for part in left], right)
    with torch.no_grad():
        expected = [
            naive_distance(kind, [p[i] for p in left], [p[i] for p in right]) for i in range(3)
        ]
    assert actual.tolist() == pytest.approx(expected)
    used = left[:1] if kind == "ours" else left
    assert all(torch.isfinite(slope).all() for slope in torch.autograd.grad(actual.sum(), used))
    assert float(DISTANCES[kind](left, left).sum()) == pytest.approx(0, abs=1e-4)


# Matching


def network(dim=12, classes=3, seed=0):
    return Network.draw(dim, classes, draw(seed), CPU)


def test_class_gradients_are_those_of_autograd(blocks):
    real, *_ = blocks
    order = torch.sort(real.labels, stable=True).indices
    order = order[real.labels[order] >= 0]
    theta = network(classes=4)  # one class has no node
    actual = class_gradients(theta, real.propagated()[order], real.labels[order])
    theta.weight.requires_grad_(), theta.bias.requires_grad_()
    logits = real.propagated() @ theta.weight + theta.bias
    for number in range(3):
        loss = F.cross_entropy(logits[real.labels == number], real.labels[real.labels == number])
        slopes = torch.autograd.grad(loss, [theta.weight, theta.bias], retain_graph=True)
        for mine, own in zip(actual, slopes, strict=True):
            torch.testing.assert_close(mine[number].detach(), own)
    assert not actual[0][3].any() and not actual[1][3].any()


def test_a_snapshot_is_symmetric_to_the_bit():
    """Sigmoids of equal numbers may differ in the last bit; a server refuses such a graph."""
    features, labels = torch.randn(60, 16, generator=draw()), torch.zeros(60, dtype=torch.int64)
    real = RealGraph(features, torch.eye(60).to_sparse(), labels)
    for count in range(2, 61):
        torch.manual_seed(count)
        adjacency = (
            Matching(real, torch.tensor([count]), CondenseConfig(), draw()).snapshot().adjacency
        )
        assert adjacency.equal(adjacency.T), count


def test_the_best_on_validation_is_returned(blocks):
    real, *_ = blocks
    seen = []

    def score(actual):
        seen.append(actual)
        return {3: 0.9, 6: 0.9}.get(len(seen), 0.5)

    learning = Matching(real, torch.tensor([2, 2, 2]), CondenseConfig(steps=20), draw())
    actual = condense(learning.step, learning.snapshot, 20, score)
    assert len(seen) == 10 and actual is seen[5], "the later of two alike"
    assert not seen[0].features.equal(seen[9].features), "snapshots do not change with what follows"


@settings(max_examples=15)
@given(
    sizes=st.lists(st.integers(0, 3), min_size=2, max_size=4).filter(any), seed=st.integers(0, 99)
)
def test_condensation_works_for_any_classes(sizes, seed):
    """Absent classes, single nodes, no edges: everything stays finite."""
    labels = labels_of(*sizes, unknown=1)
    graph = operator("gcn", *torch.zeros(2, 0).long(), torch.zeros(0), len(labels))
    real = RealGraph(torch.randn(len(labels), 6, generator=draw(seed)), graph, labels)
    quotas = training_quotas(labels, len(labels), len(sizes), 0.5)
    for distance in DISTANCES:
        chosen = CondenseConfig(steps=12, distance=distance)
        learning = Matching(real, quotas, chosen, draw(seed))
        actual = condense(learning.step, learning.snapshot, 12, lambda actual: 0.0)
        assert torch.isfinite(actual.features).all() and torch.isfinite(actual.adjacency).all()
        assert torch.bincount(actual.labels, minlength=len(sizes)).equal(quotas)


def test_quotas_by_hand():
    # K = ceil(0.2 * 20) = 4; shares 2.4, 1.2, 0.4 round to 2, 1, 0 and the first tie of 0.4 makes
    # 3, 1, 0. The third class gets its node from the first, which is 0.6 above its share.
    assert training_quotas(labels_of(6, 3, 1, 0, unknown=10), 20, 4, 0.2).tolist() == [2, 1, 1, 0]
    assert training_quotas(labels_of(6, 3, 1), 20, 3, 0.01).tolist() == [1, 1, 1], (
        "one per class at least"
    )
    assert training_quotas(labels_of(2, 1, unknown=90), 93, 2, 0.5).tolist() == [2, 1], (
        "all labelled nodes at most"
    )
    assert training_quotas(torch.full((5,), -1), 5, 3, 0.5).tolist() == [0, 0, 0]


def test_rows_are_in_the_order_of_their_classes(blocks):
    real, *_ = blocks
    quotas = torch.tensor([2, 0, 5])
    labels, nodes = initial_graph(real.labels, quotas, draw())
    assert labels.tolist() == [0, 0, 2, 2, 2, 2, 2] and real.labels[nodes].equal(labels)
    assert len(nodes.unique()) == 7
    matching = Matching(real, quotas, CondenseConfig(), draw())
    assert matching.features.detach().equal(F.layer_norm(real.features, (12,))[nodes])
