"""`dance-flwr data`: what its commands print, and that mistakes are one line."""

import json

import pytest
from typer.testing import CliRunner

from dance_flwr.cli.data import app
from dance_flwr.data.graphs.catalogue import CATALOGUE
from dance_flwr.errors import UserError

NODES = """\
id,text,label,split
a,short,x,train
b,[b]longer text[/b],,val
c,the longest text of all,y,
"""


@pytest.fixture
def call(tmp_path):
    """A function that runs a command on a data root of its own and returns what it printed."""

    def run(*arguments):
        done = CliRunner().invoke(
            app,
            list(map(str, arguments)),
            env={"COLUMNS": "160", "DANCE_FLWR_HOME": str(tmp_path / "root")},
        )
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    return run


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "nodes.csv").write_text(NODES)
    (folder / "edges.csv").write_text("source,target\na,c\nb,c\nc,b\n")
    return folder


def test_list_holds_built_in_published_and_imported_graphs(call, cli, mine, tmp_path, monkeypatch):
    call("import", mine, "--name", "own-graph")
    monkeypatch.setenv("DANCE_FLWR_HOME", str(tmp_path / "root"))
    words = ("list", "graphs")
    rows = {line.split()[0]: line for line in cli(*words).out.splitlines()}
    assert {"pydocs", "own-graph", *CATALOGUE} <= set(rows)
    for name, found in {
        "cora": ("2,708 nodes, 10,556 edges, 7 classes, split 60/20/20; ", " hub ", ", not here"),
        "wikics": (" official; ", " web ", ", not here"),
        "own-graph": ("3 nodes, 4 edges, 2 classes, split own; import of ", ", here"),
        "pydocs": ("BSD-3-Clause; numpy", ", here"),
    }.items():
        assert all(part in rows[name] for part in found), rows[name]
    facts = json.loads(cli(*words, "--json").out)
    assert facts["cora"]["nodes"] == 2708 and not facts["cora"]["here"]


def test_import_and_show(call, mine, tmp_path):
    assert "3 nodes, 2 edges, 4 edges both ways, 2 classes" in call("import", mine, "--name", "g")
    shown = call("show", "g")
    for part in (
        "edge homophily",
        "0.000",
        "characters per text",
        "[b]longer text[/b]",
        "the longest text of all",
    ):
        assert part in shown
    assert "Traceback" not in shown
    card = tmp_path / "root" / "graphs" / "g" / "import.json"
    content = json.loads(card.read_text())
    content["counts"]["edges"] = 7
    card.write_text(json.dumps(content))
    with pytest.raises(UserError, match="the report says 7 edges, the tables hold 2"):
        call("show", "g")


def test_show_begins_a_text_without_spaces(call, tmp_path):
    rows = "".join(
        f"{k},{text},a\n" for k, text in enumerate(("图神经网络" * 100, "x" * 300, "short"))
    )
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    nodes.write_text(f"id,text,label\n{rows}", "utf-8")
    edges.write_text("source,target\n0,1\n1,2\n", "utf-8")
    call("import", nodes, edges, "--name", "g")
    shown = call("show", "g")
    assert "图神经网络图神" in shown and "xxxx" in shown and "short" in shown


def test_show_sees_an_altered_text(call, mine, tmp_path):
    from dance_flwr.data.graphs.folder import read_folder, write_folder

    call("import", mine, "--name", "g")
    folder = tmp_path / "root" / "graphs" / "g"
    graph = read_folder(folder)
    graph.texts[0] = "shorT"
    write_folder(graph, folder)
    with pytest.raises(UserError, match=r"nodes\.parquet: not as it was stored"):
        call("show", "g")


def test_options_reach_the_reader(call, tmp_path):
    (tmp_path / "n.csv").write_text("key,a,b,kind\n1,one,two,x\n")
    (tmp_path / "e.csv").write_text("source,target\n")
    names = ("--text", "a,b", "--label", "kind", "--id", "key")
    call("import", tmp_path / "n.csv", tmp_path / "e.csv", "--name", "g", *names)
    assert "one two" in call("show", "g")
    tables = tmp_path / "n.csv", tmp_path / "e.csv"
    call("import", *tables, "--name", "n", *names, "--label", "none")
    assert "unlabelled" in call("show", "n")
    (tmp_path / "n.csv").write_bytes("key;a;b;kind\n1;café;two;-1\n2;x;y;?\n".encode("latin-1"))
    (tmp_path / "e.csv").write_text("one,two,w,is\n1,2,3,near\n1,9,1,far\n")
    names = (*names, "--source", "one", "--target", "two", "--edge-weight", "w")
    names = (*names, "--dangling", "drop", "--encoding", "latin-1", "--unlabelled", "?,")
    output = call("import", tmp_path / "e.csv", tmp_path / "n.csv", "--name", "h", *names)
    lines = [" ".join(line.split()) for line in output.splitlines()]
    for line in ("1 -1 (rare)", "weight w", "left out rows of edges: 1 that name an unknown node"):
        assert line in lines, output
    assert "read 2 rows of nodes in n.csv" in lines
    assert "café" in call("show", "h")
