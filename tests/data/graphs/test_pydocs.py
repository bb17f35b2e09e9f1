"""The documentation graph of the installed packages."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from dance_flwr.data.graphs import pydocs
from dance_flwr.data.graphs.graph import edge_homophily
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.text.chunking import chunk_texts
from dance_flwr.data.text.encoder import DEFAULT_ENCODER, resolve_encoder


@pytest.fixture(scope="module")
def graph():
    return load_graph("pydocs")


def index(graph, name: str) -> int:
    found = np.flatnonzero(graph.ids == name)
    assert len(found) == 1, name
    return int(found[0])


def linked(graph, one: str, two: str) -> bool:
    i = index(graph, one)
    return index(graph, two) in graph.indices[graph.indptr[i] : graph.indptr[i + 1]]


def label(graph, name: str) -> str:
    return graph.class_names[graph.labels[index(graph, name)]]


def test_size_is_what_the_experiments_expect(graph):
    assert 1500 <= graph.num_nodes <= 2000
    assert graph.num_edges >= 3000
    assert len(graph.class_names) >= 8
    assert graph.labels.min() == 0
    assert np.bincount(graph.labels).min() >= pydocs.MIN_LINKED
    assert np.diff(graph.indptr).min() >= 1
    assert max(map(len, graph.texts)) <= pydocs.MAX_TEXT
    # labels must have to do with the edges, yet not decide them
    assert 0.5 < edge_homophily(graph) < 0.95
    assert graph.ids.tolist() == sorted(graph.ids.tolist())


def test_its_texts_are_encoded_within_a_minute(graph):
    """Two cores encode 4,000 tokens per second and more."""
    tokenizer = resolve_encoder(DEFAULT_ENCODER, "float32").load_tokenizer()
    chunks = chunk_texts(list(dict.fromkeys(graph.texts)), tokenizer, 64, 8)
    assert chunks.tokens.sum() <= 240_000
    assert not chunks.truncated.any()


def test_every_kind_of_object_counts_once_under_its_public_name(graph):
    for name, area in [
        ("numpy.add", "numpy"),  # a ufunc
        ("scipy.stats.linregress", "scipy.stats"),
        ("scipy.stats.norm", "scipy.stats"),  # an instance with a text of its own
        ("sklearn.metrics.accuracy_score", "sklearn.metrics"),
    ]:
        assert label(graph, name) == area
    assert not any(re.search(r"(^|\.)_|\.tests\.", name) for name in graph.ids)


def test_edges_follow_the_documentation(graph):
    assert linked(graph, "numpy.add", "numpy.ndarray") is False
    assert linked(graph, "numpy.cumsum", "numpy.sum")
    # `random_state` docs name the class by its full path, across packages
    assert linked(graph, "scipy.stats.bootstrap", "numpy.random.Generator")


def test_texts_hold_neither_the_neighbour_lists_nor_the_label(graph):
    text = "\n".join(graph.texts)
    assert not re.search(
        r"^(See Also|References|Examples)\n-{3,}", text, re.MULTILINE | re.IGNORECASE
    )
    assert ":func:`" not in text
    dotted = [i for i, t in enumerate(graph.texts) if graph.ids[i] in t]
    assert dotted == []
    leaking = [
        i
        for i, t in enumerate(graph.texts)
        if (area := graph.class_names[graph.labels[i]]).count(".") and area in t
    ]
    assert leaking == []


def test_stripped_docstrings_are_refused():
    code = "from dance_flwr.data.graphs.pydocs import build\nbuild()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-OO", "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "-OO" in done.stderr.splitlines()[-1]


def entry(doc: str, name: str = "pkg.area.here") -> pydocs._Entry:
    return pydocs._Entry(name, (name,), doc)


DOC = """Do a thing with `alpha`, ``beta`` and `t`.

See :func:`text <pkg.gamma>` and :class:`~pkg.area.Delta`.

Parameters
----------
alpha : int
    Unlike ``epsilon(x)``, quoted code, it is `a + b`.

See Also
--------
zeta, eta : Two of them,
    described with `theta` here.
iota: no space before the colon
:func:`kappa`
lam

References
----------
.. [1] Nobody, `https://example.org`.
"""


def test_mentions_are_the_references_and_not_the_parameters():
    assert pydocs.mentions(DOC) == {
        "beta",
        "pkg.gamma",
        "pkg.area.Delta",
        "zeta",
        "eta",
        "iota",
        "kappa",
        "lam",
    }


def test_node_text_drops_sections_markup_and_qualified_names():
    text = pydocs.node_text(
        DOC + "\nNotes\n-----\nAs in `scipy.stats.norm`, np.linalg.det and `a <https://x.y/z>`__.\n"
    )
    assert "zeta" not in text
    assert "Nobody" not in text
    assert (
        "See text and Delta" not in text
    )  # a role keeps its target or its text, not only the last component
    assert "See text and pkg.area.Delta." in text
    assert text.endswith("As in `norm`, det and a.")


@pytest.mark.parametrize(
    ("mention", "node"),
    [
        ("pkg.other.far", 1),  # full path
        ("near", 2),  # in the same module, although another module has the name too
        ("far", 1),  # the only one of the package
        ("Near.method", None),
        ("near.method", 2),  # a method counts for its class
        ("twice", None),  # two candidates
        ("elsewhere", None),  # other package
    ],
)
def test_a_mention_resolves_to_exactly_one_node(mention, node):
    names = [
        "pkg.area.here",
        "pkg.other.far",
        "pkg.area.near",
        "pkg.other.near",
        "pkg.x.twice",
        "pkg.y.twice",
    ]
    entries = [entry("", name) for name in [*names, "oth.elsewhere"]]
    entries[0] = entry(f"`{mention}`")
    expected = set() if node is None else {(0, node)}
    assert pydocs._links(entries) == expected


def test_a_graph_prints_counts_and_no_text(graph):
    assert repr(graph) == (
        f"TextGraph({graph.name!r}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, "
        f"{len(graph.class_names)} classes)"
    )
