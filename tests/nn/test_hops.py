"""Neighbourhoods at distance exactly 1 and 2, against breadth-first search."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.evidence import hop
from support.builders import lists, random_csr, rows_of

from dance_flwr.nn import hops as module
from dance_flwr.nn.hops import Hops
from dance_flwr.nn.ragged import Ragged


@pytest.mark.parametrize(
    ("most_cached", "at_once"),
    [(20_000_000, 1000), (20_000_000, 4), (0, 1000)],
    ids=["cached", "cached by fours", "on demand"],
)
def test_both_hops_match_breadth_first_search(monkeypatch, most_cached, at_once):
    monkeypatch.setattr(module, "_MAX_CACHED_PAIRS", most_cached)
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", at_once)

    @given(
        seed=st.integers(0, 2**20),
        n=st.integers(1, 25),
        density=st.sampled_from([0.0, 0.05, 0.15, 0.5, 1.0]),
    )
    def check(seed, n, density):
        rng = np.random.default_rng(seed)
        graph = random_csr(rng, n, density)
        hops = Hops(rows_of(graph))
        assert hops._cached == (most_cached > 0 or len(graph[1]) == 0)
        # Repeated rows, any order.
        nodes = rng.integers(0, n, 2 * n)
        rows = torch.tensor(nodes)
        assert lists(hops.zero(rows)) == [[v] for v in nodes]
        assert lists(hops.one(rows)) == [hop(*graph, v, 1) for v in nodes]
        assert lists(hops.two(rows)) == [hop(*graph, v, 2) for v in nodes]

    check()


@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 25),
    density=st.sampled_from([0.0, 0.15, 0.6]),
    fan_out=st.integers(1, 6),
)
def test_a_fan_out_keeps_a_fixed_sample_of_each_node(seed, n, density, fan_out):
    """Every list is part of the full one, as large as it may be, and the same whoever else is asked
    for; hop 2 is what the sampled lists reach, at a true distance of two.
    """
    graph = random_csr(np.random.default_rng(seed), n, density)
    hops, everyone = Hops(rows_of(graph), fan_out), torch.arange(n)
    one, two = lists(hops.one(everyone)), lists(hops.two(everyone))
    for v in range(n):
        full = hop(*graph, v, 1)
        assert len(one[v]) == min(fan_out, len(full)) and set(one[v]) <= set(full)
        assert one[v] == sorted(set(one[v]))
        assert two[v] == sorted({w for u in one[v] for w in one[u]} & set(hop(*graph, v, 2)))
        alone = torch.tensor([v])
        assert lists(hops.one(alone)) == [one[v]] and lists(hops.two(alone)) == [two[v]]
        assert lists(hops._two_hop(alone)) == [two[v]]


def test_a_row_costs_the_fan_out_and_not_the_degree():
    """A hub of 200,000 neighbours: no list beyond 4 + 16 entries is made for it."""
    n = 200_001
    index = torch.cat([torch.arange(1, n), torch.zeros(n - 1, dtype=torch.int64)])
    ptr = torch.cat([torch.tensor([0]), torch.arange(n - 1, 2 * n - 1)])
    hops = Hops(Ragged(ptr, index), 4)
    assert hops.one(torch.tensor([0])).index.numel() == 4
    assert hops.two(torch.tensor([7])).index.numel() <= 4
