"""Import user files: every format gives the graph it describes, or one line and no files."""

import json
import os
import pickle
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from support.measuring import measured, measuring
from torch_geometric.data import Data

from dance_flwr.data.graphs.catalogue import imported_graphs
from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.data.imports.importer import import_graph, read_graph
from dance_flwr.data.imports.loading import load_graph, source_identity
from dance_flwr.data.imports.options import Options
from dance_flwr.errors import DataError

NODES = "id,text,label,split\na,first,x,train\nb,second,,val\nc,third,y,\nd,fourth,x,test\n"
EDGES = "source,target\na,b\nb,a\nc,c\nd,a\na,b\n"
ARCS = [[0, 1, 2, 3, 0], [1, 0, 2, 0, 1]]  # one both ways, a self loop, a one-way arc, a duplicate


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def take(path, root, name="g", **options):
    paths = path if isinstance(path, list) else [path]
    card = import_graph(paths, name, root, Options(**options))
    return load_graph(name, root), card


def refused(path, root, name="g", **options) -> str:
    """The one line with which an import ends; nothing may be left behind."""
    paths = path if isinstance(path, list) else [path]
    with pytest.raises(DataError) as caught:
        import_graph(paths, name, root, Options(**options))
    assert "\n" not in str(caught.value)
    assert not root.exists() or not [p for p in (root / "graphs").iterdir() if p.name != "kept"]
    return str(caught.value)


def neighbours(graph):
    return [
        graph.indices[graph.indptr[i] : graph.indptr[i + 1]].tolist()
        for i in range(graph.num_nodes)
    ]


def tables(folder, nodes=NODES, edges=EDGES):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return folder


def is_the_toy(graph):
    assert neighbours(graph) == [[1, 3], [0], [], [0]]
    assert graph.texts == ["first", "second", "third", "fourth"]
    assert [graph.class_names[i] if i >= 0 else None for i in graph.labels] == ["x", None, "y", "x"]
    assert graph.split.tolist() == [TRAIN, VAL, NO_SPLIT, TEST]


def data(**changes):
    masks = np.eye(4, dtype=bool)
    values = {
        "edge_index": torch.tensor(ARCS),
        "y": torch.tensor([0, -1, 1, 0]),
        "raw_texts": ["first", "second", "third", "fourth"],
        "label_name": ["x", "y"],
        "train_mask": torch.tensor(masks[0]),
        "val_mask": torch.tensor(masks[1]),
        "test_mask": torch.tensor(masks[3]),
        "x": torch.zeros(4, 3),
    }
    return Data(**{k: v for k, v in {**values, **changes}.items() if v is not None})


@pytest.fixture
def pt(tmp_path):
    def save(content, name="graph.pt"):
        torch.save(content, tmp_path / name)
        return tmp_path / name

    return save


def test_our_own_folder_and_its_card(tmp_path, root):
    folder = tables(tmp_path / "mine")
    graph, card = take(folder, root)
    is_the_toy(graph)
    assert graph.name == "g"
    assert card["counts"]["edges"] == 2
    assert (
        card["counts"]["arcs"],
        card["counts"]["self_loops"],
        card["counts"]["directed_edges"],
    ) == (3, 1, 4)
    assert (card["counts"]["train_nodes"], card["counts"]["labelled"], card["inductive"]) == (
        1,
        3,
        False,
    )
    assert set(card["files"]) == {"nodes.csv", "edges.csv"}
    assert json.loads((root / "graphs" / "g" / "import.json").read_text()) == card
    assert imported_graphs(root) == {"g": root / "graphs" / "g"}
    assert source_identity("g", root) == source_identity(str(root / "graphs" / "g"))


def test_declared_classes_without_a_node_survive(tmp_path, root):
    (tmp_path / "nodes.csv").write_text("id,text,label\na,t,x\n")
    (tmp_path / "edges.csv").write_text("source,target\n")
    graph = read_graph(tmp_path)
    write_folder(type(graph)(**{**vars(graph), "class_names": ("x", "y")}), tmp_path / "two")
    assert take(tmp_path / "two", root)[0].class_names == ("x", "y")


@pytest.mark.filterwarnings("ignore:.*empty text")
def test_rows_longer_than_a_block_are_streamed_once(tmp_path, root):
    texts = ["word " * n for n in (10, 3_000_000, 5, 100_000, 0)]
    rows = "".join(f"{i},{text},x\n" for i, text in enumerate(texts))
    graph, _ = take(
        tables(tmp_path / "mine", "id,text,label\n" + rows, "source,target\n0,1\n"), root
    )
    assert [len(text) for text in graph.texts] == [len(text) for text in texts]


def test_nan_ids_wrong_types_and_truncated_parquet_are_refused(tmp_path, root):
    (tmp_path / "edges.csv").write_text("source,target\n")
    nodes = tmp_path / "nodes.parquet"
    pq.write_table(
        pa.table({"id": [1.0, float("nan")], "text": ["a", "b"], "label": ["x", "x"]}), nodes
    )
    assert "row 2: expected a node id" in refused(tmp_path, root)
    (tmp_path / "n.jsonl").write_text(
        '{"id": 1.0, "text": "a", "label": "x"}\n{"id": NaN, "text": "b", "label": "x"}\n'
    )
    assert "row 2: expected a node id" in refused(
        [tmp_path / "n.jsonl", tmp_path / "edges.csv"], root
    )
    pq.write_table(pa.table({"id": [1], "text": [["a"]], "label": ["x"]}), nodes)
    assert "'text'" in refused(tmp_path, root)
    pq.write_table(
        pa.table({"id": list(range(999)), "text": ["a"] * 999, "label": ["x"] * 999}), nodes
    )
    nodes.write_bytes(nodes.read_bytes()[:-40])
    assert "readable parquet" in refused(tmp_path, root)
    not_text = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"id": [1], "text": not_text, "label": ["x"]}), nodes)
    assert "Unicode text in 'text'" in refused(tmp_path, root)
    pq.write_table(
        pa.table({"id": list(range(999)), "text": ["a"] * 999, "label": ["x"] * 999}), nodes
    )
    content = bytearray(nodes.read_bytes()[:-40])
    content[200:400] = bytes(200)
    nodes.write_bytes(content)
    assert "readable parquet" in refused(tmp_path, root)


def test_pyg_data_directed_with_duplicates_and_loops(pt, root):
    graph, card = take(pt(data()), root)
    is_the_toy(graph)
    assert graph.ids.tolist() == ["0", "1", "2", "3"]
    assert (graph.class_names, card["kind"]) == (("x", "y"), "PyG Data")


def test_pyg_labels_without_names_are_numbers(pt, root):
    graph, _ = take(pt(data(label_name=None, y=torch.tensor([[0], [2], [10], [0]]))), root)
    assert graph.class_names == ("0", "10", "2")
    assert graph.labels.tolist() == [0, 2, 1, 0]


@pytest.mark.parametrize("shape", ["list", "matrix", "transposed", "bytes"])
def test_several_masks(pt, root, shape):
    masks = np.zeros((2, 4), bool)
    masks[0, 0] = masks[1, 2] = True
    kinds = {
        "list": [torch.tensor(mask) for mask in masks],
        "matrix": torch.tensor(masks.T),
        "transposed": torch.tensor(masks),
        "bytes": torch.tensor(masks.T.astype(np.uint8)),
    }
    file = pt(data(train_mask=kinds[shape]))
    assert take(file, root, name="first")[0].split.tolist() == [TRAIN, VAL, NO_SPLIT, TEST]
    assert take(file, root, name="other", split_index=1)[0].split.tolist() == [
        NO_SPLIT,
        VAL,
        TRAIN,
        TEST,
    ]
    with pytest.raises(DataError, match="--split-index below 2, found 2"):
        take(file, root, name="none", split_index=2)


def test_other_keys_dicts_and_saved_data_sets(pt, root):
    content = {
        "edge_index": torch.tensor(ARCS),
        "label": torch.tensor([0, 1, 0, 1]),
        "raw_text": ["a", "b", "c", None],
    }
    with pytest.warns(UserWarning, match="1 of 4 nodes have an empty text"):
        graph, _ = take(pt(content), root, name="one", label="label")
    assert graph.texts == ["a", "b", "c", ""]
    graph, _ = take(pt((data().to_dict(), {"y": torch.tensor([0, 4])})), root, name="two")
    is_the_toy(graph)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"raw_texts": None}, ["node texts", "--text"]),
        ({"y": torch.zeros(4, 2, dtype=torch.int64)}, ["4 labels", "[4, 2]"]),
        ({"raw_texts": ["a", "b", "c", 4]}, ["texts", "int"]),
        ({"raw_texts": ["a"]}, ["a text for each of 4 nodes", "found 1"]),
        ({"raw_texts": ["a", "b", "c", "\ud800"]}, ["half a character"]),
        ({"y": torch.tensor([0, 1, 2, 0])}, ["-1..1", "0..2"]),
        ({"y": torch.tensor([0.5, 0, 1, 0])}, ["whole numbers"]),
        ({"y": [0, 1, 0, 1]}, ["a tensor 'y'", "list"]),
        ({"label_name": ["x", "x"]}, ["class names that differ"]),
        ({"edge_index": torch.tensor([[0, 9], [1, 0]])}, ["0..3", "0..9"]),
        ({"edge_index": torch.zeros(5, 2, dtype=torch.long)}, ["[2, m]", "[5, 2]"]),
        ({"edge_index": torch.zeros(1, dtype=torch.long).expand(2, 1 << 40)}, ["as are stored"]),
        ({"edge_index": torch.eye(4).to_sparse()}, ["sparse"]),
        ({"train_mask": torch.ones(3, dtype=torch.bool)}, ["train_mask", "4 values"]),
        ({"train_mask": torch.ones(4, dtype=torch.bool)}, ["do not overlap"]),
    ],
)
def test_bad_pyg_files_are_refused(pt, root, changes, parts):
    message = refused(pt(data(**changes)), root)
    assert all(part in message for part in parts), message


class Payload:
    """What an attacker would put into a pickle."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return Path.touch, (Path(self.target),)


def test_code_in_a_pickle_is_refused_and_not_run(tmp_path, pt, root):
    target = tmp_path / "owned"
    for content in (Payload(target), data(raw_texts=Payload(target)), {"y": [Payload(target)]}):
        message = refused(pt(content), root)
        assert "nothing of it was run" in message
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps(Payload(target)))
    refused(plain, root)
    assert not target.exists()
    pickle.loads(plain.read_bytes())  # it would have worked
    assert target.exists()


def test_broken_and_foreign_files_are_refused(tmp_path, pt, root):
    whole = pt(data()).read_bytes()
    for name, content in {
        "cut.pt": whole[:-200],
        "text.pt": b"hello",
        "none.pt": b"",
        "half.pt": whole[:300],
    }.items():
        (tmp_path / name).write_bytes(content)
        assert name in refused(tmp_path / name, root)
    assert "PyG Data object" in refused(pt([1, 2]), root)
    (tmp_path / "a.docx").write_bytes(b"x")
    assert "'.docx'" in refused(tmp_path / "a.docx", root)
    assert "nothing there" in refused(tmp_path / "nowhere", root)
    assert "'.docx'" in refused([tmp_path / "a.docx"] * 3, root)


@pytest.mark.parametrize("name", ["g.graphml", "g.json"])
def test_networks_are_imported(tmp_path, root, name):
    graph = nx.DiGraph()
    columns = zip("abcd", ["first", "second", "third", "fourth"], ["x", "", "y", "x"], strict=True)
    for (node, text, label), split in zip(columns, ["train", "val", "", "test"], strict=True):
        graph.add_node(node, body=text, topic=label, split=split)
    graph.add_edges_from([("a", "b"), ("b", "a"), ("c", "c"), ("d", "a")], weight=0.5)
    if name == "g.graphml":
        nx.write_graphml(graph, tmp_path / name)
    else:
        (tmp_path / name).write_text(json.dumps(nx.node_link_data(graph)), "utf-8-sig")
    is_the_toy(take(tmp_path / name, root, text="body", label="topic")[0])


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
        import_graph([tables(tmp_path / "mine")], name, root, Options(), ("pydocs",))


def test_an_import_is_all_or_nothing(tmp_path, root, monkeypatch):
    folder = tables(tmp_path / "mine")
    take(folder, root, name="kept")
    with pytest.raises(DataError, match="already there"):
        take(folder, root, name="kept")
    real = pq.ParquetWriter

    def failing(file, *rest, **more):
        if "edges" in str(file):
            raise OSError(28, "No space left on device")
        return real(file, *rest, **more)

    monkeypatch.setattr(pq, "ParquetWriter", failing)
    assert "No space left" in refused(folder, root)
    assert list(imported_graphs(root)) == ["kept"]


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
    graph, card = take(Path(folder), root, name=name)
    assert (card["counts"]["directed_edges"], len(graph.indices)) == (edges, edges)


READ = """
from pathlib import Path
from dance_flwr.data.imports.importer import import_graph
from dance_flwr.data.imports.loading import load_graph
def read(root, name, *paths):
    import_graph([Path(path) for path in paths], name, Path(root)) if name else load_graph(root)
"""


@pytest.fixture(scope="module")
def measurer():
    with measuring(READ) as process:
        yield process


@pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="needs the peak memory that Linux reports"
)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_large_texts_are_not_held_twice(tmp_path, root, measurer, kind):
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

    def measure(small, job):
        taken, line = measured(measurer, small, job)
        assert line == "no refusal"
        return taken / size

    small = tables(tmp_path / "small")
    imported = measure((root, "small", small), (root, "big", nodes, tmp_path / "edges.csv"))
    loaded = measure((small, ""), (tmp_path, ""))
    print(f"{kind}, {size / 1e6:.0f} MB: import {imported:.2f}, load {loaded:.2f} times")
    assert imported < 2
    assert loaded < 2.2
