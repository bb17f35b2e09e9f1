"""Tables as tools write them, from the tools' documentation: what is read, and what is said."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pytest
from support.project import PROJECT

from dance_flwr.data.imports.importer import import_graph, read_graph
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.report import summary_lines

REAL = Path(os.environ.get("DANCE_FLWR_REAL", PROJECT.parent / "shared" / "data" / "real"))
NODES = "id,text,label\na,one,x\nb,two,y\nc,three,y\n"


@pytest.fixture
def write(tmp_path):
    """A function that writes files, gzipped if so named, and returns their paths."""

    def files(contents):
        for name, content in contents.items():
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return [tmp_path / name for name in contents]

    return files


def take(paths, tmp_path, **options):
    """The graph that an import stores, and its report."""
    root = tmp_path / "root"
    report = import_graph(paths, "g", root, Options(**options))
    stored = root / "graphs" / "g"
    assert json.loads((stored / "import.json").read_text()) == report
    graph = read_graph(stored)
    again = read_graph(paths, **options)
    for name in ("ids", "labels", "indptr", "indices"):
        assert getattr(graph, name).tolist() == getattr(again, name).tolist()
    assert (graph.texts, graph.class_names) == (again.texts, again.class_names)
    return graph, report


def labels(graph):
    return [graph.class_names[label] if label >= 0 else None for label in graph.labels]


@pytest.mark.filterwarnings("ignore:.*left out:", "ignore:Gephi tables")
@pytest.mark.parametrize(
    ("nodes", "edges", "options", "kind", "used", "left_out"),
    [
        (
            "Id,Label,topic\na,one,x\nb,two,y\nc,three,y\n",
            "Source,Target,Type,Weight\na,b,Undirected,2\nb,c,Undirected,1\n",
            {"label": "topic"},
            "Gephi tables",
            {"id": ["Id"], "text": ["Label"], "label": ["topic"]},
            {"weight": 2},
        ),
        (
            "id;text;label\na;one;x\nb;two;y\nc;three;y\n",
            "source;target\na;b\nb;c\n",
            {},
            "tables",
            {"id": ["id"], "text": ["text"], "label": ["label"]},
            {},
        ),
        (
            ":ID(Note),text,:LABEL\na,one,x\nb,two,y\nc,three,y\n",
            ":START_ID(Note),:END_ID(Note),:TYPE\na,b,NEAR\nb,c,NEAR\n",
            {},
            "Neo4j tables",
            {"id": [":ID(Note)"], "label": [":LABEL"], "source": [":START_ID(Note)"]},
            {"relation": 2},
        ),
        (
            'noteId:ID(Note),name:string,:LABEL\n"a","one","x"\n"b","two","y"\n"c","three","y"\n',
            ":START_ID(Note),since:int,:END_ID(Note),:TYPE\na,1999,b,NEAR\nb,2001,c,FAR\n",
            {"text": "name"},
            "Neo4j tables",
            {"id": ["noteId:ID(Note)"], "text": ["name:string"], "target": [":END_ID(Note)"]},
            {"relation": 2},
        ),
        (
            "~id,~label,name:String,age:Int\na,x,one,4\nb,y,two,5\nc,y,three,\n",
            "~id,~from,~to,~label,weight:Double\ne1,a,b,knows,0.5\ne2,b,c,knows,1.0\n",
            {"text": "name"},
            "Neptune tables",
            {"id": ["~id"], "label": ["~label"], "source": ["~from"], "target": ["~to"]},
            {"relation": 2, "weight": 2},
        ),
        (NODES, "src\tdst\na\tb\nb\tc\n", {}, "tables", {"source": ["src"]}, {}),
        (NODES, "from|to\na|b\nb|c\n", {}, "tables", {"target": ["to"]}, {}),
        (NODES, "u,v\na,b\nb,c\n", {}, "tables", {"source": ["u"]}, {}),
        (
            NODES,
            "head,relation,tail\na,is,b\nb,is,c\n",
            {},
            "tables",
            {"target": ["tail"]},
            {"relation": 2},
        ),
        (NODES, "one,two\na,b\nb,c\n", {"source": "one", "target": "two"}, "tables", {}, {}),
    ],
)
def test_tables_of_a_tool(write, tmp_path, nodes, edges, options, kind, used, left_out):
    paths = write({"n.csv": nodes, "e.csv": edges})
    graph, report = take(paths, tmp_path, **options)
    assert graph.ids.tolist() == ["a", "b", "c"]
    assert graph.texts == ["one", "two", "three"]
    assert labels(graph) == ["x", "y", "y"]
    assert graph.indices.tolist() == [1, 0, 2, 1]
    assert report["kind"] == kind
    assert used.items() <= report["columns"].items()
    assert {k: n for k, n in report["edges_left_out"].items() if n} == left_out
    # The two tables may come in either order.
    assert read_graph(paths[::-1], **options).texts == graph.texts


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_and_arrow(write, tmp_path, compression):
    texts = ["one " * 200, "two", ""]
    columns = {
        "id": [1, 2, 3],
        "text": texts,
        "label": pa.array(["x", None, "x"]).dictionary_encode(),
    }
    pyarrow.feather.write_feather(
        pa.table(columns), tmp_path / "nodes.feather", compression=compression, chunksize=2
    )
    table = pa.table({"source": [1, 2], "target": [2, 3]})
    with pa.ipc.new_stream(str(tmp_path / "edges.arrow"), table.schema) as out:
        out.write_table(table)
    with pytest.warns(UserWarning, match="1 of 3 nodes have an empty text"):
        graph = read_graph(tmp_path)
    assert graph.texts == texts and labels(graph) == ["x", None, "x"]
    assert graph.indices.tolist() == [1, 0, 2, 1]


@pytest.mark.filterwarnings("ignore:.*left out:", "ignore:Gephi tables")
def test_the_political_books_of_gephi(tmp_path):
    paths = [REAL / f"polbooks_{kind}.csv" for kind in ("nodes", "edges")]
    if not paths[0].is_file():
        pytest.skip("needs the real file polbooks_nodes.csv")
    graph, report = take(paths, tmp_path, label="political_ideology")
    counts = report["counts"]
    assert (counts["nodes"], counts["edges"], counts["isolated"]) == (105, 441, 0)
    assert report["class_sizes"] == {"conservative": 49, "liberal": 43, "neutral": 13}
    assert report["edges_left_out"] == {"weight": 441}
    assert graph.texts[0] == "1000 Years for Revenge"
    assert any("49  conservative" in line for line in summary_lines(report))
