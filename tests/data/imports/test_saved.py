"""Saved `datasets` folders and PyG files as tables: the same values as their libraries hold."""

import json

import pyarrow as pa
import pytest
import torch
from support.files_of_tools import saved
from support.tables import of_roles, roles_of, values
from torch_geometric.data import Data, HeteroData

from dance_flwr.data.imports.importer import read_network
from dance_flwr.data.imports.options import Options
from dance_flwr.errors import DataError


def test_row_numbers_are_ids_and_neighbours_edges(tmp_path):
    columns = {"text": ["first", "second", "third"], "label": [0, -1, 1]}
    columns |= {"neighbors": [[1, 2], [], [0]]}
    folder = saved(tmp_path / "d", pa.table(columns), {"label": ["x", "y", "z"]})
    file = read_network(folder)
    assert (file.kind, file.classes) == ("saved data set", ("x", "y", "z"))
    assert file.nodes[0].names == ["row", "text", "label", "neighbors"]
    assert values(file.nodes, ["text", "row"]) == {
        "text": ["first", "second", "third"],
        "row": ["0", "1", "2"],
    }
    assert of_roles(file) == {
        "id": ["0", "1", "2"],
        "label": ["x", "", "y"],
        "source": ["0", "0", "2"],
        "target": ["1", "2", "0"],
    }
    with pytest.raises(DataError, match="expected one value in 'neighbors'"):
        values(file.nodes, ["neighbors"])


def test_parts_are_the_split_and_a_table_beside_has_the_edges(tmp_path):
    folder = tmp_path / "d"
    for part, ids in (("train", ["a", "b"]), ("validation", ["c"])):
        saved(folder / part, pa.table({"id": ids, "text": ids, "topic": [1] * len(ids)}))
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation"]}))
    with pytest.raises(DataError, match=r"edges.parquet or edges.csv, too, or name a column"):
        read_network(folder)
    (folder / "edges.csv").write_text("source,target,note\na,c,007\n")
    file = read_network(folder)
    assert values(file.nodes) == {
        "id": ["a", "b", "c"],
        "text": ["a", "b", "c"],
        "topic": ["1", "1", "1"],
        "split": ["train", "train", "val"],
    }
    assert values(file.edges) == {"source": ["a"], "target": ["c"], "note": ["007"]}
    assert roles_of(file) == {"id": "id", "split": "split"} and file.classes == ()
    assert [path.name for path in file.files][-1] == "edges.csv" and len(file.files) == 3


def test_the_only_column_that_declares_classes_is_the_label(tmp_path):
    columns = {"key": ["p", "q"], "topic": [1, 0], "neighbors": [["q"], []]}
    folder = saved(tmp_path / "d", pa.table(columns), {"topic": ["x", "y"]})
    file = read_network(folder, Options(id="key"))
    assert of_roles(file) == {
        "id": ["p", "q"],
        "label": ["y", "x"],
        "source": ["p"],
        "target": ["q"],
    }
    two = {"topic": ["x", "y"], "other": ["a"]}
    folder = saved(tmp_path / "e", pa.table(columns), two)
    assert "label" not in roles_of(read_network(folder, Options(id="key")))


def data(**changes):
    parts = {
        "edge_index": torch.tensor([[0, 1, 2], [1, 0, 2]]),
        "y": torch.tensor([0, -1, 1]),
        "raw_texts": ["first", "second", None],
        "title": ["a", "b", "c"],
        "label_name": ["x", "y"],
        "year": torch.tensor([[1999], [2001], [7]]),
        "train_mask": torch.tensor([[True, False], [False, True], [False, False]]),
        "test_mask": torch.tensor([False, False, True]),
        "x": torch.zeros(3, 2),
        "score": torch.zeros(3),
        "n_id": torch.arange(5),
    }
    return Data(**{k: v for k, v in (parts | changes).items() if v is not None})


@pytest.fixture
def pt(tmp_path):
    def save(content):
        torch.save(content, tmp_path / "g.pt")
        return tmp_path / "g.pt"

    return save


def test_lists_and_tensors_of_a_pyg_file_are_columns(pt):
    file = read_network(pt(data()))
    assert (file.kind, file.classes) == ("PyG Data", ("x", "y"))
    assert values(file.nodes) == {
        "row": ["0", "1", "2"],
        "y": ["x", "", "y"],
        "raw_texts": ["first", "second", ""],
        "title": ["a", "b", "c"],
        "year": ["1999", "2001", "7"],
        "split": ["train", "", "test"],
    }
    assert values(file.edges) == {"source": ["0", "1", "2"], "target": ["1", "0", "2"]}
    assert roles_of(file) == {
        "id": "row",
        "text": "raw_texts",
        "source": "source",
        "target": "target",
        "label": "y",
        "split": "split",
    }
    assert values(read_network(pt(data()), Options(split_index=1)).nodes)["split"] == [
        "",
        "train",
        "test",
    ]


def test_a_file_of_several_types_is_refused_with_code_that_makes_one_graph(pt):
    data = HeteroData()
    data["paper"].raw_texts, data["author"].raw_texts = ["a", "b", "c"], ["d", "e"]
    data["paper"].num_nodes, data["author"].num_nodes = 3, 2
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [0, 2]])
    with pytest.raises(DataError, match="HeteroData with nodes of types paper, author") as caught:
        read_network(pt(data))
    names = {"data": data}
    exec(str(caught.value).partition("after ")[2].partition(", where")[0], names)
    file = read_network(pt(names["one"]))
    assert values(file.nodes)["raw_texts"] == list("abcde")
    assert values(file.edges) == {"source": ["3", "4"], "target": ["0", "2"]}


def test_a_pyg_file_without_labels_and_masks(pt):
    file = read_network(pt({"text": ["a"], "edge_index": torch.zeros(2, 0, dtype=torch.int64)}))
    assert values(file.nodes) == {"row": ["0"], "text": ["a"]} and file.classes == ()
    assert values(file.edges) == {"source": [], "target": []}
    assert set(roles_of(file)) == {"id", "text", "source", "target"}


def test_damaged_saved_data_sets_are_refused(tmp_path):
    table = pa.table({"text": ["a"], "label": [2], "neighbors": [[0]]})
    folder = saved(tmp_path / "ds", table, {"label": ["x", "y"]})

    def refused():
        with pytest.raises(DataError) as caught:
            values(read_network(folder).nodes, ["label"])
        return str(caught.value)

    assert "-1..1" in refused() and "found 2..2" in refused()
    arrow = folder / "data-00000-of-00001.arrow"
    arrow.write_bytes(arrow.read_bytes()[: arrow.stat().st_size // 2])
    assert "readable arrow" in refused()
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../x.arrow"}]}))
    assert "names of Arrow files" in refused()
    for content, found in (
        ("{", "Expecting property name"),
        ("[1]", "list"),
        ("[" * 10**5, "recur"),
    ):
        (folder / "state.json").write_text(content)
        assert "state.json: expected a JSON object" in refused() and found in refused()
    (folder / "state.json").write_bytes(b"\xff\xff")
    assert "decode" in refused()
