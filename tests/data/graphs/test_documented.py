"""The built-in graphs of citations, relations and sites, made from installed documentation."""

import hashlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from dance_flwr.config.plugins import DATASETS
from dance_flwr.data.graphs import pydocs, pydocs_citations, pydocs_relations, pydocs_sites
from dance_flwr.data.graphs.built_in import BUILT_IN
from dance_flwr.data.graphs.documented import MIN_CLASS, Documents, Names, plain_text, sections
from dance_flwr.data.graphs.graph import UNLABELLED
from dance_flwr.data.graphs.pydocs_small import MAX_TEXT
from dance_flwr.data.imports.describe import labelled_homophily
from dance_flwr.data.partition.by_column import column_assignment
from dance_flwr.data.partition.spec import OUTSIDE
from dance_flwr.errors import DataError

NAMES = ("pydocs-citations", "pydocs-relations", "pydocs-sites")
BUILD_IN_ANOTHER_ORDER = """
import sklearn.experimental.enable_halving_search_cv, scipy.stats
import functools, hashlib, sys
from dance_flwr.config.plugins import DATASETS
from dance_flwr.data.graphs import pydocs
pydocs.build = functools.cache(pydocs.build)
for name in reversed(sys.argv[1:]):
    g = DATASETS.get(name).build()
    parts = (g.ids, g.texts, g.class_names, g.labels, g.indptr, g.indices, g.site)
    text = repr([part.tolist() if hasattr(part, "tolist") else part for part in parts])
    print(name, hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest())
"""


@pytest.fixture(scope="module")
def relations():
    return pydocs_relations.build_with_relations()


@pytest.fixture(scope="module")
def graphs(relations):
    built = {name: DATASETS.get(name).build() for name in NAMES if name != "pydocs-relations"}
    return {**built, "pydocs-relations": relations[0]}


def digest(g) -> str:
    parts = (g.ids, g.texts, g.class_names, g.labels, g.indptr, g.indices, g.site)
    text = repr([part.tolist() if hasattr(part, "tolist") else part for part in parts])
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_a_set_is_small_linked_and_of_several_classes(graphs, name):
    graph = graphs[name]
    labelled = graph.labels != UNLABELLED
    assert (graph.name, len(set(graph.ids.tolist()))) == (name, graph.num_nodes)
    assert 1000 <= graph.num_nodes <= 4000
    assert np.diff(graph.indptr).min() >= 1
    assert len(graph.class_names) >= 8
    assert np.bincount(graph.labels[labelled]).min() >= MIN_CLASS
    # Classes of the whole are not decided by one of them.
    assert np.bincount(graph.labels[labelled]).max() <= 0.4 * labelled.sum()
    assert labelled.mean() >= 0.6
    assert 0.5 < labelled_homophily(graph) < 1
    assert set(graph.provenance) >= {"scipy", "scikit-learn", "networkx"}


@pytest.mark.parametrize("name", NAMES)
def test_every_node_has_a_text_and_no_text_names_a_module(graphs, name):
    graph = graphs[name]
    modules = {module for modules in pydocs_sites.TOPICS.values() for module in modules}
    paths = {path for path in (*graph.class_names, *modules) if "." in path}
    packages = "networkx|numpy|scipy|sklearn|torch|torch_geometric"
    qualified = re.compile(rf"(?<![\w.])(?:{packages})\.[A-Za-z_]\w+")
    for node, text in zip(graph.ids.tolist(), graph.texts, strict=True):
        assert text.strip(), node
        assert len(text) <= MAX_TEXT
        assert not any(path in text for path in paths), node
        assert not qualified.search(text), node
        assert "https://" not in text


def test_hash_seed_and_order_of_imports_do_not_matter(graphs):
    env = {
        **os.environ,
        "PYTHONHASHSEED": "77",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    every = {"pydocs-full": pydocs.build(), **graphs}
    command = [sys.executable, "-c", BUILD_IN_ANOTHER_ORDER, *every]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        name: digest(graph) for name, graph in every.items()
    }


def test_every_set_has_an_identity_and_facts_for_the_list():
    assert len({DATASETS.get(name).identity() for name in DATASETS}) == len(DATASETS)
    assert set(BUILT_IN) == set(DATASETS)
    assert pydocs.identity() in pydocs_citations.identity()
    assert all(f"{d}=" in pydocs_sites.identity() for d in pydocs_sites.DISTRIBUTIONS)


def test_citations_lead_to_the_cited_works(graphs):
    graph = graphs["pydocs-citations"]
    is_work = np.char.startswith(graph.ids, "work: ")
    assert 500 <= is_work.sum() <= graph.num_nodes - 500
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    assert not (is_work[source] & is_work[graph.indices]).any()
    # A work of several functions has the class of most of them.
    for node in np.flatnonzero(is_work & (graph.labels != UNLABELLED)):
        citing = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        labels = graph.labels[citing]
        counts = np.bincount(labels[labels != UNLABELLED], minlength=len(graph.class_names))
        assert counts[graph.labels[node]] == counts.max()


def test_relations_are_the_edges_and_have_texts(relations):
    graph, (source, target, texts) = relations
    pairs = {(min(s, t), max(s, t)) for s, t in zip(source.tolist(), target.tolist(), strict=True)}
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    assert pairs == {
        (s, t) for s, t in zip(rows.tolist(), graph.indices.tolist(), strict=True) if s < t
    }
    assert len(source) == len(target) == len(texts) > graph.num_edges
    kinds = {text.partition(":")[0] for text in texts}
    assert kinds >= {"see also", "raises", "takes", "returns", "subclass of"}
    names = graph.ids.tolist()
    triples = {
        (names[s], t.partition(":")[0], names[o])
        for s, o, t in zip(source, target, texts, strict=True)
    }
    linear, bases = "sklearn.linear_model", "sklearn.base"
    assert triples >= {
        (f"{linear}.Ridge", "see also", f"{linear}.RidgeClassifier"),
        (f"{linear}.Lasso", "subclass of", f"{linear}.ElasticNet"),
        # Through a private base class.
        ("sklearn.decomposition.PCA", "subclass of", f"{bases}.TransformerMixin"),
    }
    # Not the bases of a base class that is a node itself.
    assert (f"{linear}.Lasso", "subclass of", f"{bases}.RegressorMixin") not in triples


def test_sites_share_topics_and_make_clients(graphs):
    graph = graphs["pydocs-sites"]
    sites, sizes = np.unique(graph.site, return_counts=True)
    assert sites.tolist() == ["networkx", "numpy", "scipy", "sklearn", "torch", "torch_geometric"]
    assert sizes.min() >= 50
    assert all(
        name.startswith(f"{site}.") for name, site in zip(graph.ids, graph.site, strict=True)
    )
    held = {
        (site, label)
        for site, label in zip(graph.site.tolist(), graph.labels.tolist(), strict=True)
    }
    shared = np.bincount([label for _, label in held])
    assert shared.min() >= 2
    client = column_assignment(graph, 5)
    assert set(client.tolist()) == {OUTSIDE, 0, 1, 2, 3, 4}
    assert set(graph.site[client == OUTSIDE].tolist()) == {sites[sizes.argmin()]}


def test_documents_without_an_edge_are_left_out_and_rare_classes_unlabelled():
    many = MIN_CLASS + 1
    documents = Documents(
        ids=[f"n{i:02}" for i in range(many + 2)],
        texts=[str(i) for i in range(many + 2)],
        classes=["b"] * many + ["a", "b"],
        edges={(many, i) for i in range(many - 1)} | {(0, many)},
        sites=["s"] * (many + 2),
    )
    graph = documents.graph("g", ("numpy",))
    # Of class "b", `many - 1` are linked; the only one of class "a" links them all.
    assert graph.ids.tolist() == [f"n{i:02}" for i in (*range(many - 1), many)]
    assert graph.class_names == ("b",)
    assert graph.labels.tolist() == [0] * (many - 1) + [UNLABELLED]
    assert graph.num_edges == many - 1
    assert graph.texts[-1] == str(many)
    assert graph.provenance == {"numpy": np.__version__}


@pytest.mark.parametrize(
    ("mention", "node"),
    [
        ("pkg.b.far", 1),
        ("near", 2),  # in the same module, although another module has the name too
        ("far", 1),  # the only one of the package
        ("near.method", 2),
        ("~pkg.b.far.method", 1),
        ("twice", None),  # two candidates
        ("elsewhere", None),  # in another package
        ("np.add", 6),
    ],
)
def test_a_mention_means_one_node(mention, node):
    names = ["pkg.a.user", "pkg.b.far", "pkg.a.near", "pkg.b.near", "pkg.x.twice", "pkg.y.twice"]
    assert Names([*names, "numpy.add", "oth.elsewhere"]).resolve(mention, "pkg.a.user") == node


DOC = """Do a thing, as torch.linalg.norm does, e.g. twice.

Parameters
----------
kernel : Kernel or None
    The kernel. Default is None.
alpha: real

Raises
------
:exc:`pkg.Error`
    If it fails.

See Also
--------
near, far : Two of them,
    described.
lonely
The other functions do more.

References
----------
.. [1] A. Author, "On Things", Journal, vol. 3, pp. 1-2, 1999.
       https://doi.org/10.1/2
.. [KR] A. Author, "On things". Journal, 1999.
.. [2] Wikipedia
"""


def test_the_parts_of_a_docstring():
    assert plain_text(DOC).startswith("Do a thing, as norm does, e.g. twice.")
    titles = [title for title, _ in sections(DOC)]
    assert titles == ["parameters", "raises", "see also", "references"]
    entries = [
        pydocs_relations._parts(title, head, below)
        for title, body in sections(DOC)
        if title in pydocs_relations.SECTIONS
        for head, below in pydocs_relations._items(body)
    ]
    assert entries == [
        (["Kernel", "None"], "kernel, The kernel."),
        (["real"], "alpha"),
        (["pkg.Error"], "If it fails."),
        (["near", "far"], "Two of them, described."),
        (["lonely"], ""),
        (["The other functions do more."], ""),
    ]
    works = list(pydocs_citations._entries(DOC))
    assert works == [
        ("a author on things journal", 'A. Author, "On Things", Journal, vol. 3, pp. 1-2, 1999.'),
        ("a author on things journal", 'A. Author, "On things". Journal, 1999.'),
    ]


def test_a_module_that_a_release_lacks_is_omitted_and_logged(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "scipy.fft", None)
    documents = pydocs_sites._documents(["numpy.fft", "scipy.fft"])
    assert {name.rpartition(".")[0] for name in documents} == {"numpy.fft"}
    assert "scipy.fft cannot be imported" in caplog.text


def test_stripped_docstrings_are_refused(monkeypatch):
    pydocs.build.cache_clear()
    monkeypatch.setattr(sys, "flags", type("Flags", (), {"optimize": 2}))
    for build in (pydocs_citations.build, pydocs_relations.build, pydocs_sites.build):
        with pytest.raises(DataError, match="run it without -OO"):
            build()
