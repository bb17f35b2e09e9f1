"""Graphs from torch-geometric and back: round trips of all parts, and what is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL, TextGraph
from dance_flwr.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:data: ")  # of what looks like no text


@st.composite
def data_and_names(draw):
    """A `Data` in PyG's conventions: directed and repeated edges, loops, unknown labels, masks."""
    n = draw(st.integers(1, 9))
    ends = st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=12)
    edges = torch.tensor(draw(ends), dtype=torch.int64).reshape(-1, 2).T
    names = draw(st.lists(st.text("abcz 12", min_size=1, max_size=3), min_size=1, unique=True))
    labels = draw(st.lists(st.integers(-1, len(names) - 1), min_size=n, max_size=n))
    split = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    data = Data(edge_index=edges, y=torch.tensor(labels), num_nodes=n, x=torch.zeros(n, 2))
    data.site = draw(st.lists(st.sampled_from(["", "07", "é"]), min_size=n, max_size=n))
    for code, name in ((TRAIN, "train_mask"), (VAL, "val_mask"), (TEST, "test_mask")):
        if draw(st.booleans()):
            data[name] = torch.tensor(split == code)
    texts = draw(
        st.lists(st.text(st.characters(codec="utf-8"), max_size=4), min_size=n, max_size=n)
    )
    return data, texts, names


@given(data_and_names())
def test_a_graph_comes_back_as_it_went(case):
    data, texts, names = case
    graph = TextGraph.from_pyg(data, texts, class_names=names)
    again = graph.to_pyg(class_names=names)
    assert again.y.tolist() == data.y.tolist() and again.text == texts and again.x is None
    assert again.site == graph.site.tolist() == data.site
    assert list(graph.class_names) == sorted(names)
    wanted = {(a, b) for a, b in data.edge_index.T.tolist() if a != b}
    wanted |= {(b, a) for a, b in wanted}
    pairs = [tuple(pair) for pair in again.edge_index.T.tolist()]
    assert len(pairs) == len(set(pairs)) and set(pairs) == wanted
    for name in ("train_mask", "val_mask", "test_mask"):
        assert again[name].tolist() == data.get(name, torch.zeros(len(texts), dtype=bool)).tolist()
    once_more = TextGraph.from_pyg(again, texts, class_names=names)
    assert (once_more.labels == graph.labels).all() and (once_more.split == graph.split).all()
    assert (once_more.indices == graph.indices).all()


def test_numbers_name_classes_so_that_they_stay():
    y = torch.arange(12)
    graph = TextGraph.from_pyg(Data(y=y, num_nodes=12), [""] * 12)
    assert graph.labels.tolist() == y.tolist() and graph.class_names[10] == "10"
    assert graph.class_names[2] == "02" and graph.ids.tolist() == [str(i) for i in range(12)]
    assert graph.num_edges == 0
    column = TextGraph.from_pyg(Data(y=y[:, None], num_nodes=12), [""] * 12)
    assert (column.labels == graph.labels).all()
    assert (TextGraph.from_pyg(Data(num_nodes=2), ["a", "b"]).labels == -1).all()


def test_a_column_of_two_dimensional_masks():
    data = Data(y=torch.tensor([0, 1]), num_nodes=2, train_mask=torch.eye(2, dtype=torch.bool))
    assert TextGraph.from_pyg(data, ["", ""], mask_column=1).split.tolist() == [0, TRAIN]
    with pytest.raises(DataError, match="expected mask_column below 2, found None"):
        TextGraph.from_pyg(data, ["", ""])


def test_several_types_are_named_and_the_printed_call_makes_one_graph():
    data = HeteroData()
    data["paper"].y = torch.tensor([0, 1, 0])
    data["paper"].num_nodes, data["author"].num_nodes = 3, 2
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [0, 2]])
    with pytest.raises(DataError) as caught:
        TextGraph.from_pyg(data, ["a"] * 5)
    assert str(caught.value) == (
        "data: expected a torch_geometric.data.Data, found a HeteroData with nodes of types paper, "
        "author and edges ('author', 'writes', 'paper'); give data.to_homogeneous(), with the "
        "texts of the node types in this order"
    )
    graph = TextGraph.from_pyg(data.to_homogeneous(), ["p"] * 3 + ["a"] * 2)
    assert (graph.num_nodes, graph.num_edges, len(graph.class_names)) == (5, 2, 2)
    with pytest.raises(DataError, match="found a HeteroData with nodes of types none and edges"):
        TextGraph.from_pyg(HeteroData(), [])


def both_masks():
    inside = torch.tensor([True, False])
    return Data(num_nodes=2, train_mask=inside, test_mask=inside)


REFUSED = {
    "a list": ([], {}, "expected a torch_geometric.data.Data, found list; make one"),
    "no nodes": (Data(), {}, "at least one node"),
    "texts": (Data(num_nodes=2), {"texts": ["one"]}, "expected one for each of 2 nodes, found 1"),
    "a number": (Data(num_nodes=2), {"texts": ["one", 2]}, "a text at place 2 .* found 2"),
    "half a character": (
        Data(num_nodes=2),
        {"texts": ["", "a\ud800"]},
        "in nodes 1 to 2, found half a char",
    ),
    "several labels": (Data(num_nodes=2, y=torch.eye(2)), {}, "several labels per node"),
    "a label below": (Data(num_nodes=2, y=torch.tensor([0, -2])), {}, "found -2"),
    "class names": (
        Data(num_nodes=2, y=torch.tensor([0, 1])),
        {"class_names": ["one"]},
        "in -1..0, as there are 1 class names",
    ),
    "an edge": (Data(num_nodes=2, edge_index=torch.tensor([[0], [2]])), {}, "between nodes 0..1"),
    "half a node": (Data(num_nodes=2, edge_index=torch.full((2, 1), 0.5)), {}, "whole numbers"),
    "two masks": (both_masks(), {}, "node 0 of test_mask also in train_mask"),
    "ids": (Data(num_nodes=2), {"ids": ["a", "a"]}, "row 2: expected unique ids, found 'a'"),
    "no id": (Data(num_nodes=2), {"ids": ["a", ""]}, "ids: expected .* found '' at place 1"),
    "no id once stored": (Data(num_nodes=2), {"ids": ["a", "\0"]}, "ids: .* found '\\\\x00' at"),
    "half an id": (Data(num_nodes=2), {"ids": ["a", "b\ud800"]}, "ids: expected .* at place 1"),
    "numbers of classes": (
        Data(num_nodes=2),
        {"class_names": [3, 7]},
        "class_names: .* found 3 at",
    ),
    "no class names": (Data(num_nodes=2), {"class_names": [["one"]]}, "class_names: expected"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_graph_is_refused(case):
    data, arguments, message = REFUSED[case]
    arguments = {"texts": ["", ""]} | arguments
    with pytest.raises(DataError, match=message):
        TextGraph.from_pyg(data, **arguments)
