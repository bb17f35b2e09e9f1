"""Partitions: who holds what, the split, harder regimes, figures and manifests."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import networkx as nx
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
    report,
    reproduce,
    resolve_split,
    stratified_split,
    write_manifest,
)
from dance_flwr.data.partition.louvain import louvain_labels
from dance_flwr.data.partition.pack import fill_empty
from dance_flwr.data.partition.report import total_variation
from dance_flwr.data.partition.split import keep_labels
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


SCRIPT = """
import sys
from dataclasses import replace
import numpy as np
from dance_flwr.data.partition import make_partition, manifest
from support.partitions import SPEC, make_graph
rng = np.random.default_rng(0)
source, target = rng.integers(0, 600, 2400), rng.integers(0, 600, 2400)
near = rng.random(2400) < 0.8
target = np.where(near, source // 30 * 30 + target % 30, target)
graph = make_graph(600, zip(source, target), np.arange(600) // 30 % 4, 4)
for method in sys.argv[1:]:
    spec = replace(SPEC, method=method, clients=7, seed=3)
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
            "PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}",
        }
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *methods], env=said, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


RANDOM = replace(SPEC, method="random")
CHANGES = [
    {"labels_per_class": 5},
    {"foreign_text_ratio": 0.5},
    {"random_edge_ratio": 0.25},
    {"max_client_nodes": 20},
]


@given(
    nodes=st.lists(st.tuples(st.integers(-1, 3), st.sampled_from([0, 1, 2, 3])), max_size=60),
    per_class=st.integers(1, 6),
    seed=st.integers(0, 5),
)
def test_each_class_keeps_so_many_of_its_training_nodes(nodes, per_class, seed):
    labels = np.array([label for label, _ in nodes], np.int64)
    split = np.array([part for _, part in nodes], np.uint8)
    kept = keep_labels(split, labels, per_class, seed)
    assert kept.dtype == np.uint8
    for label in range(4):
        cell = labels == label
        assert (kept[cell] == TRAIN).sum() == min(per_class, (split[cell] == TRAIN).sum())
    assert not (kept[labels == -1] == TRAIN).any()
    others = split != TRAIN
    assert np.array_equal(kept[others], split[others])
    assert set(kept[~others].tolist()) <= {TRAIN, NO_SPLIT}
    more = keep_labels(split, labels, per_class + 1, seed)
    assert (more[kept == TRAIN] == TRAIN).all()
    assert np.array_equal(kept, keep_labels(split, labels, per_class, seed))


def test_without_these_settings_manifests_are_those_of_earlier_versions():
    """Digests written by the version before them."""
    digests = [
        manifest(cliques(6, 10), make_partition(cliques(6, 10), replace(RANDOM, seed=seed)))[
            "sha256"
        ]
        for seed in (0, 1)
    ]
    assert digests == [
        "1c15586d042e99daeb8d09ac64af223d6b7a92913e568f57c8c0c8028cc032d9",
        "71aaffd90b6e310f61101c555e4ff0830919bd8e8c0c01f40979cf72cf10efa6",
    ]


def test_every_regime_has_a_manifest_of_its_own_that_reproduces_it():
    graph = replace(cliques(6, 10), site=np.repeat(["a", "b", "c"], 20))
    base = replace(SPEC, method="by-column")
    seen = {manifest(graph, make_partition(graph, base))["sha256"]}
    for change in CHANGES:
        partition = make_partition(graph, replace(base, **change))
        content = manifest(graph, partition)
        assert content["spec"] == base.settings() | change
        again = reproduce(graph, content)
        assert again.spec == partition.spec and np.array_equal(again.split, partition.split)
        seen.add(content["sha256"])
    assert len(seen) == 1 + len(CHANGES)


def test_a_manifest_with_an_unknown_setting_is_refused():
    graph = cliques(3, 4)
    content = manifest(graph, make_partition(graph, RANDOM))
    for spec in (content["spec"] | {"colour": 1}, {"method": "random"}):
        with pytest.raises(DataError, match="manifest spec: expected the keys"):
            reproduce(graph, content | {"spec": spec})


def test_sites_above_the_limit_take_no_part():
    """Sites of 4, 3, 2, 2 and 1 nodes: the largest two of at most three, by name b and c."""
    site = np.repeat(["a", "b", "c", "d", "e"], [4, 3, 2, 2, 1])
    graph = replace(make_graph(12, []), site=site)
    clients = np.repeat([-1, 0, 1, -1, -1], [4, 3, 2, 2, 1]).tolist()
    by_sites = replace(SPEC, method="by-column", clients=2)
    limited = make_partition(graph, replace(by_sites, max_client_nodes=3))
    assert limited.assignment.tolist() == clients
    assert [client_nodes(limited, k).tolist() for k in (0, 1)] == [[4, 5, 6], [7, 8]]
    all_fit = make_partition(graph, replace(by_sites, max_client_nodes=4))
    assert np.array_equal(all_fit.assignment, make_partition(graph, by_sites).assignment)


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
