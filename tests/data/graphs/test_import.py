"""Imported graphs: stored whole under a name or not at all, and read without a second copy."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from support.imports import drawn
from support.project import PROJECT

from dance_flwr.data.graphs.catalogue import imported_graphs
from dance_flwr.data.imports.importer import import_graph
from dance_flwr.data.imports.loading import load_graph, source_identity
from dance_flwr.errors import DataError

NODES = "id,text,label,split\na,first,x,train\nb,second,,val\nc,third,y,\nd,fourth,x,test\n"
EDGES = "source,target\na,b\nb,a\nc,c\nd,a\na,b\n"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def take(path, root, name="g"):
    card = import_graph([path], name, root)
    return load_graph(name, root), card


def tables(folder, nodes=NODES, edges=EDGES):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return folder


def test_a_stored_graph_and_its_card(tmp_path, root):
    graph, card = take(tables(tmp_path / "mine"), root)
    assert drawn(graph) == (
        "a: 'first' x train, b: 'second' val, c: 'third' y, d: 'fourth' x test | a-b, a-d | x, y"
    )
    expected = {
        **{"nodes": 4, "characters": 22, "labelled": 3, "unlabelled": 1, "train_nodes": 1},
        **{"edges": 2, "directed_edges": 4, "arcs": 3, "one_way": 1, "self_loops": 1},
        **{"duplicates": 1, "isolated": 1},
    }
    assert expected.items() <= card["counts"].items()
    assert (graph.name, card["class_sizes"], card["inductive"]) == ("g", {"x": 2, "y": 1}, False)
    assert set(card["files"]) == {"nodes.csv", "edges.csv"}
    assert json.loads((root / "graphs" / "g" / "import.json").read_text()) == card
    assert imported_graphs(root) == {"g": root / "graphs" / "g"}
    assert source_identity("g", root) == source_identity(str(root / "graphs" / "g"))


@pytest.mark.filterwarnings("ignore:.*empty text")
def test_rows_longer_than_a_block_are_streamed_once(tmp_path, root):
    texts = ["word " * n for n in (10, 3_000_000, 5, 100_000, 0)]
    rows = "".join(f"{i},{text},x\n" for i, text in enumerate(texts))
    folder = tables(tmp_path / "mine", "id,text,label\n" + rows, "source,target\n0,1\n")
    graph, _ = take(folder, root)
    assert [len(text) for text in graph.texts] == [len(text) for text in texts]


def test_half_a_character_in_the_name_of_a_column_is_reported(tmp_path, root):
    (tmp_path / "g.json").write_text(
        '{"nodes": [{"id": 1, "text": "t", "\\ud800": 2}], "links": []}'
    )
    _, card = take(tmp_path / "g.json", root)
    assert card["columns_left_out"]["nodes"] == ["\ud800"]
    assert json.loads((root / "graphs" / "g" / "import.json").read_text()) == card


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "pydocs", "a" * 65])
def test_names_that_cannot_be(tmp_path, root, name):
    with pytest.raises(DataError, match="--name"):
        import_graph([tables(tmp_path / "mine")], name, root, reserved=("pydocs",))


def test_a_path_where_nothing_is(tmp_path, root):
    with pytest.raises(DataError, match=r"nowhere\.csv: expected .*found nothing there; check the"):
        take(tmp_path / "nowhere.csv", root)


def test_an_import_is_all_or_nothing(tmp_path, root, monkeypatch):
    folder = tables(tmp_path / "mine")
    take(folder, root, "kept")
    with pytest.raises(DataError, match="expected a new name"):
        take(folder, root, "kept")
    assert [path.name for path in (root / "graphs").iterdir()] == ["kept"]


# No file that is written may be larger, as where a disk is full.
FULL = """
import resource, sys
from pathlib import Path
from dance_flwr.data.imports.importer import import_graph, read_graph
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17))
for folder in map(Path, sys.argv[2:]):
    for stored in (True, False):
        try:
            import_graph([folder], "g", Path(sys.argv[1])) if stored else read_graph(folder)
        except Exception as error:
            print(type(error).__name__, error)
"""


def test_a_disk_that_fills_while_the_child_writes_leaves_nothing_and_a_line(tmp_path, root):
    """The table of nodes does not fit, or that of edges."""
    draw, temporary = random.Random(0), tmp_path / "temporary"
    temporary.mkdir()
    texts = [draw.randbytes(200).hex() for _ in range(2000)]
    ends = [f"{draw.randrange(2000)},{draw.randrange(2000)}\n" for _ in range(80_000)]
    for name, text, number in (("nodes", texts.__getitem__, 2), ("edges", str, len(ends))):
        nodes = "".join(f"{i},{text(i)}\n" for i in range(2000))
        edges = "".join(ends[:number])
        tables(tmp_path / name, f"id,text\n{nodes}", f"source,target\n{edges}")
    command = [sys.executable, "-c", FULL, root, tmp_path / "nodes", tmp_path / "edges"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found = (
        r": expected a writable folder with room, found File too large; free some space, choose .*"
    )
    places = f"DataError {root / 'graphs'}{found}\nDataError {temporary}{found}\n"
    assert re.fullmatch(2 * places, done.stdout), done.stdout
    assert [*temporary.iterdir(), *(root / "graphs").iterdir()] == []


def test_a_name_wins_over_a_folder_and_unknown_ones_are_listed(tmp_path, root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    take(tables(tmp_path / "mine"), root)
    tables(tmp_path / "g", "id,text,label\nz,t,x\n", "source,target\n")
    assert load_graph("g", root).num_nodes == 4
    assert load_graph("./g", root).num_nodes == 1
    assert source_identity("g", root) != source_identity("./g", root)
    with pytest.raises(DataError, match="data fetch instagram"):
        load_graph("instagram", root)


@pytest.mark.parametrize(("name", "edges"), [("cora", 10556), ("citeseer", 8450)])
def test_real_graphs_have_the_papers_counts(name, edges, root):
    folder = os.environ.get(f"DANCE_FLWR_{name.upper()}")
    if not folder:
        pytest.skip(f"set DANCE_FLWR_{name.upper()} to the {name} folder to run this")
    graph, card = take(Path(folder), root, name)
    assert (card["counts"]["directed_edges"], len(graph.indices)) == (edges, edges)


# What each job adds to the peak of a fork of a process that has loaded the libraries.
RISE = """
import json, os, sys
from pathlib import Path
from dance_flwr.data.imports import importer
from dance_flwr.data.imports.importer import import_graph
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.imports.reading import prepare
from support.measuring import peak_bytes
def read(root, name, *paths):
    if name:
        importer.read_in_child = prepare  # what the child holds is counted here
    import_graph([Path(path) for path in paths], name, Path(root)) if name else load_graph(root)
for small, job in json.loads(sys.argv[1]):
    if not os.fork():
        read(*small)  # what is loaded on first use is not counted
        Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is held now
        before = peak_bytes("self")
        read(*job)
        print(peak_bytes("self") - before, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="needs the peak memory that Linux reports"
)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_large_texts_are_not_held_twice(tmp_path, root, kind):
    words = " ".join(f"word{i * 7919 % 1_000_003:07d}" for i in range(400_000))
    texts = [words[i * 223 : i * 223 + 5_000] for i in range(20_000)]  # 100 MB
    nodes = tmp_path / f"nodes.{kind}"
    table = pa.table(
        {"id": [str(i) for i in range(20_000)], "text": texts, "label": ["x", "y"] * 10_000}
    )
    pq.write_table(table, nodes) if kind == "parquet" else pa.csv.write_csv(table, nodes)
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    size = sum(map(len, texts))
    del table, texts

    small, big = tables(tmp_path / "small"), (root, "big", nodes, tmp_path / "edges.csv")
    jobs = [((root, "small", small), big), ((small, ""), (tmp_path, ""))]
    command = [sys.executable, "-c", RISE, json.dumps(jobs, default=str)]
    found = subprocess.check_output(command, env=os.environ | {"PYTHONPATH": "tests"}, cwd=PROJECT)
    imported, loaded = (int(line) / size for line in found.split()[-2:])
    print(f"{kind}, {size / 1e6:.0f} MB: import {imported:.2f}, load {loaded:.2f} times")
    assert imported < 2
    assert loaded < 2.2
