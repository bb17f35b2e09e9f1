"""No row or column vanishes without a word, and no advice loses edges."""

import unicodedata

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dance_flwr.data.imports import importer
from dance_flwr.data.imports.importer import import_graph, look_at, read_graph
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.report import summary_lines
from dance_flwr.errors import DataError

NODES = "id,text,label\n1,one,x\n2,two,y\n3,three,y\n"


def files(folder, nodes=NODES, edges="source,target\n1,2\n", names=("nodes.csv", "edges.csv")):
    paths = [folder / name for name in names]
    for path, content in zip(paths, (nodes, edges), strict=True):
        path.write_text(content, encoding="utf-8")
    return paths


def _here(paths, name, options, out):
    return importer.prepare(paths, name, options, out)


@pytest.fixture
def in_process(monkeypatch):
    """Files are read in this process, where many small ones take less time."""
    monkeypatch.setattr(importer, "read_in_child", _here)


def test_a_quote_that_is_part_of_a_title_swallows_no_row(tmp_path):
    rows = 'id\ttext\tlabel\n1\t"Unpaired title\tx\n2\ttwo\ty\n3\tsaid "so"\ty\n4\tfour\tx\n'
    paths = files(tmp_path, rows, names=("nodes.tsv", "edges.csv"))
    assert read_graph(paths).texts == ['"Unpaired title', "two", 'said "so"', "four"]
    assert "quoting none" in look_at(paths, "g")["facts"]["nodes.tsv"]


def test_quotes_that_fit_twice_are_a_question_and_both_answers_count_rows(tmp_path):
    rows = 'id\ttext\tlabel\n1\t"one\tx\n2\ttwo\ty\n3\tthree"\ty\n'
    paths = files(tmp_path, rows, names=("nodes.tsv", "edges.csv"))
    with pytest.raises(DataError, match=r"line 2 .*--quoting none for 3 rows, or .* for 1"):
        read_graph(paths)
    assert read_graph(paths, quoting="none").num_nodes == 3


def test_quotes_escaped_by_a_backslash_and_rows_over_several_lines(tmp_path):
    paths = files(tmp_path, 'id,text\n1,"say \\"one\\", twice"\n2,two\n')
    assert read_graph(paths).texts == ['say "one", twice', "two"]
    paths = files(tmp_path, 'id,text\n1,"a\nb"\n2,two\n')
    assert "rows over several lines 1" in look_at(paths, "g")["facts"]["nodes.csv"]


def test_comments_are_counted_and_ids_that_begin_with_their_mark_are_none(tmp_path):
    names = ("nodes.csv", "edges.txt")
    paths = files(tmp_path, edges="# from to\n1 2\n", names=names)
    assert "skipped 1 comment line" in look_at(paths, "g")["facts"]["edges.txt"]
    paths = files(tmp_path, "id,text\n#1,one\n#2,two\n", "#1 #2\n#2 #1\n", names)
    assert look_at(paths, "g")["counts"]["edge_rows"] == 2


def test_a_table_of_edges_without_a_header_keeps_its_first_edge(tmp_path):
    paths = files(tmp_path, edges="1,2\n2,3\n")
    assert read_graph(paths).num_edges == 2 and read_graph(paths[::-1]).num_edges == 2
    paths = files(tmp_path, edges="a1,2\n2,3\n")
    with pytest.raises(DataError, match="give --no-header"):
        read_graph(paths)


def test_words_for_missing_values_are_counted_and_read_on_request(tmp_path):
    paths = files(tmp_path, "id,text,label\n1,NA,x\n2,two,NA\n")
    with pytest.warns(UserWarning, match="1 node is in a class 'NA'|1 node .* 'NA'") as caught:
        graph = read_graph(paths)
    assert len(caught) == 2 and graph.class_names == ("NA", "x")
    with pytest.warns(UserWarning, match="1 of 2 nodes have an empty text"):
        graph = read_graph(paths, missing=("NA",))
    assert (graph.class_names, graph.texts) == (("x",), ["", "two"])


@pytest.mark.parametrize(
    ("node", "end", "what"),
    [
        ("7", "7.0", "'.0'"),
        ("café", unicodedata.normalize("NFD", "café"), "Unicode form"),
        ("a b", " a b ", "surrounding space"),
        ("Soil", "soil", "case"),
    ],
)
def test_ids_that_nearly_match_one_node_are_that_node(tmp_path, node, end, what):
    paths = files(tmp_path, f"id,text\n{node},one\n2,two\n", f"source,target\n{end},2\n")
    with pytest.warns(UserWarning, match=f"1 source ids differ .* in {what} alone"):
        assert read_graph(paths).num_edges == 1


def test_ids_that_nearly_match_two_nodes_are_unknown(tmp_path):
    paths = files(tmp_path, "id,text\nSoil,one\nSOIL,two\n", "source,target\nsoil,Soil\n")
    with pytest.raises(DataError, match="row 1 source 'soil'"):
        read_graph(paths)


def test_links_by_place_stay_so_under_other_ids(tmp_path):
    path = tmp_path / "g.json"
    path.write_text('{"nodes": [{"name": "a"}, {"name": "b"}], "links": [{"source":0,"target":1}]}')
    graph = read_graph(path, id="name", text="name")
    assert (graph.ids.tolist(), graph.num_edges) == (["a", "b"], 1)


def test_what_a_pyg_file_holds_is_read_or_named(tmp_path):
    content = {"raw_texts": ["a", "b"], "y": torch.tensor([0.0, float("nan")])}
    content |= {"edge_index": torch.tensor([[0, 1], [1, 0]]), "edge_attr": torch.ones(2, 3)}
    content |= {"edge_weight": torch.ones(2), "edge_text": ["near", ""], "x": torch.zeros(2, 3)}
    torch.save(content, tmp_path / "g.pt")
    report = look_at([tmp_path / "g.pt"], "g")
    assert report["columns_left_out"]["edges"] == ["edge_weight", "edge_text", "edge_attr"]
    assert "x" in report["columns_left_out"]["nodes"]
    assert report["edges_left_out"] == {"description": 1, "weight": 2}
    assert report["counts"]["unlabelled"] == 1
    assert not any("edge" in name for name in report["columns_left_out"]["nodes"])


@pytest.mark.parametrize("name", ["n.jsonl", "n.csv"])
def test_edges_are_a_column_of_the_records(tmp_path, name):
    rows = {
        "n.jsonl": '{"id": 1, "text": "a", "references": [2, 3]}\n{"id": 2, "text": "b"}\n'
        '{"id": 3, "text": "c", "references": 1}\n',
        "n.csv": "id,text,references\n1,a,2;3\n2,b,\n3,c,1\n",
    }
    (tmp_path / name).write_text(rows[name])
    for options in ({}, {"edges_from": "references"}):
        graph = read_graph(tmp_path / name, **options)
        assert graph.indices.tolist() == [1, 2, 0, 0]


def test_a_dry_run_stores_nothing(tmp_path):
    report = look_at(files(tmp_path), "g")
    assert "3 of nodes, 1 of edges" in "\n".join(summary_lines(report))


ids = st.sampled_from("abcdefZ")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    nodes=st.lists(ids, min_size=1, unique=True),
    edges=st.lists(st.tuples(ids, ids, st.sampled_from(["", "1"]))),
    extra=st.lists(st.sampled_from(["year", "note", "split2"]), unique=True),
)
def test_every_row_and_column_is_accounted_for(tmp_path_factory, in_process, nodes, edges, extra):
    folder = tmp_path_factory.mktemp("all")
    head = ["id", "text", *extra]
    rows = [",".join([node, "t", *["1"] * len(extra)]) for node in nodes]
    paths = files(
        folder,
        "\n".join([",".join(head), *rows]) + "\n",
        "\n".join(["source,target,weight,when", *(",".join([*e, "x"]) for e in edges)]) + "\n",
    )
    report = import_graph(paths, "g", folder / "root", Options(dangling=str(len(edges))))
    counts, left_out = report["counts"], report["columns_left_out"]
    parts = ("arcs", "duplicates", "loop_rows", "dangling")
    assert counts["nodes"] == len(nodes)
    assert sum(counts.get(part, 0) for part in parts) == counts["edge_rows"] == len(edges)
    used = {name for names in report["columns"].values() for name in names}
    assert {*head, "source", "target", "weight", "when"} == used | {*left_out["nodes"]} | {
        *left_out["edges"]
    }
    assert report["edges_left_out"].get("weight", 0) == sum(e[2] == "1" for e in edges)
