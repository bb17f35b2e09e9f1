"""Files of torch, saved data sets, GraphRAG and real files: the graph in them, or one line."""

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.imports import (
    case,
    check,
    drawn,
    in_this_process,
    packed,
    parquet,
    saved_set,
    torch_file,
)
from support.project import PROJECT
from torch_geometric.data import Data, HeteroData

from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.imports.importer import import_graph, read_graph
from dance_flwr.data.imports.options import Options
from dance_flwr.errors import DataError, UserError

REAL = Path(os.environ.get("DANCE_FLWR_REAL", PROJECT.parent / "shared" / "data" / "real"))
N = "id,text,label\n1,one,x\n2,two,y\n3,three,y\n"
E = "source,target\n1,2\n2,3\n"
EDGE_INDEX = torch.tensor([[0, 1], [1, 2]])
ONE_EDGE = EDGE_INDEX[:, :1]
ARCS = [[0, 1, 2, 3, 0], [1, 0, 2, 0, 1]]  # one both ways, a self loop, a one-way arc, a duplicate
TWO_MASKS = np.zeros((2, 4), bool)
TWO_MASKS[0, 0] = TWO_MASKS[1, 2] = True
NOT_TEXT = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())


def data(**changes):
    """Four nodes with every attribute that is read, and some that are not."""
    masks = torch.eye(4, dtype=torch.bool)
    values = {
        "edge_index": torch.tensor(ARCS),
        "y": torch.tensor([0, -1, 1, 0]),
        "raw_texts": ["first", "second", "third", "fourth"],
        "label_name": ["x", "y"],
        "pages": torch.tensor([[1999], [2001], [7], [8]]),
        **{"train_mask": masks[0], "val_mask": masks[1], "test_mask": masks[3]},
        **{"x": torch.zeros(4, 3), "score": torch.zeros(4), "n_id": torch.arange(5)},
    }
    return Data(**{k: v for k, v in {**values, **changes}.items() if v is not None})


def pyg(**changes):
    return {"g.pt": lambda path: torch.save(data(**changes), path)}


def held(**content):
    return {"g.pt": torch_file(**content)}


def parquet_nodes(**columns):
    """A node table of Parquet, with types as they are, and no edges."""
    return {
        "nodes.parquet": lambda path: pq.write_table(pa.table(columns), path),
        "edges.csv": "source,target\n",
    }


GRAPHRAG = {
    "entities": {
        "id": ["6f2a", "91bc"],
        "human_readable_id": [0, 1],
        "title": ["SOIL", "STONE"],
        "type": ["CONCEPT", ""],
        "description": ["Soil is red.", None],
        "text_unit_ids": [["t1", "t2"], ["t2"]],
    },
    "relationships": {
        "id": ["d01e"],
        "source": ["SOIL"],
        "target": ["STONE"],
        "description": ["Soil covers stone."],
        "weight": [8.5],
    },
    "text_units": {"id": ["t1"], "text": ["Soil"]},
}
# The title of an entity was its name until version 0.4.
FIRST = pd.DataFrame(GRAPHRAG["entities"]).rename(columns={"title": "name"})
NAMELESS = {
    "o/entities.parquet": parquet(
        title=["A", "", "B", "A"], description=["one", "none", "two", "again"]
    ),
    "o/relationships.parquet": parquet(
        source=["A", "", "B"], target=["B", "A", "A"], description=["d"] * 3
    ),
}
NUMBERED = {"text": ["first", "second", "third"], "label": [0, -1, 1]}
NUMBERED |= {"neighbors": [[1, 2], [], [0]]}
TOPICS = {"key": ["p", "q"], "topic": [1, 0], "neighbors": [["q"], []]}
PARTS = {
    "d/train": saved_set(id=["a", "b"], text=["a", "b"], topic=[1, 1]),
    "d/validation": saved_set(id=["c"], text=["c"], topic=[1]),
    "d/dataset_dict.json": json.dumps({"splits": ["train", "validation"]}),
}


def state(content):
    """A saved data set with this as its state."""
    return {"d": saved_set(text=["a"], neighbors=[[0]]), "d/state.json": content}


CASES = {
    # Files of torch.
    "PyG with everything": case(
        pyg(), "4/2/2", "x, score, n_id", text="raw_texts,pages", edge_text="append"
    ),
    "PyG, a label per node without names": case(
        pyg(label_name=None, y=torch.tensor([[0], [2], [10], [0]])), "4/2/3"
    ),
    "PyG, another key of the labels": case(
        held(
            edge_index=torch.tensor(ARCS),
            label=torch.tensor([0, 1, 0, 1]),
            raw_text=["a", "b", "c", None],
        ),
        "4/2/2",
        "1 of 4 nodes have an empty text",
        label="label",
    ),
    "PyG, a dict and slices": case(
        {"g.pt": lambda path: torch.save((data().to_dict(), {"y": torch.tensor([0, 4])}), path)},
        "4/2/2",
    ),
    **{
        f"PyG, {what} of masks, number {number}": case(
            pyg(train_mask=masks), "4/2/2", split_index=number
        )
        for what, masks in {
            "a list": [torch.tensor(mask) for mask in TWO_MASKS],
            "a matrix": torch.tensor(TWO_MASKS.T),
            "a matrix by rows": torch.tensor(TWO_MASKS),
            "a matrix of bytes": torch.tensor(TWO_MASKS.T.astype(np.uint8)),
        }.items()
        for number in (0, 1)
    },
    "PyG, no such mask": case(
        pyg(train_mask=torch.tensor(TWO_MASKS)), "!--split-index below 2, found 2", split_index=2
    ),
    "PyG without labels and masks": case(
        held(text=["a"], edge_index=torch.zeros(2, 0, dtype=torch.int64)), "1/0/0"
    ),
    "PyG with as many edges as nodes": case(
        held(
            raw_texts=["a", "b"],
            edge_index=ONE_EDGE.repeat(1, 2),
            edge_attr=torch.ones(2),
            edge_text=["s", "t"],
            edge_weight=torch.ones(2),
            x=torch.zeros(2, 3),
        ),
        "2/1/0",
        "left out of the nodes  columns x\n",
        "left out of the edges  columns edge_weight, edge_text, edge_attr",
        "the description of 2 edges",
        "the weight of 2 edges",
    ),
    "PyG with NaN": case(
        held(raw_texts=["a", "b", "c"], edge_index=EDGE_INDEX, y=torch.tensor([1.0, np.nan, 0.0])),
        "3/2/2",
        "1 not",
    ),
    "PyG with names of classes": case(
        held(raw_texts=["a", "b"], edge_index=ONE_EDGE, y=["soil", "sky"]), "2/1/2"
    ),
    **{
        f"PyG, declared classes, labels {label or 'of y'}": case(
            held(
                edge_index=ONE_EDGE,
                y=torch.tensor([0, 1]),
                raw_texts=["one", "two"],
                topic=["u", "v"],
                label_names=["x", "y", "z"],
            ),
            f"2/1/{classes}",
            label=label,
        )
        for label, classes in (("", 3), ("topic", 2), ("none", 0))
    },
    "PyG, packed": case(
        {"g.pt.gz": packed(torch_file(raw_texts=list("abc"), edge_index=EDGE_INDEX))}, "3/2/0"
    ),
    "PyG beside a table": case({**pyg(), "nodes.csv": N}, "!g.pt: expected tables.*alone"),
    "PyG with fewer texts than features": case(
        held(raw_texts=["a"], x=torch.ones(3, 2), edge_index=EDGE_INDEX),
        "!a text for each of 3 nodes",
    ),
    **{
        f"PyG, refused: {part}": case(pyg(**changes), f"!{part}")
        for changes, part in (
            ({"raw_texts": None}, "node texts.*--text"),
            ({"y": torch.zeros(4, 2, dtype=torch.int64)}, r"4 labels.*\[4, 2\]"),
            ({"raw_texts": ["a", "b", "c", 4]}, "texts.*a text at place 4.*found 4"),
            ({"raw_texts": ["a"]}, "a text for each of 4 nodes.*found 1"),
            ({"raw_texts": ["a", "b", "c", "\ud800"]}, "half a character"),
            ({"y": torch.tensor([0, 1, 2, 0])}, r"-1\.\.1.*0\.\.2"),
            ({"y": torch.tensor([0.5, 0, 1, 0])}, "whole numbers"),
            ({"y": [0, 1, 0, 1]}, "a tensor 'y'.*list"),
            ({"label_name": ["x", "x"]}, "class names that differ"),
            ({"edge_index": torch.tensor([[0, 9], [1, 0]])}, r"0\.\.3.*0\.\.9"),
            ({"edge_index": torch.zeros(5, 2, dtype=torch.long)}, r"\[2, m\].*\[5, 2\]"),
            (
                {"edge_index": torch.zeros(1, dtype=torch.long).expand(2, 1 << 40)},
                "as are stored",
            ),
            ({"edge_index": torch.eye(4).to_sparse()}, "sparse"),
            ({"train_mask": torch.ones(3, dtype=torch.bool)}, "train_mask.*4 values"),
            ({"train_mask": torch.ones(4, dtype=torch.bool)}, "do not overlap"),
        )
    },
    "no file of torch": case({"g.pt": b"hello"}, r"!g\.pt"),
    "a list in a file of torch": case(
        {"g.pt": lambda path: torch.save([1, 2], path)}, "!PyG Data object"
    ),
    # Tables of Parquet.
    "an id of NaN": case(
        parquet_nodes(id=[1.0, np.nan], text=["a", "b"]), "!row 2: expected a node id"
    ),
    "an id of NaN in JSON lines": case(
        {"n.jsonl": '{"id": 1.0, "text": "a"}\n{"id": NaN, "text": "b"}\n', "e.csv": E},
        "!row 2: expected a node id",
    ),
    "texts that are lists": case(parquet_nodes(id=[1], text=[["a"]]), "!'text'"),
    "texts that are no Unicode": case(
        parquet_nodes(id=[1], text=NOT_TEXT), "!Unicode text in 'text'"
    ),
    # Saved data sets: rows are numbered, neighbours are edges, parts are the split.
    "a saved data set": case({"d": saved_set({"label": ["x", "y", "z"]}, **NUMBERED)}, "3/2/3"),
    "a saved data set, classes by the only names": case(
        {"d": saved_set({"topic": ["x", "y"]}, **TOPICS)}, "2/1/2", id="key", text="key"
    ),
    "a saved data set with names for two columns": case(
        {"d": saved_set({"topic": ["x", "y"], "other": ["a"]}, **TOPICS)},
        "2/1/0",
        id="key",
        text="key",
    ),
    "a saved data set, a list as a text": case(
        {"d": saved_set(**NUMBERED)}, "!expected one value in 'neighbors'", text="neighbors"
    ),
    "a saved data set in parts, without edges": case(
        PARTS, r"!edges.parquet or edges.csv, too, or name a column"
    ),
    "a saved data set in parts, with edges": case(
        {**PARTS, "d/edges.csv": "source,target,note\na,c,007\n"}, "3/1/1", label="topic"
    ),
    "a saved data set, a label without a name": case(
        {"d": saved_set({"label": ["x", "y"]}, text=["a"], label=[2], neighbors=[[0]])},
        r"!-1\.\.1.*found 2\.\.2",
    ),
    "a saved data set of files elsewhere": case(
        state(json.dumps({"_data_files": [{"filename": "../x.arrow"}]})), "!names of Arrow files"
    ),
    # What a language model wrote.
    **{
        f"GraphRAG, {name}": case(
            {name.format(of): parquet(**columns) for of, columns in GRAPHRAG.items()},
            "2/1/0",
            *("output of GraphRAG", "text_units.parquet", "the weight of 1 edge"),
        )
        for name in ("o/{}.parquet", "o/output/{}.parquet", "o/create_final_{}.parquet")
    },
    "GraphRAG, the first versions": case(
        {
            "o/artifacts/create_final_entities.parquet": FIRST.to_parquet,
            "o/artifacts/create_final_relationships.parquet": parquet(**GRAPHRAG["relationships"]),
            "o/README.md": "notes",
            "o/input/a.md": "a",
        },
        "2/1/1",
        label="type",
        edge_text="append",
    ),
    "GraphRAG, two files": case(
        {f"{of}.parquet": parquet(**GRAPHRAG[of]) for of in ("entities", "relationships")},
        "2/1/0",
        "output of GraphRAG",
    ),
    "GraphRAG with a nameless entity": case(NAMELESS, "!--nameless drop"),
    "GraphRAG without the nameless": case(
        NAMELESS, "!'A' again.*--duplicates merge", nameless="drop"
    ),
    "GraphRAG, merged": case(
        NAMELESS,
        "2/1/0",
        *("1 without an id", "1 with the id"),
        nameless="drop",
        duplicates="merge",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_saved_file(tmp_path, request, name):
    check(tmp_path, name, *CASES[name], update=request.config.getoption("--update-golden"))


@in_this_process()
def test_a_file_of_several_types_is_refused_with_code_that_makes_one_graph(tmp_path):
    data = HeteroData()
    data["paper"].raw_texts, data["author"].raw_texts = ["a", "b", "c"], ["d", "e"]
    data["paper"].num_nodes, data["author"].num_nodes = 3, 2
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [0, 2]])
    torch.save(data, tmp_path / "g.pt")
    with pytest.raises(DataError, match="HeteroData with nodes of types paper, author") as caught:
        read_graph(tmp_path / "g.pt")
    names = {"data": data}
    exec(str(caught.value).partition("after ")[2].partition(", where")[0], names)
    torch.save(names["one"], tmp_path / "g.pt")
    assert drawn(read_graph(tmp_path / "g.pt")) == (
        "0: 'a', 1: 'b', 2: 'c', 3: 'd', 4: 'e' | 0-3, 2-4 | "
    )


@in_this_process()
def test_an_edge_of_torch_in_both_directions_has_its_text_and_weight_once(tmp_path):
    ends = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    given = Data(
        edge_index=ends, edge_weight=torch.tensor([0.5, 0.5, 2, 2]), edge_text=list("aabb")
    )
    graph = TextGraph.from_pyg(given, list("xyz"))
    given.raw_texts = list("xyz")
    torch.save(given, tmp_path / "g.pt")
    kept = {"edge_text": "append", "edge_weight": "edge_weight"}
    assert drawn(read_graph(tmp_path / "g.pt", **kept)) == drawn(graph)
    assert drawn(graph).endswith("| 0-1*0.5, 1-2*2, 0>1 'a', 1>2 'b' | ")


class Payload:
    """What an attacker would put into a pickle."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return Path.touch, (Path(self.target),)


@in_this_process()
def test_code_in_a_pickle_is_refused_and_not_run(tmp_path):
    target, file = tmp_path / "owned", tmp_path / "g.pt"
    for content in (Payload(target), data(raw_texts=Payload(target)), {"y": [Payload(target)]}):
        torch.save(content, file)
        with pytest.raises(UserError, match="nothing of it was run"):
            read_graph(file)
    file.write_bytes(pickle.dumps(Payload(target)))
    with pytest.raises(UserError):
        read_graph(file)
    assert not target.exists()
    pickle.loads(file.read_bytes())  # it would have worked
    assert target.exists()


@in_this_process()
@pytest.mark.parametrize("classes", [("x", "y", "z"), ("-1", "none")])
def test_a_folder_of_ours_is_read_as_it_stands(tmp_path, classes):
    """With classes that no node has, and with names that mean "no label" elsewhere."""
    (tmp_path / "nodes.csv").write_text("id,text,label\na,one,x\nb,two,y\nc,three,y\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    graph = replace(read_graph(tmp_path), class_names=classes)
    write_folder(graph, tmp_path / "ours")
    report = import_graph([tmp_path / "ours"], "g", tmp_path / "root", Options())
    assert report["kind"] == "dance-flwr folder"
    for path in (tmp_path / "ours", tmp_path / "root" / "graphs" / "g"):
        assert drawn(read_graph(path)) == drawn(graph)


@pytest.mark.filterwarnings("ignore:.*left out:", "ignore:Gephi tables", "ignore:.*empty text")
@pytest.mark.parametrize(
    ("names", "options", "kind", "counts", "sizes"),
    [
        (
            ["polbooks_nodes.csv", "polbooks_edges.csv"],
            {"label": "political_ideology"},
            *("Gephi tables", "105/441/0", [49, 43, 13]),
        ),
        (["miserables.json"], {"text": "name"}, "JSON of D3", "77/254/0", []),
        (
            ["airroutes-small.graphml"],
            {"text": "desc"},
            "GraphML of TinkerPop",
            "47/695/1",
            [46, 1],
        ),
        (["lightrag.graphml"], {}, "GraphML of LightRAG", "930/1157/150", []),
    ],
)
def test_real_files(tmp_path, names, options, kind, counts, sizes):
    if not (REAL / names[0]).is_file():
        pytest.skip(f"needs {names[0]} in ../shared/data/real, or in DANCE_FLWR_REAL")
    report = import_graph([REAL / n for n in names], "g", tmp_path / "root", Options(**options))
    assert report["kind"] == kind
    assert "{nodes}/{edges}/{isolated}".format(**report["counts"]) == counts
    assert list(report["class_sizes"].values()) == sizes
