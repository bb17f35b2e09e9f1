"""One set of rules for every format: labels, names, ends of edges, and what is left out."""

import unicodedata

import pytest
import torch
from torch_geometric.data import Data

from dance_flwr.data.imports.importer import import_graph, read_graph
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.report import summary_lines
from dance_flwr.errors import DataError, UserError

NODES = "id,text,label\na,one,x\nb,two,y\nc,three,y\n"


def graph_in(folder, nodes=NODES, edges="source,target\na,b\n", **options):
    """The graph of these two tables."""
    return read_graph(tables(folder, nodes, edges), **options)


def tables(folder, nodes, edges, suffix="csv"):
    paths = [folder / f"nodes.{suffix}", folder / "edges.csv"]
    for path, content in zip(paths, (nodes, edges), strict=True):
        path.write_text(content, encoding="utf-8")
    return paths


def refusal(folder, *contents, error=DataError, **options):
    with pytest.raises(error) as caught:
        graph_in(folder, *contents, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "pair",
    [("café", unicodedata.normalize("NFD", "café")), ("Sky", "sky"), ("sky", " sky")],
)
@pytest.mark.parametrize("column", ["label", "id"])
def test_names_that_look_alike_are_pointed_out_and_kept(tmp_path, pair, column):
    names = dict.fromkeys(("label", "id"), ("a", "b")) | {column: pair}
    rows = zip(names["id"], names["label"], strict=True)
    nodes = "id,text,label\n" + "".join(f"{i},t,{label}\n" for i, label in rows)
    what = "class names" if column == "label" else "ids"
    with pytest.warns(UserWarning, match=f"{what} that differ only in Unicode form") as caught:
        graph = graph_in(tmp_path, nodes, "source,target\n")
    assert all(ascii(name) in str(caught[0].message) for name in pair)
    assert sorted(graph.class_names) == sorted(names["label"])
    assert graph.ids.tolist() == list(names["id"])


def test_all_missing_columns_are_named_at_once_with_those_that_may_be_meant(tmp_path):
    nodes, edges = "key,headline,abstract,Area:string\na,one,two,x\n", "from,too\na,a\n"
    wrong = {"text": "headlin,abstrct", "label": "aera", "id": "zz", "source": "form"}
    message = refusal(tmp_path, nodes, edges, **wrong, edge_weight="w")
    for part in (
        "'zz', 'headlin', 'abstrct', 'aera', found key, headline, abstract, Area:string; ",
        "'form', 'target', 'w', found from, too; name them with ",
        "--id, --text, --label, --source, --target, --edge-weight",
        "did you mean 'headline' and 'abstract' and 'area' and 'from'?",
    ):
        assert part in message
    assert "--dangling: expected refuse or drop" in refusal(tmp_path, error=UserError, dangling="x")


def test_what_an_import_says(tmp_path):
    nodes = "id,text,label,year\na,one,x,1\nb,,y,2\nc,three,,3\nd,four,y,4\n"
    edges = "source,target,relation,weight\na,b,is,2\nb,a,is,\nb,c,,1\nb,c,has,1\na,a,is,1\n"
    paths = tables(tmp_path, nodes, edges)
    with pytest.warns(UserWarning, match="1 of 4 nodes have an empty text"):
        report = import_graph(paths, "g", tmp_path / "root")
    expected = {
        **{"nodes": 4, "empty_texts": 1, "characters": 12, "longest_text": 5},
        **{"labelled": 3, "unlabelled": 1, "classes": 2},
        **{"edges": 2, "directed_edges": 4, "arcs": 3, "one_way": 1},
        **{"self_loops": 1, "duplicates": 1, "isolated": 1},
    }
    assert expected.items() <= report["counts"].items()
    assert report["class_sizes"] == {"y": 2, "x": 1}
    assert report["columns_left_out"] == {"nodes": ["year"], "edges": ["relation", "weight"]}
    assert report["edges_left_out"] == {"relation": 4, "weight": 4}
    lines = "\n".join(summary_lines(report))
    for part in (
        "encoding utf-8, delimiter comma",
        "columns year",
        "longest 5 characters, 1 empty",
        "2 classes, 3 nodes labelled, 1 not",
        "2  y  (rare)",
        "1 duplicates merged, 1 self-loops dropped, 1 in one direction only, read in both",
        "; 1 isolated nodes",
        "the relation of 4 edges; --edge-text append keeps them",
        "the weight of 4 edges; --edge-weight COLUMN keeps them",
    ):
        assert part in lines, lines


def test_texts_and_weights_of_edges_on_request(tmp_path):
    edges = (
        "source,target,relation,description,weight\n"
        "a,b,is,first<SEP>second,2\nb,a,has,,0.5\nb,c,,only this,1\na,a,loop,,1\n"
    )
    paths = tables(tmp_path, NODES, edges)
    options = {"edge_text": "append", "edge_weight": "weight"}
    report = import_graph(paths, "g", tmp_path / "root", Options(**options))
    assert report["edges_left_out"] == {}
    stored, read = read_graph(tmp_path / "root" / "graphs" / "g"), read_graph(paths, **options)
    for graph in (stored, read):
        assert graph.edge_texts.texts == ("is: first\nsecond", "has", "only this")
        assert graph.edge_texts.source.tolist() == [0, 1, 1]
        assert graph.indices.tolist() == [1, 0, 2, 1]
        assert graph.weights.tolist() == [2.5, 2.5, 1, 1]


@pytest.mark.parametrize("weight", ["heavy", "-1", "nan", "inf", ""])
def test_a_weight_that_is_none_is_refused(tmp_path, weight):
    edges = f"source,target,weight\na,b,1\nb,c,{weight}\n"
    message = refusal(tmp_path, NODES, edges, edge_weight="weight")
    assert f"row 2: expected a number of at least 0 in 'weight', found {weight!r}" in message


def test_a_folder_of_ours_is_read_as_it_stands(tmp_path):
    from dataclasses import replace

    from dance_flwr.data.graphs.folder import write_folder

    graph = replace(graph_in(tmp_path), class_names=("-1", "none"))
    write_folder(graph, tmp_path / "ours")
    report = import_graph([tmp_path / "ours"], "g", tmp_path / "root")
    assert report["kind"] == "dance-flwr folder"
    for path in (tmp_path / "ours", tmp_path / "root" / "graphs" / "g"):
        again = read_graph(path)
        assert again.class_names == ("-1", "none")
        assert again.labels.tolist() == graph.labels.tolist()


@pytest.mark.parametrize(("label", "classes"), [("", ("x", "y", "z")), ("topic", ("u", "v"))])
def test_declared_classes_are_those_of_the_files_own_labels(tmp_path, label, classes):
    data = Data(edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
    data.raw_texts, data.topic, data.label_names = ["one", "two"], ["u", "v"], ["x", "y", "z"]
    torch.save(data, tmp_path / "g.pt")
    assert read_graph(tmp_path / "g.pt", label=label).class_names == classes
    assert read_graph(tmp_path / "g.pt", label="none").class_names == ()
