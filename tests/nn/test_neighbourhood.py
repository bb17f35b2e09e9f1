"""Backbones in parts over the nodes around a batch, against the pass over the whole graph."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import random_csr, rows_of

from dance_flwr.config.plugins import BACKBONES
from dance_flwr.data.graphs.graph import csr_from_pairs
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.neighbourhood import around
from dance_flwr.nn.propagation import edge_weights, operator

WIDTH, HIDDEN = 10, 8
KINDS = ("gcn", "mean", "sum", "loops")
every_backbone = pytest.mark.parametrize("name", BACKBONES)


def graph_of(kind, seed=3, n=26):
    """Rows of neighbours: a random graph with isolated nodes, a star, or no edge at all."""
    if kind == "hub":
        return rows_of(csr_from_pairs(np.zeros(n - 3, np.int64), np.arange(1, n - 2), n))
    density = {"no edges": 0.0, "sparse": 0.05, "dense": 0.3}[kind]
    return rows_of(random_csr(np.random.default_rng(seed), n, density))


def whole(kind, rows):
    """The operator on the whole graph, in float64."""
    ones = torch.ones(rows.index.numel(), dtype=torch.float64)
    return operator(kind, rows.rows(), rows.index, ones, rows.num_rows)


def build(name):
    torch.manual_seed(11)
    backbone = BACKBONES.get(name)(WIDTH, HIDDEN, 0.5).double().eval()
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return backbone


def ball_of(kind, rows, targets, steps, most=0, generator=None):
    """`around`, with operators in float64."""
    weights = edge_weights(kind, rows.ptr)
    ball = around(rows, weights, targets, steps, most, generator)
    return ball.nodes, [step.to(torch.float64) for step in ball.operators]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 20),
    density=st.sampled_from([0.0, 0.1, 0.5]),
    gated=st.booleans(),
)
def test_weights_by_degree_are_the_entries_of_the_operator(kind, seed, n, density, gated):
    rows = rows_of(random_csr(np.random.default_rng(seed), n, density))
    draw = torch.Generator().manual_seed(seed)
    gates = torch.rand(len(rows.index), generator=draw) if gated else None
    weights = edge_weights(kind, rows.ptr, gates)
    dense, places = torch.zeros(n, n), torch.arange(len(rows.index))
    dense[rows.rows(), rows.index] = weights.of(rows.rows(), rows.index, places)
    if weights.loops is not None:
        dense += torch.diag(weights.loops)
    given = torch.ones(len(rows.index)) if gates is None else gates
    expected = operator(kind, rows.rows(), rows.index, given, n).to_dense()
    torch.testing.assert_close(dense, expected)


@pytest.mark.parametrize("graph", ["hub", "no edges", "sparse", "dense"])
@every_backbone
def test_parts_over_the_surroundings_are_the_whole_pass(name, graph):
    """For one target, some, and all; the hub, a leaf and isolated nodes among them."""
    backbone, rows = build(name), graph_of(graph)
    x = torch.randn(rows.num_rows, WIDTH, generator=torch.Generator().manual_seed(1)).double()
    full = whole(backbone.operator, rows)
    wanted = backbone(x, full)
    inputs = backbone.inputs(normalise(x), full)
    torch.testing.assert_close(
        backbone.finish(backbone.start(inputs), [full] * backbone.hops_left), wanted
    )
    for targets in ([0], [25], [7, 0, 25, 3], [*reversed(range(26))]):
        asked = torch.tensor(targets)
        nodes, steps = ball_of(backbone.operator, rows, asked, backbone.hops_left)
        found = backbone.finish(backbone.start(inputs[nodes]), steps)
        torch.testing.assert_close(found, wanted[asked], atol=1e-6, rtol=1e-6)
        # The condensed graph and a forward pass spread after the projection, over all steps.
        nodes, steps = ball_of(backbone.operator, rows, asked, backbone.reach)
        here = backbone.reach - backbone.hops_left
        spread = backbone.spread(backbone.project(normalise(x[nodes])), steps[:here])
        torch.testing.assert_close(
            backbone.finish(spread, steps[here:]), wanted[asked], atol=1e-6, rtol=1e-6
        )


@pytest.mark.parametrize("kind", ["gcn", "mean", "sum"])
def test_a_sampled_step_estimates_the_full_one_without_bias(kind):
    """A star with 40 leaves: the mean over 1000 draws of five neighbours is the full row, within
    four of its standard errors. The node itself is always kept as it is.
    """
    n = 41
    rows = rows_of(csr_from_pairs(np.zeros(40, np.int64), np.arange(1, n), n))
    full = whole(kind, rows).to_dense()
    x = torch.randn(n, generator=torch.Generator().manual_seed(2)).double()
    draw, asked = torch.Generator().manual_seed(0), torch.tensor([0, 5])
    found = []
    for _ in range(1000):
        nodes, (step,) = ball_of(kind, rows, asked, 1, 5, draw)
        found.append(step @ x[nodes])
    found = torch.stack(found)
    error = found.std(0) / len(found) ** 0.5
    assert bool(((found.mean(0) - full[asked] @ x).abs() <= 4 * error + 1e-6).all())
    assert float(found[:, 0].std()) > 0.01 and float(found[:, 1].std()) < 1e-6


def test_a_sampled_edge_keeps_its_feature():
    """GAT reads weights as features of edges: a sampled edge does not become a heavier one."""
    nodes, (step,) = ball_of("loops", graph_of("hub"), torch.tensor([0]), 1, 4)
    assert step.values().tolist() == [1.0] * 5 and nodes.numel() == 5
    summed = ball_of("sum", graph_of("hub"), torch.tensor([0]), 1, 4)[1][0]
    assert summed.values().sum() == 23
