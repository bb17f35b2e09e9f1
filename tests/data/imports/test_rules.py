"""One set of rules for every format: labels, names, ends of edges, and what is left out."""

import json
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


@pytest.mark.parametrize("missing", ["", "-1", "nan", "NaN", "None", " none ", "NULL", "-1.0"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_no_label_is_written_in_several_ways(tmp_path, missing, suffix):
    rows = [("a", "soil"), ("b", missing), ("c", "sky")]
    nodes = "id,text,label\n" + "".join(f"{i},t,{label}\n" for i, label in rows)
    if suffix == "jsonl":
        nodes = "\n".join(json.dumps({"id": i, "text": "t", "label": n}) for i, n in rows)
    graph = read_graph(tables(tmp_path, nodes, "source,target\n", suffix))
    assert (graph.class_names, graph.labels.tolist()) == (("sky", "soil"), [1, -1, 0])


def test_the_list_of_missing_labels_is_an_option(tmp_path):
    nodes = "id,text,label\na,one,-1\nb,two,?\nc,three,\n"
    graph = graph_in(tmp_path, nodes, unlabelled=("?", ""))
    assert (graph.class_names, graph.labels.tolist()) == (("-1",), [0, -1, -1])


@pytest.mark.parametrize(
    ("record", "column"),
    [
        ({"id": 1, "label": ["soil", "stone"], "text": "one"}, "'label'"),
        ({"id": 1, "label": "soil", "text": ["one", "two"]}, "'text'"),
    ],
)
def test_lists_and_objects_are_several_labels(tmp_path, record, column):
    paths = tables(tmp_path, json.dumps(record), "source,target\n", "jsonl")
    with pytest.raises(DataError, match=f"expected one value in {column}, found a list in row 1"):
        read_graph(paths)
    # A list in a column that is not read is none of our business.
    record |= {"id": "1", "text": "one", "label": "x", "tags": [1, 2]}
    assert read_graph(tables(tmp_path, json.dumps(record), "source,target\n", "jsonl")).num_nodes


def test_several_labels_of_neo4j_are_refused(tmp_path):
    nodes = ":ID,text,:LABEL\na,one,Person;Actor\n"
    message = refusal(tmp_path, nodes, ":START_ID,:END_ID\n")
    assert "expected one label per node" in message and "'Person;Actor'" in message
    assert graph_in(tmp_path, nodes, ":START_ID,:END_ID\n", label="none").class_names == ()


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


def test_a_graph_without_labels(tmp_path):
    for nodes, options in (("id,text\na,one\nb,two\n", {}), (NODES, {"label": "none"})):
        graph = graph_in(tmp_path, nodes, **options)
        assert graph.class_names == () and set(graph.labels.tolist()) == {-1}
    report = import_graph([tmp_path], "g", tmp_path / "root", Options(label="none"))
    assert report["counts"]["classes"] == 0 and report["columns_left_out"]["nodes"] == ["label"]
    assert [line for line in summary_lines(report) if line.split() == ["labels", "none"]]


def test_dangling_edges_are_counted_named_and_dropped_on_request(tmp_path):
    edges = "source,target\na,c\na,zz\nb,yy\nxx,ww\n0,b\n"
    message = refusal(tmp_path, NODES, edges)
    assert (
        "found 4 edges with another: row 2 target 'zz', row 3 target 'yy', row 4 source" in message
    )
    assert "these are 4 of 5 edges, so check --id" in message
    assert "--dangling 4" in refusal(tmp_path, NODES, edges, dangling="drop")
    report = import_graph([tmp_path], "g", tmp_path / "root", Options(dangling="4"))
    assert (report["counts"]["dangling"], report["counts"]["edges"]) == (4, 1)
    assert "4 that name an unknown node" in "\n".join(summary_lines(report))


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


def test_joined_descriptions_of_nodes_are_lines(tmp_path):
    nodes = "id,description\na,first<SEP>second\n"
    assert graph_in(tmp_path, nodes, "source,target\n").texts == ["first\nsecond"]


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


def test_a_name_that_is_the_text_is_no_class(tmp_path):
    """yEd and Gephi draw `label` beside a node: as text it is none of its classes."""
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    nodes.write_text("id,label,topic\na,one,x\nb,two,y\n")
    edges.write_text("source,target\na,b\n")
    assert read_graph([nodes, edges], text="label").class_names == ()
    assert read_graph([nodes, edges], text="label", label="label").class_names == ("one", "two")
    assert read_graph([nodes, edges], text="label", label="topic").class_names == ("x", "y")


@pytest.mark.parametrize(("label", "classes"), [("", ("x", "y", "z")), ("topic", ("u", "v"))])
def test_declared_classes_are_those_of_the_files_own_labels(tmp_path, label, classes):
    data = Data(edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
    data.raw_texts, data.topic, data.label_names = ["one", "two"], ["u", "v"], ["x", "y", "z"]
    torch.save(data, tmp_path / "g.pt")
    assert read_graph(tmp_path / "g.pt", label=label).class_names == classes
    assert read_graph(tmp_path / "g.pt", label="none").class_names == ()
