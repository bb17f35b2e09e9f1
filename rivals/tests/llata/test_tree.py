"""The community tree, against the minimum of its entropy by loops on every small graph."""

import networkx as nx
import numpy as np
import pytest
from dance_flwr_rivals.llata.tree import communities_of, inner_entropy
from hypothesis import given
from hypothesis import strategies as st
from rival_support import oracle_llata as oracle
from rival_support.local_nodes import pairs_of


def random_edges(seed, nodes, density):
    rng = np.random.default_rng(seed)
    return [tuple(pair) for pair in np.argwhere(np.triu(rng.random((nodes, nodes)) < density, 1))]


def listed(edges, nodes):
    return communities_of(pairs_of(edges), nodes).tolist()


def test_golden_entropy():
    """Two triangles with a bridge, W = 14: two terms of 1/14 log2 2, and six of the leaves."""
    edges = [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5), (2, 3)]
    two = 2 * (1 / 14) + -(4 * 2 / 14 * np.log2(2 / 7) + 2 * 3 / 14 * np.log2(3 / 7))
    community = communities_of(pairs_of(edges), 6)
    assert community.tolist() == [0, 0, 0, 1, 1, 1]
    assert oracle.entropy(edges, 6, [community.tolist()]) == pytest.approx(two)
    inner = inner_entropy(pairs_of(edges), 6, community)
    assert inner.tolist() == pytest.approx([(two - 2 / 14) / 2] * 2)


def test_on_every_graph_of_at_most_six_nodes_the_entropy_is_the_minimum():
    graphs = [graph for graph in nx.graph_atlas_g() if 0 < len(graph) <= 6 and graph.edges]
    assert len(graphs) == 202
    for graph in graphs:
        edges, nodes = list(graph.edges), len(graph)
        found = oracle.entropy(edges, nodes, [listed(edges, nodes)])
        assert found == pytest.approx(oracle.least_entropy(edges, nodes), abs=1e-9), edges


@given(st.integers(0, 10**6), st.integers(8, 25))
def test_no_merge_of_two_groups_and_no_move_of_a_leaf_lowers_the_entropy(seed, nodes):
    edges = random_edges(seed, nodes, 0.2)
    community = listed(edges, nodes)
    least = oracle.entropy(edges, nodes, [community])
    groups = sorted(set(community))
    merged = [[a if own == b else own for own in community] for a in groups for b in groups]
    moved = [
        [*community[:v], j, *community[v + 1 :]] for v in range(nodes) for j in [*groups, nodes]
    ]
    assert min(oracle.entropy(edges, nodes, [other]) for other in merged + moved) > least - 1e-8


def test_communities_never_span_components_and_isolated_nodes_are_alone():
    edges = [(0, 1), (1, 2), (0, 2), (4, 5), (5, 6), (4, 6)]
    assert listed(edges, 8) == [0, 0, 0, 1, 2, 2, 2, 3]
    assert listed([], 3) == [0, 1, 2] and listed([], 0) == []
