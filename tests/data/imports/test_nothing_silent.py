"""No row or column vanishes without a word, and no advice loses edges."""

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dance_flwr.data.imports import importer, reading
from dance_flwr.data.imports.importer import look_at
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.report import summary_lines


def _here(paths, name, options, out):
    return reading.prepare(paths, name, options, out)


@pytest.fixture
def in_process(monkeypatch):
    """Files are read in this process, where many small ones take less time."""
    monkeypatch.setattr(importer, "read_in_child", _here)


ids = st.sampled_from(["a", "b", "c", "D", "é", ""])
cells = st.sampled_from(["", "1", "x y"])
rows = st.fixed_dictionaries({"id": ids, "text": cells, "pages": cells})
links = st.fixed_dictionaries({"source": ids, "target": ids, "weight": st.just("1"), "at": cells})


def as_csv(records, names):
    return "\n".join([",".join(names), *(",".join(r[n] for n in names) for r in records)]) + "\n"


def as_lines(records, names):
    return "".join(json.dumps({n: r[n] for n in names}) + "\n" for r in records)


def as_graphml(nodes, edges):
    def data(record, names):
        return "".join(f'<data key="{n}">{record[n]}</data>' for n in names)

    keys = "".join(f'<key id="{n}" for="all" attr.name="{n}"/>' for n in ("text", "pages", "at"))
    body = [f'<node id="{n["id"]}">{data(n, ["text", "pages"])}</node>' for n in nodes]
    body += [
        f'<edge source="{e["source"]}" target="{e["target"]}">{data(e, ["at"])}</edge>'
        for e in edges
    ]
    return f"<graphml>{keys}<graph>{''.join(body)}</graph></graphml>"


def stored(folder, kind, nodes, edges):
    """The paths of a graph in files of a kind."""
    names = ["id", "text", "pages"], ["source", "target", "weight", "at"]
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
    assert [row.split()[0] for row in summary_lines(report)].count("read") >= len(paths)
