"""Blocks: the same rows as the whole graph where nothing is left out, unbiased where it is."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import random_csr

from dance_flwr.config.plugins import BACKBONES
from dance_flwr.nn.blocks import OperatorRows
from dance_flwr.nn.propagation import operator

WIDTH, HIDDEN = 12, 8


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def graph(seed, n, density):
    """(features, rows, cols) of a random graph; some nodes may have no edge."""
    indptr, cols = random_csr(np.random.default_rng(seed), n, density)
    rows = torch.repeat_interleave(torch.arange(n), torch.tensor(indptr).diff())
    return torch.randn(n, WIDTH, generator=draw(seed)), rows, torch.tensor(cols)


def build(name):
    torch.manual_seed(11)
    return BACKBONES.get(name)(WIDTH, HIDDEN, 0.5).eval()


def operator_of(kind, rows, cols, n):
    return operator(kind, rows, cols, torch.ones(len(rows)), n)


@pytest.mark.parametrize("name", BACKBONES)
@given(st.integers(0, 99), st.integers(1, 40), st.sampled_from([0.0, 0.05, 0.3]), st.data())
@settings(max_examples=15)
def test_the_targets_rows_are_those_of_the_whole_graph(name, seed, n, density, data):
    features, rows, cols = graph(seed, n, density)
    backbone = build(name)
    whole = operator_of(backbone.operator, rows, cols, n)
    targets = torch.tensor(
        data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    )
    most = data.draw(st.sampled_from([0, n]))
    block = OperatorRows.of(whole, backbone.operator).block(targets, backbone.reach, most, draw())
    assert block.nodes[: len(targets)].equal(targets)
    assert len(torch.unique(block.nodes)) == len(block.nodes)
    with torch.no_grad():
        expected = backbone(features, whole)[targets]
        found = backbone(features[block.nodes], block.operator)[: len(targets)]
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["gcn", "loops"])
def test_a_node_always_keeps_its_own_entry(kind):
    _, rows, cols = graph(2, 40, 0.5)
    whole = operator_of(kind, rows, cols, 40)
    block = OperatorRows.of(whole, kind).block(torch.arange(5), 2, 1, draw())
    expected = whole.to_dense().diagonal()[block.nodes]
    assert block.operator.to_dense().diagonal().equal(expected)


def test_a_block_is_no_larger_than_its_fan_out_allows_even_at_a_hub():
    hub = torch.zeros(5000, dtype=torch.int64)
    leaves = torch.arange(1, 5001)
    rows, cols = torch.cat([hub, leaves]), torch.cat([leaves, hub])
    sampler = OperatorRows.of(operator_of("gcn", rows, cols, 5001), "gcn")
    block = sampler.block(torch.tensor([0]), 2, 10, draw())
    assert len(block.nodes) == 11
    assert len(sampler.block(torch.tensor([17]), 2, 10, draw()).nodes) <= 12
