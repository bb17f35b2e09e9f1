"""Partitions: who holds what, the split, and the manifest."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.partitions import SPEC, cliques, graph_and_clients, make_graph
from support.project import PROJECT

from dance_flwr.config.plugins import PARTITIONERS
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.partition import (
    client_nodes,
    make_partition,
    manifest,
    read_manifest,
    resolve_split,
    stratified_split,
    write_manifest,
)
from dance_flwr.errors import DataError

RATIOS = (0.6, 0.2, 0.2)
COMMITTED = PROJECT / "partitions"
METHODS = sorted(
    {*PARTITIONERS} - {"by-column", "metis"}
)  # those that need neither sites nor an extra


def louvain(graph, clients, seed, resolution):
    spec = replace(SPEC, clients=clients, seed=seed, resolution=resolution)
    return make_partition(graph, spec).assignment


@pytest.mark.parametrize("method", [*METHODS, "metis"])
@given(case=graph_and_clients(), seed=st.integers(0, 5), far=st.sampled_from([0.1, 1.0, 1e4]))
def test_every_client_has_nodes_and_the_seed_decides(method, case, seed, far):
    """`far` is the resolution of Louvain and the alpha of a Dirichlet distribution."""
    if method == "metis":
        pytest.importorskip("pymetis")
    graph, clients = case
    keys = {"method": method, "clients": clients, "seed": seed, "alpha": far}
    spec = replace(SPEC, **keys, resolution=min(far, 3.0))
    # Of the partitioner itself: what it leaves empty would be refused.
    assignment = PARTITIONERS.get(method)(graph, spec)
    assert assignment.shape == (graph.num_nodes,) and assignment.dtype == np.int64
    sizes = np.bincount(assignment, minlength=clients)
    assert len(sizes) == clients and sizes.min() >= 1
    if method == "louvain":
        assert sizes.max() - sizes.min() <= max(1, int(1.2 * graph.num_nodes / clients))
        assert sizes.max() <= 2 * graph.num_nodes / clients
    assert np.array_equal(assignment, PARTITIONERS.get(method)(graph, spec))


def test_louvain_keeps_known_communities_whole():
    graph = cliques(6, 10)
    assignment = louvain(graph, 3, 0, 1.0)
    assert np.bincount(assignment).tolist() == [20, 20, 20]
    # connected_caveman rewires one edge of each clique, so its nodes stay together
    assert all(len(set(assignment[k * 10 : (k + 1) * 10])) == 1 for k in range(6))


def test_one_large_community_is_split_along_its_inner_structure():
    graph = cliques(4, 8)
    # resolution near zero makes the ring one community, above any client's size
    assignment = louvain(graph, 4, 0, 0.001)
    assert np.bincount(assignment).tolist() == [8, 8, 8, 8]
    kept = manifest(graph, make_partition(graph, replace(SPEC, clients=4, resolution=0.001)))[
        "ratio_of_edges_kept"
    ]
    assert kept > 0.8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clients": 8}, "found 8"),
        ({"clients": 0}, "found 0"),
        ({"method": "random", "clients": 8}, "1..7"),
        ({"seed": -1}, "found -1"),
        ({"resolution": 0.0}, "found 0.0"),
        ({"resolution": float("inf")}, "found inf"),
        ({"train_ratio": 0.7}, "0.7, 0.2, 0.2"),
        ({"train_ratio": 1.2, "val_ratio": -0.4}, "1.2, -0.4, 0.2"),
        ({"train_ratio": float("nan")}, "nan"),
        ({"labels_per_class": -1}, "labels_per_class: expected a number >= 0, found -1"),
        ({"foreign_text_ratio": 1.0}, "foreign_text_ratio: expected a number >= 0 and < 1"),
        ({"random_edge_ratio": float("inf")}, "random_edge_ratio: expected a number >= 0"),
        ({"random_edge_ratio": float("nan")}, "found nan"),
        ({"max_client_nodes": -5}, "max_client_nodes: expected a number >= 0, found -5"),
        ({"method": "by-column"}, "column 'site'"),
        ({"sites": "abaaaaa"}, "at most as many clients as sites, 2, found 3"),
        ({"sites": ["a", "", *"bcdef"]}, "found none for n1"),
        (
            {"sites": "aabbccc", "max_client_nodes": 2},
            "sites of at most 2 nodes, 2, found 3; set clients to 2 or fewer",
        ),
    ],
)
def test_bad_settings_are_refused_in_one_line(change, said):
    graph, change = make_graph(7, [(0, 1)]), dict(change)
    if sites := change.pop("sites", None):
        graph, change = replace(graph, site=np.array([*sites])), change | {"method": "by-column"}
    with pytest.raises(DataError) as caught:
        make_partition(graph, replace(SPEC, **change))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    labels=st.lists(st.integers(-1, 2), min_size=1, max_size=60),
    clients=st.integers(1, 4),
    ratios=st.sampled_from(
        [
            RATIOS,
            (0.1, 0.2, 0.7),
            (0.5, 0.5, 0.0),
            (1.0, 0.0, 0.0),
            (0.0, 0.0, 1.0),
            (0.7, 0.2, 0.1),
        ]
    ),
    seed=st.integers(0, 50),
)
def test_each_cell_is_within_one_of_its_share(labels, clients, ratios, seed):
    n = len(labels)
    graph = make_graph(n, [], labels)
    assignment = np.arange(n, dtype=np.int64) * clients // n
    split = stratified_split(graph, assignment, ratios, seed)
    assert np.array_equal(split == NO_SPLIT, graph.labels == -1)
    assert np.array_equal(split, stratified_split(graph, assignment, ratios, seed))
    for client in range(clients):
        for label in range(3):
            cell = split[(assignment == client) & (graph.labels == label)]
            for part, ratio in zip((TRAIN, VAL, TEST), ratios, strict=True):
                assert abs((cell == part).sum() - ratio * len(cell)) < 1 + 1e-9
                assert ratio > 0 or not (cell == part).any()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tiny_cells_are_unbiased(size):
    cells = 2000
    graph = make_graph(cells * size, [], np.zeros(cells * size, np.int64), classes=1)
    assignment = np.repeat(np.arange(cells, dtype=np.int64), size)
    split = stratified_split(graph, assignment, RATIOS, 3)
    shares = np.bincount(split, minlength=4)[1:] / len(split)
    # 2000 independent cells of at least one node: four standard errors of a share are below 0.045
    assert np.allclose(shares, RATIOS, atol=0.045)
    # and each place in a cell is as likely to train as the next
    first = split.reshape(cells, size)[:, 0]
    assert abs((first == TRAIN).mean() - 0.6) < 0.045


def test_a_given_split_is_used_as_it_is():
    graph = make_graph(4, [])
    given_split = np.array([NO_SPLIT, TEST, TRAIN, TRAIN], np.uint8)
    own = replace(graph, split=given_split)
    assert np.array_equal(resolve_split(own, np.zeros(4, np.int64), RATIOS, 0), given_split)
    assert resolve_split(graph, np.zeros(4, np.int64), RATIOS, 0).all()


def test_manifest_counts_add_up():
    graph = replace(cliques(6, 10), labels=np.array([-1, *(np.arange(59) % 3)], np.int64))
    partition = make_partition(graph, SPEC)
    content = manifest(graph, partition)
    clients = content["clients"]
    assert sum(client["nodes"] for client in clients) == content["num_nodes"] == 60
    assert sum(sum(client["nodes_per_class"].values()) for client in clients) == 59
    assert sum(client["nodes_per_split"]["none"] for client in clients) == 1
    assert all(sum(client["nodes_per_split"].values()) == client["nodes"] for client in clients)
    inner = [graph.subgraph(client_nodes(partition, k), "k").num_edges for k in range(3)]
    assert [client["edges"] for client in clients] == inner
    assert content["ratio_of_edges_kept"] == pytest.approx(sum(inner) / graph.num_edges)
    assert content["spec"]["method"] == "louvain"
    assert content["provenance"] == {"made": "here"}
    assert json.loads(json.dumps(content)) == content


@pytest.mark.parametrize(
    ("alter", "said"),
    [
        (lambda c: c["spec"].update(seed=9), "altered"),
        (lambda c: c["clients"][0].update(nodes=1), "altered"),
        (lambda c: c.update(extra=1), "altered"),
        (lambda c: c.pop("class_names"), "class_names"),
        (lambda c: c.pop("sha256"), "sha256"),
        (lambda c: c.update(version=99), "99"),
    ],
)
def test_an_altered_manifest_is_refused(tmp_path, alter, said):
    graph = cliques(3, 4)
    content = manifest(graph, make_partition(graph, SPEC))
    alter(content)
    path = tmp_path / "manifest.json"
    write_manifest(path, content)
    with pytest.raises(DataError) as caught:
        read_manifest(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", "3", ""])
def test_a_file_that_is_no_manifest_is_refused(tmp_path, text):
    path = tmp_path / "manifest.json"
    with pytest.raises(DataError, match="found none"):
        read_manifest(path)
    path.write_text(text)
    with pytest.raises(DataError, match="expected"):
        read_manifest(path)


@pytest.mark.cora
@pytest.mark.skipif(
    "DANCE_FLWR_CORA" not in os.environ, reason="set DANCE_FLWR_CORA to the Cora folder to run this"
)
def test_cora_keeps_most_of_its_edges():
    graph = load_graph(os.environ["DANCE_FLWR_CORA"])
    assert (graph.num_nodes, len(graph.indices), len(graph.class_names)) == (2708, 10556, 7)
    for seed in range(5):
        content = manifest(graph, make_partition(graph, replace(SPEC, clients=5, seed=seed)))
        assert content == read_manifest(COMMITTED / f"cora-louvain-5-seed{seed}.json")
        sizes = [client["nodes"] for client in content["clients"]]
        assert content["ratio_of_edges_kept"] > 0.85
        assert max(sizes) - min(sizes) <= 5


def test_the_committed_manifest_of_pydocs_comes_out_again():
    kept = read_manifest(COMMITTED / "pydocs-louvain-5-seed0.json")
    graph = load_graph("pydocs")
    assert manifest(graph, make_partition(graph, replace(SPEC, clients=5))) == kept
