"""Partitioners other than Louvain, the compiled Louvain, and determinism for a given seed."""

import os
import subprocess
import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.partitions import SPEC, make_graph
from support.project import PROJECT

from dance_flwr.config.plugins import PARTITIONERS
from dance_flwr.data.graphs.graph import NO_SPLIT
from dance_flwr.data.partition import (
    make_partition,
    manifest,
    report,
    reproduce,
)
from dance_flwr.data.partition.louvain import louvain_labels
from dance_flwr.data.partition.pack import fill_empty
from dance_flwr.errors import DataError


def assigned(method, graph, clients, seed=0, **settings):
    """Return what a partitioner itself answers."""
    spec = replace(SPEC, method=method, clients=clients, seed=seed, **settings)
    return PARTITIONERS.get(method)(graph, spec)


def one_line(error) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_smaller_alpha_skews_labels_more():
    graph = make_graph(3000, [])
    skews = [
        report(
            graph,
            make_partition(graph, replace(SPEC, method="label-dirichlet", clients=5, alpha=alpha)),
        )["non_iid"]
        for alpha in (0.05, 1.0, 1000.0)
    ]
    assert skews[0] > skews[1] > skews[2]
    assert skews[2] < 0.05


def test_the_largest_sites_take_part_and_the_others_stay_outside():
    """Equal sizes: the first name; clients are numbered by name, as with all sites."""
    site = np.array(["d", "b", "d", "c", "a", "c", "b", "e"])
    graph = replace(make_graph(8, []), site=site)
    assert assigned("by-column", graph, 2).tolist() == [-1, 0, -1, 1, -1, 1, 0, -1]
    assert assigned("by-column", graph, 4).tolist() == [3, 1, 3, 2, 0, 2, 1, -1]
    assert assigned("by-column", graph, 5).min() == 0


def test_figures_are_of_the_nodes_that_take_part_and_say_what_is_outside():
    """Clients {0, 1} and {2, 3}; nodes 4 and 5 are outside, with three of the six edges."""
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]
    labels = [0, 1, 0, 0, 2, 2]
    graph = replace(make_graph(6, pairs, labels), site=np.array(["a", "a", "b", "b", "c", "d"]))
    spec = replace(SPEC, method="by-column", clients=2)
    partition = make_partition(graph, spec)
    assert (partition.split[4:] == NO_SPLIT).all() and (partition.split[:4] != NO_SPLIT).all()
    content = manifest(graph, partition)
    assert (content["num_nodes"], content["num_edges"]) == (6, 6)
    assert content["ratio_of_edges_kept"] == 2 / 6
    assert [row["site"] for row in content["clients"]] == ["a", "b"]
    assert content["report"]["outside"] == {"nodes": 2, "edges": 3}
    assert sum(sum(row["nodes_per_split"].values()) for row in content["clients"]) == 4
    assert sum(sum(row["nodes_per_class"].values()) for row in content["clients"]) == 4
    alone = graph.subgraph(np.arange(4), "alone")
    expected = report(alone, make_partition(alone, spec))
    same = {"modularity", "non_iid", "clients", "kept_edges"}
    assert {key: content["report"][key] for key in same} == {key: expected[key] for key in same}
    assert "outside" not in expected
    assert reproduce(graph, content).assignment.tolist() == [0, 0, 1, 1, -1, -1]


def test_a_partitioner_that_leaves_a_client_empty_is_refused(monkeypatch):
    monkeypatch.setitem(
        PARTITIONERS.builtin, "random", lambda graph, spec: np.zeros(graph.num_nodes, np.int64)
    )
    with pytest.raises(DataError) as caught:
        make_partition(make_graph(5, []), replace(SPEC, method="random", clients=2))
    assert "expected 2 clients with nodes, found 1" in one_line(caught)


@given(before=st.lists(st.integers(0, 7), min_size=8, max_size=30))
def test_empty_clients_are_filled_and_others_disturbed_least(before):
    before = np.array(before, np.int64)
    after = fill_empty(before, 8)
    assert np.bincount(after, minlength=8).min() >= 1
    assert (before != after).sum() == 8 - len(np.unique(before))


def test_compiled_louvain_is_as_good_as_networkx():
    network = nx.planted_partition_graph(12, 40, 0.25, 0.01, seed=3)
    graph = make_graph(480, network.edges)
    ours, theirs = [], []
    for seed in range(3):
        labels = louvain_labels(graph.adjacency(), seed, 1.0)
        ours.append(
            nx.community.modularity(
                network, [set(np.flatnonzero(labels == k)) for k in np.unique(labels)]
            )
        )
        found = nx.community.louvain_communities(network, seed=seed)
        theirs.append(nx.community.modularity(network, found))
    assert np.mean(ours) >= 0.99 * np.mean(theirs)


SCRIPT = """
import sys
import numpy as np
from dance_flwr.data.graphs.graph import TextGraph, csr_from_pairs
from dance_flwr.data.partition import PartitionSpec, make_partition, manifest
rng = np.random.default_rng(0)
n = 600
source, target = rng.integers(0, n, 2400), rng.integers(0, n, 2400)
near = rng.random(2400) < 0.8
target = np.where(near, source // 30 * 30 + target % 30, target)
indptr, indices = csr_from_pairs(source, target, n)
ids, labels = np.array([f"n{i}" for i in range(n)]), np.arange(n) // 30 % 4
split = np.zeros(n, np.uint8)
graph = TextGraph("toy", ids, ["t"] * n, labels, tuple("abcd"), indptr, indices, split)
for method in sys.argv[1:]:
    spec = PartitionSpec(method, 7, 3, 1.0, 0.6, 0.2, 0.2)
    print(manifest(graph, make_partition(graph, spec))["sha256"])
assert "torch" not in sys.modules, "partitioning needs no torch"
"""


def test_neither_hash_seed_nor_threads_decide():
    methods = ["louvain", "label-dirichlet", "random"]
    found = []
    for hash_seed, threads in (("0", "1"), ("12345", "4")):
        said = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "OMP_NUM_THREADS": threads,
            "PYTHONPATH": str(PROJECT),
        }
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *methods], env=said, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    assert found[0] == found[1]
    assert len(set(found[0])) == 3
