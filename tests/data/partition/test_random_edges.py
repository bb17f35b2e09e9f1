"""Random edges: their number, where they may lie, and what decides them."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.partitions import cliques, graph_and_clients, make_graph

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.random_edges import random_edge_count, with_random_edges


def pairs_of(graph: TextGraph) -> set[tuple[int, int]]:
    """Undirected edges (i, j), i < j; fails if an entry repeats or has no opposite."""
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)).tolist()
    entries = list(zip(source, graph.indices.tolist(), strict=True))
    assert len(set(entries)) == len(entries)
    assert all((j, i) in set(entries) and i != j for i, j in entries)
    return {(i, j) for i, j in entries if i < j}


@given(
    case=graph_and_clients(),
    ratio=st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, 100.0]),
    seed=st.integers(0, 5),
)
def test_exactly_so_many_new_pairs_join_the_old_ones(case, ratio, seed):
    graph, client = case
    before, n = pairs_of(graph), graph.num_nodes
    after = pairs_of(with_random_edges(graph, ratio, seed, client))
    assert before <= after
    free = sum(pair not in before for pair in combinations(range(n), 2))
    assert len(after - before) == min(round(ratio * len(before)), free)
    assert len(after - before) == random_edge_count(n, len(before), ratio)


def test_the_seed_and_the_client_decide():
    graph = cliques(6, 10)
    one, again, other, elsewhere = (
        pairs_of(with_random_edges(graph, 0.5, *key)) for key in ((1, 0), (1, 0), (2, 0), (1, 1))
    )
    assert one == again
    assert one != other and one != elsewhere and other != elsewhere


def test_every_free_pair_is_as_likely_as_the_next():
    """The path 0-1-2-3 has three free pairs; of 900 draws of one each has 300, with s = 14."""
    graph = make_graph(4, [(0, 1), (1, 2), (2, 3)])
    counts = dict.fromkeys([(0, 2), (0, 3), (1, 3)], 0)
    for seed in range(900):
        (new,) = pairs_of(with_random_edges(graph, 1 / 3, seed, 0)) - pairs_of(graph)
        counts[new] += 1
    assert list(counts.values()) == pytest.approx([300] * 3, abs=70)


def test_a_large_sparse_client_is_no_matter_of_every_pair():
    n = 60_000  # 1.8 thousand million pairs
    graph = make_graph(n, zip(range(n - 1), range(1, n), strict=True))
    noisy = with_random_edges(graph, 1.0, 0, 0)
    assert noisy.num_edges == 2 * (n - 1)
    source = np.repeat(np.arange(n), np.diff(noisy.indptr))
    assert not (source == noisy.indices).any()
