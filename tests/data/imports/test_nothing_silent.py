"""No row or column vanishes without a word, and no advice loses edges."""

import json

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dance_flwr.data.imports import importer
from dance_flwr.data.imports.importer import look_at
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.report import summary_lines

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
    elif kind == "mixed":
        every = [*names[0], *names[1]]
        records = [{**dict.fromkeys(every, ""), **record} for record in (*nodes, *edges)]
        contents["all.csv"] = as_csv([r for r in records if any(r.values())], every)
    else:
        write = as_csv if kind == "csv" else as_lines
        half = len(nodes) // 2
        contents[f"nodes-1.{kind}"] = write(nodes[:half] or nodes, names[0])
        if half:
            contents[f"nodes-2.{kind}"] = write(nodes[half:], names[0])
        contents[f"edges.{kind}"] = write(edges, names[1])
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in contents]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "graphml", "json", "mixed"])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes=st.lists(rows, min_size=1), edges=st.lists(links, min_size=1))
def test_every_row_and_column_is_accounted_for(tmp_path_factory, in_process, kind, nodes, edges):
    if kind == "mixed":  # a row without an end is no edge, and one with an id no node
        edges = [edge for edge in edges if edge["source"] or edge["target"]]
        nodes = [node for node in nodes if any(node.values())]
        assume(nodes and edges)
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
