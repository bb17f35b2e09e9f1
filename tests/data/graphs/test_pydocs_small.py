"""The small documentation graph: what it keeps of the large one, and what it costs."""

import numpy as np
import pytest

from dance_flwr.config.plugins import DATASETS
from dance_flwr.data.graphs import pydocs_small
from dance_flwr.data.graphs.graph import edge_homophily
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.text.chunking import chunk_texts
from dance_flwr.data.text.encoder import DEFAULT_ENCODER, resolve_encoder


@pytest.fixture(scope="module")
def small():
    return load_graph("pydocs")


@pytest.fixture(scope="module")
def full():
    return load_graph("pydocs-full")


def test_its_texts_are_encoded_within_a_minute(small):
    """Two cores encode 4,000 tokens per second and more."""
    tokenizer = resolve_encoder(DEFAULT_ENCODER, "float32").load_tokenizer()
    chunks = chunk_texts(list(dict.fromkeys(small.texts)), tokenizer, 64, 8)
    assert chunks.tokens.sum() <= 240_000
    assert not chunks.truncated.any()


def test_every_node_is_linked_and_every_area_is_large_and_named(small):
    assert np.diff(small.indptr).min() >= 1
    assert np.bincount(small.labels).min() >= pydocs_small.MIN_LINKED
    assert np.unique(small.labels).size == len(small.class_names) >= 8
    assert not [name for name in small.class_names if name.endswith(".other")]
    assert 1500 <= small.num_nodes <= 2000
    assert small.num_edges >= 3000
    assert 0.5 < edge_homophily(small) < 0.95


def test_nodes_labels_and_edges_are_those_of_the_full_graph(small, full):
    place = {name: i for i, name in enumerate(full.ids.tolist())}
    nodes = np.array([place[name] for name in small.ids.tolist()])
    assert (np.diff(nodes) > 0).all()
    labels = [[g.class_names[k] for k in g.labels] for g in (small, full)]
    assert labels[0] == [labels[1][node] for node in nodes]
    assert (small.adjacency() != full.adjacency()[nodes][:, nodes]).nnz == 0
    assert all(full.texts[i].startswith(t) for i, t in zip(nodes, small.texts, strict=True))
    assert max(map(len, small.texts)) <= pydocs_small.MAX_TEXT
    assert (small.name, full.name) == ("pydocs", "pydocs-full")


def test_no_node_is_left_out_that_could_be_kept(small, full):
    """Nodes of kept areas that are left out have no edge to a kept node."""
    kept = np.isin(full.ids, small.ids)
    areas = np.array([name in small.class_names for name in full.class_names])
    beside = areas[full.labels] & ~kept
    assert beside.any()
    assert not (full.adjacency().astype(np.int64) @ kept.astype(np.int64))[beside].any()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("short", "short"),
        ("one\ntwo\nthree", "one\ntwo"),  # whole lines
        ("one two three four", "one two th"),  # one long line
        ("1234567890\nmore", "1234567890"),  # the line ends at the limit
        ("one\n\n\n\n\n\n\n\n\n\nend", "one"),  # no white space at the end
    ],
)
def test_the_beginning_of_a_text(text, kept):
    assert pydocs_small.beginning(text, 10) == kept


def test_the_two_graphs_have_identities_of_their_own():
    assert DATASETS.get("pydocs").identity() != DATASETS.get("pydocs-full").identity()
