"""Reading and writing graph folders, and finding a graph by name."""

import subprocess
import sys
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.imports import in_this_process

from dance_flwr.config.plugins import DATASETS
from dance_flwr.data.graphs.catalogue import GraphSource
from dance_flwr.data.graphs.folder import read_folder, write_folder
from dance_flwr.data.graphs.graph import TextGraph, csr_from_pairs
from dance_flwr.data.imports.importer import import_graph, read_graph
from dance_flwr.data.imports.loading import absolute_source, load_graph, source_identity
from dance_flwr.data.imports.options import Options
from dance_flwr.data.partition import PartitionSpec, make_partition
from dance_flwr.errors import DataError

NODES = "id,text,label,split\na,first,x,train\nb,second,,val\nc,third,y,\nd,fourth,x,test\n"
EDGES = "source,target\na,b\nb,a\nc,c\nd,a\na,b\n"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "toy"
    path.mkdir()
    (path / "nodes.csv").write_text(NODES)
    (path / "edges.csv").write_text(EDGES)
    return path


def same(one: TextGraph, two: TextGraph) -> bool:
    arrays = ("ids", "labels", "indptr", "indices", "split")
    plain = ("texts", "class_names")
    return all(np.array_equal(getattr(one, k), getattr(two, k)) for k in arrays) and all(
        getattr(one, k) == getattr(two, k) for k in plain
    )


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@st.composite
def graphs(draw):
    ids = draw(st.lists(TEXT.filter(bool), min_size=1, max_size=8, unique=True))
    n = len(ids)
    names = tuple(sorted(draw(st.sets(TEXT.filter(bool), max_size=3))))
    ends = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=12))
    pairs = np.array(ends, np.int64).reshape(-1, 2)
    indptr, indices = csr_from_pairs(pairs[:, 0], pairs[:, 1], n)
    each = {"min_size": n, "max_size": n}
    return TextGraph(
        name="g",
        ids=np.array(ids),
        texts=draw(st.lists(TEXT, **each)),
        labels=np.array(draw(st.lists(st.integers(-1, len(names) - 1), **each)), np.int64),
        class_names=names,
        indptr=indptr,
        indices=indices,
        split=np.array(draw(st.lists(st.integers(0, 3), **each)), np.uint8),
    )


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
@pytest.mark.filterwarnings("ignore:.*empty text")
def test_what_is_written_is_read_back(graph, tmp_path_factory):
    path = tmp_path_factory.mktemp("round") / "g"
    write_folder(graph, path)
    again = read_folder(path)
    assert same(again, graph)
    assert again.name == graph.name
    assert sorted(file.name for file in path.iterdir()) == ["edges.parquet", "nodes.parquet"]
    assert pq.read_metadata(path / "edges.parquet").num_rows == graph.num_edges


@in_this_process()
def test_writing_beside_another_format_is_refused(folder):
    with pytest.raises(DataError, match=r"nodes\.csv"):
        write_folder(read_graph(folder), folder)


@in_this_process()
def test_load_graph_finds_folders_and_names(folder, monkeypatch):
    assert same(load_graph(str(folder)), read_graph(folder))
    marker = read_graph(folder)
    module = types.ModuleType("fake_builder")
    module.DATASET = GraphSource(build=lambda: marker, identity=lambda: "1")
    monkeypatch.setitem(sys.modules, "fake_builder", module)
    monkeypatch.setitem(DATASETS.builtin, "fake", "fake_builder:DATASET")
    assert load_graph("fake") is marker
    assert source_identity("fake") == "fake:1"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./nothing/here", "found './nothing/here'"),
        ("pydoc", "found 'pydoc'; did you mean 'pydocs'?"),
        ("", "found ''"),
    ],
)
def test_load_graph_lists_the_known_names(name, said):
    with pytest.raises(DataError) as caught:
        load_graph(name)
    message = str(caught.value)
    assert said in message
    assert "pydocs" in message
    assert "path of a folder" in message


@in_this_process()
def test_only_a_partition_by_sites_needs_the_site_of_every_node(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,text,label,site\na,one,x,north\nb,two,y,\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    import_graph([tmp_path], "some", tmp_path / "root", Options(), ())
    for graph in (read_graph(tmp_path), load_graph("some", tmp_path / "root")):
        assert graph.site.tolist() == ["north", ""] and graph.num_edges == 1
        made = make_partition(graph, PartitionSpec("louvain", 1, 0, 1.0, 0.6, 0.2, 0.2))
        assert made.assignment.tolist() == [0, 0]
        with pytest.raises(DataError, match="expected a site for every node, found none for b"):
            make_partition(graph, PartitionSpec("by-column", 1, 0, 1.0, 0.6, 0.2, 0.2))


def test_a_name_stays_a_name_beside_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("pydocs", "mine"):
        (tmp_path / name).mkdir()
    assert absolute_source("pydocs", tmp_path / "root") == "pydocs"
    assert absolute_source("./pydocs", tmp_path / "root") == str(tmp_path / "pydocs")
    assert absolute_source("mine", tmp_path / "root") == str(tmp_path / "mine")


def test_strings_are_read_without_pandas(tmp_path):
    """Where it is installed, its import would lengthen each start of a run."""
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "nodes.parquet")
    code = """if True:
        import sys, pyarrow.parquet as pq
        from dance_flwr.data.imports.tables import as_strings
        read = as_strings(pq.ParquetFile(sys.argv[1]).read()["text"], "text", "a file")
        print(read.to_pylist(), "pandas" in sys.modules)
    """
    program = [sys.executable, "-c", code, tmp_path / "nodes.parquet"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['a', 'b'] False"
