"""Settings that make a partition harder: labels kept, sites left out, and how they are stored."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.partitions import SPEC, cliques, make_graph

from dance_flwr.data.graphs.graph import NO_SPLIT, TRAIN
from dance_flwr.data.partition import client_nodes, make_partition, manifest, reproduce
from dance_flwr.data.partition.split import keep_labels
from dance_flwr.errors import DataError

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
