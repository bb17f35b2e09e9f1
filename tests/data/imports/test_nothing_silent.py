"""No row or column vanishes without a word, and no advice loses edges."""

import json
import unicodedata

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dance_flwr.data.imports import importer
from dance_flwr.data.imports.importer import look_at, read_graph
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


def test_nodes_without_an_id_and_with_the_id_of_another(tmp_path):
    paths = files(tmp_path, NODES + ",nobody,y\n1,more,\n", "source,target\n1,2\n,1\n2,3\n")
    with pytest.raises(DataError, match=r"row 4: .* give --nameless drop"):
        read_graph(paths)
    with pytest.raises(DataError, match=r"row 4: .* give --duplicates merge or first"):
        read_graph(paths, nameless="drop")
    for rule, text in (("first", "one"), ("merge", "one\nmore")):
        graph = read_graph(paths, nameless="drop", duplicates=rule)
        assert (graph.texts[0], graph.num_nodes, graph.num_edges) == (text, 3, 2)
    paths = files(tmp_path, NODES + "1,more,z\n")
    with pytest.raises(DataError, match="one label in all rows of the id '1', found 'x' and 'z'"):
        read_graph(paths, duplicates="merge")


def test_a_key_that_an_object_has_twice_is_refused(tmp_path):
    (tmp_path / "g.json").write_text(
        '{"nodes": [{"id": 1, "text": "a", "text": "b"}], "links": []}'
    )
    with pytest.raises(DataError, match="the key 'text' is there twice in an object"):
        read_graph(tmp_path / "g.json")


@pytest.mark.parametrize("name", ["n.jsonl", "n.csv"])
def test_edges_are_a_column_of_the_records(tmp_path, name):
    rows = {
        "n.jsonl": '{"id": 1, "text": "a", "references": [2, 3]}\n{"id": 2, "text": "b"}\n'
        '{"id": 3, "text": "c", "references": "1;2"}\n',
        "n.csv": "id,text,references\n1,a,2;3\n2,b,\n3,c,1;2\n",
    }
    (tmp_path / name).write_text(rows[name])
    for options in ({}, {"edges_from": "references"}):
        graph = read_graph(tmp_path / name, **options)
        assert graph.indices.tolist() == [1, 2, 0, 2, 0, 1]


ids = st.sampled_from(["a", "b", "c", "D", "é", ""])
cells = st.sampled_from(["", "1", "x y"])
rows = st.fixed_dictionaries({"id": ids, "text": cells, "year": cells})
links = st.fixed_dictionaries({"source": ids, "target": ids, "weight": st.just("1"), "at": cells})


def as_csv(records, names):
    return "\n".join([",".join(names), *(",".join(r[n] for n in names) for r in records)]) + "\n"


def as_lines(records, names):
    return "".join(json.dumps({n: r[n] for n in names}) + "\n" for r in records)


def as_graphml(nodes, edges):
    def data(record, names):
        return "".join(f'<data key="{n}">{record[n]}</data>' for n in names)

    keys = "".join(f'<key id="{n}" for="all" attr.name="{n}"/>' for n in ("text", "year", "at"))
    body = [f'<node id="{n["id"]}">{data(n, ["text", "year"])}</node>' for n in nodes]
    body += [
        f'<edge source="{e["source"]}" target="{e["target"]}">{data(e, ["at"])}</edge>'
        for e in edges
    ]
    return f"<graphml>{keys}<graph>{''.join(body)}</graph></graphml>"


def stored(folder, kind, nodes, edges):
    """The paths of a graph in files of a kind."""
    names = ["id", "text", "year"], ["source", "target", "weight", "at"]
    contents = {}
    if kind == "graphml":
        contents["g.graphml"] = as_graphml(nodes, edges)
    elif kind == "json":
        contents["g.json"] = json.dumps({"nodes": nodes, "links": edges, "multigraph": True})
    else:
        write = as_csv if kind == "csv" else as_lines
        contents[f"nodes.{kind}"] = write(nodes, names[0])
        contents[f"edges.{kind}"] = write(edges, names[1])
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in contents]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "graphml", "json"])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes=st.lists(rows, min_size=1), edges=st.lists(links, min_size=1))
def test_every_row_and_column_is_accounted_for(tmp_path_factory, in_process, kind, nodes, edges):
    assume(any(node["id"] for node in nodes))
    paths = stored(tmp_path_factory.mktemp("all"), kind, nodes, edges)
    options = Options(dangling=str(len(edges)), nameless="drop", duplicates="merge")
    report = look_at(paths, "g", options)
    counts, accounts = report["counts"], report["accounts"]
    assert set(accounts) == {path.name for path in paths} == set(report["files"])
    given_rows = {"nodes": len(nodes), "edges": len(edges)}
    for what, number in given_rows.items():
        read = sum(of_file[what]["rows"] for of_file in accounts.values() if what in of_file)
        assert read == number
        assert counts[what] + sum(report["rows_left_out"][what].values()) == number
    left_out = {name for names in report["columns_left_out"].values() for name in names}
    for of_file in accounts.values():
        unused = {n for of in of_file.values() for n, role in of["columns"].items() if not role}
        used = {n for of in of_file.values() for n, role in of["columns"].items() if role}
        assert unused <= left_out | used
    assert counts["nodes"] == len({node["id"] for node in nodes} - {""})
    assert "\n".join(summary_lines(report)).count("rows ") >= len(paths)
