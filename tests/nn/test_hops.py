"""Neighbourhoods at distance exactly 1 and 2, against breadth-first search."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.evidence import hop
from support.builders import CPU, lists, random_csr

from dance_flwr.data.graphs.graph import csr_from_pairs
from dance_flwr.nn import hops as module
from dance_flwr.nn.hops import Hops


@pytest.mark.parametrize("most_cached", [20_000_000, 0], ids=["cached", "on demand"])
def test_both_hops_match_breadth_first_search(most_cached):
    @settings(max_examples=40, deadline=None)
    @given(
        seed=st.integers(0, 2**20),
        n=st.integers(1, 25),
        density=st.sampled_from([0.0, 0.05, 0.15, 0.5, 1.0]),
    )
    def check(seed, n, density):
        rng = np.random.default_rng(seed)
        graph = random_csr(rng, n, density)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_MOST_CACHED_PAIRS", most_cached)
            hops = Hops(*graph, CPU)
        assert (hops._two is not None) == (most_cached > 0 or len(graph[1]) == 0)
        # Repeated rows, any order.
        nodes = rng.integers(0, n, 2 * n)
        rows = torch.tensor(nodes)
        assert lists(hops.zero(rows)) == [[v] for v in nodes]
        assert lists(hops.one(rows)) == [hop(*graph, v, 1) for v in nodes]
        assert lists(hops.two(rows)) == [hop(*graph, v, 2) for v in nodes]

    check()


def test_a_triangle_with_a_tail_by_hand():
    """0-1-2 is a triangle and 3 hangs on 2: node 3 is two steps from 0 and 1, and nothing is two
    steps from 2.
    """
    hops = Hops(*csr_from_pairs(np.array([0, 1, 0, 2]), np.array([1, 2, 2, 3]), 4), CPU)
    assert lists(hops.one(torch.arange(4))) == [[1, 2], [0, 2], [0, 1, 3], [2]]
    assert lists(hops.two(torch.arange(4))) == [[3], [3], [], [0, 1]]


def test_no_rows_asked_for():
    hops = Hops(*csr_from_pairs(np.array([0]), np.array([1]), 2), CPU)
    none = torch.zeros(0, dtype=torch.int64)
    assert lists(hops.zero(none)) == lists(hops.one(none)) == lists(hops.two(none)) == []
