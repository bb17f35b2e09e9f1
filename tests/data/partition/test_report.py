"""Figures of a partition against slow, simple implementations; manifests that are reproduced."""

import json
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.partitions import SPEC, cliques, graph_and_clients, make_graph

from dance_flwr.data.partition import client_nodes, make_partition, manifest, report, reproduce
from dance_flwr.data.partition.report import total_variation
from dance_flwr.errors import DataError


@given(case=graph_and_clients(), method=st.sampled_from(["louvain", "random"]))
def test_figures_are_those_of_networkx(case, method):
    graph, clients = case
    partition = make_partition(graph, replace(SPEC, method=method, clients=clients))
    figures = report(graph, partition)
    network = nx.from_scipy_sparse_array(graph.adjacency())
    parts = [client_nodes(partition, k).tolist() for k in range(clients)]
    inner = [network.subgraph(part) for part in parts]
    rows = figures["clients"]
    assert [row["nodes"] for row in rows] == [len(part) for part in parts]
    assert [row["edges"] for row in rows] == [part.number_of_edges() for part in inner]
    assert [row["components"] for row in rows] == [
        nx.number_connected_components(part) for part in inner
    ]
    assert figures["kept_edges"] == sum(part.number_of_edges() for part in inner)
    if graph.num_edges:
        assert figures["kept_edges_ratio"] == figures["kept_edges"] / graph.num_edges
        assert figures["modularity"] == pytest.approx(nx.community.modularity(network, parts))
    else:
        assert (figures["kept_edges_ratio"], figures["modularity"]) == (1.0, 0.0)
    assert json.loads(json.dumps(figures)) == figures


@given(counts=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=6))
def test_total_variation_is_the_textbook_one(counts):
    table = np.array(counts, np.int64)
    for row, found in zip(table, total_variation(table), strict=True):
        if not row.sum():
            assert found is None
            continue
        assert 0 <= found <= 1
        assert found == pytest.approx(
            0.5 * np.abs(row / row.sum() - table.sum(axis=0) / table.sum()).sum()
        )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda graph: cliques(6, 9), "expected 60 nodes, found 54"),
        (lambda graph: make_graph(60, []), "edges, found 0"),
        (
            lambda graph: replace(graph, ids=np.array([f"m{i}" for i in range(60)])),
            "client 0: expected ids_sha256",
        ),
        (lambda graph: replace(graph, labels=graph.labels * 0), "expected nodes_per_split"),
    ],
)
def test_other_data_are_refused(other, said):
    graph = cliques(6, 10)
    content = manifest(graph, make_partition(graph, SPEC))
    with pytest.raises(DataError) as caught:
        reproduce(other(graph), content)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
