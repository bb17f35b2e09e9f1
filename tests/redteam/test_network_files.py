"""Networks of strangers: small files never take much memory, damaged ones are refused in a line."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import networkx as nx
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import bombs
from support.measuring import watching
from support.tables import values

from dance_flwr.data.graphs.limits import VARIABLE
from dance_flwr.data.imports.importer import read_graph
from dance_flwr.data.imports.options import DEFAULTS
from dance_flwr.data.imports.reading import recognise
from dance_flwr.errors import DataError, UserError

# Refusals come so early that no reader takes more than half of what is allowed.
BOUNDS = "nodes=1e6,edges=2e5,characters=1e6,columns=5000,memory=16e6"
MAX_BYTES = 128 << 20  # above the memory of the loaded libraries
linux = pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="needs the peak memory that Linux reports"
)


def without_lists(table):
    """The columns of a table but the one of GraphRAG that holds lists."""
    return [name for name in table.names if name != "text_unit_ids"]


NODES = "".join(f'<node id="{i}"/>' for i in range(bombs.MANY))


def graphml(folder, body):
    (folder / "g.graphml").write_text(f"<graphml>{body}</graphml>")
    return folder / "g.graphml"


def gexf(folder, body, head=""):
    (folder / "g.gexf").write_text(f"{head}<gexf><graph>{body}</graph></gexf>")
    return folder / "g.gexf"


def graphml_default(folder):
    """A long default, which every node has."""
    key = f'<key id="t" for="node" attr.name="text"><default>{bombs.LONG}</default></key>'
    return graphml(folder, f"{key}<graph>{NODES}</graph>")


def graphml_declarations(folder):
    keys = "".join(f'<key id="{i}" for="all" attr.name="a {i}"/>' for i in range(200_000))
    return graphml(folder, f"{keys}<graph>{NODES}</graph>")


def graphml_names(folder):
    return graphml(folder, "<graph>" + f'<node id="{"x" * 40_000_000}"/>' + "</graph>")


def graphml_tag(folder):
    return graphml(folder, "<graph><node " + " ".join(f'a{i}="x"' for i in range(4_000_000)))


def graphml_repetitions(folder):
    data = '<data key="t">x</data>' * 1_000_000
    key = '<key id="t" for="node" attr.name="text"/>'
    return graphml(folder, f'{key}<graph><node id="a">{data}</node></graph>')


def graphml_edges(folder):
    edges = '<edge source="a" target="a"/>' * 400_000
    return graphml(folder, f'<graph><node id="a"/>{edges}</graph>')


def graphml_labels(folder):
    label = f"<NodeLabel>{bombs.LONG}</NodeLabel>"
    nodes = "".join(
        f'<node id="{i}"><data key="d">{label}</data></node>' for i in range(bombs.MANY // 20)
    )
    key = '<key id="d" for="node" yfiles.type="nodegraphics"/>'
    return graphml(folder, f"{key}<graph>{nodes}</graph>")


def gexf_default(folder):
    attribute = f'<attribute id="0" title="t" type="string"><default>{bombs.LONG}</default>'
    attributes = f'<attributes class="node">{attribute}</attribute></attributes>'
    return gexf(folder, f"{attributes}<nodes>{NODES}</nodes>")


def gexf_depth(folder):
    return gexf(folder, '<nodes><node id="a">' * 2_000_000)


def gexf_attributes(folder):
    attributes = "".join(f'<attribute id="{i}" type="string"/>' for i in range(200_000))
    return gexf(folder, f'<attributes class="edge">{attributes}</attributes>')


def gexf_entities(folder):
    return gexf(folder, '<nodes><node id="&c;"/></nodes>', bombs.ENTITIES)


def gexf_laughs(folder):
    declared = f'<!ENTITY a "{"x" * 50_000}"><!ENTITY b "{"&a;" * 90}">'
    return gexf(folder, '<nodes><node id="&b;"/></nodes>', f"<!DOCTYPE g [{declared}]>")


def json_elements(folder):
    (folder / "g.json").write_text(
        '{"elements": [' + '{"data": {}},' * 2_000_000 + '{"data": {}}]}'
    )
    return folder / "g.json"


def json_names(folder):
    nodes = [{f"key {i} {j}": 0 for j in range(100)} for i in range(200)]
    (folder / "g.json").write_text(json.dumps({"nodes": nodes, "links": []}))
    return folder / "g.json"


def json_repeated_keys(folder):
    node = "{" + '"a": "x",' * 2_000_000 + '"id": 1}'
    (folder / "g.json").write_text(f'{{"nodes": [{node}], "links": []}}')
    return folder / "g.json"


# The column that makes a reader meet the bomb, where it is not `t`.
TEXTS = {"graphml_default": "text", "graphml_labels": "label"}
NETWORKS = {
    name: make
    for name, make in list(globals().items())
    if name.startswith(("graphml_", "gexf_", "json_"))
}


def small_files(folder):
    """A graph of two nodes in every format: name -> path."""
    graph = nx.DiGraph()
    graph.add_node("a", text="first")
    graph.add_node("b", text="sécond")
    graph.add_edge("a", "b", weight=0.5, note="n")
    files = {name: folder / f"g.{name}" for name in ("graphml", "gexf", "json", "pt")}
    nx.write_graphml(graph, files["graphml"])
    nx.write_gexf(graph, files["gexf"])
    files["json"].write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    edge_index = torch.tensor([[0, 1], [1, 0]])
    torch.save(
        {"text": ["a", "b"], "y": torch.tensor([0, 1]), "edge_index": edge_index}, files["pt"]
    )
    files["cytoscape"] = folder / "c.json"
    files["cytoscape"].write_text(json.dumps(nx.cytoscape_data(graph)))
    files["saved"] = folder / "saved"
    files["saved"].mkdir(parents=True)
    bombs.saved(files["saved"], pa.table({"id": ["a", "b"], "text": ["first", "second"]}))
    files["graphrag"] = folder / "graphrag"
    files["graphrag"].mkdir()
    entities = pd.DataFrame({"title": ["a"], "description": ["d"], "text_unit_ids": [["t"]]})
    entities.to_parquet(files["graphrag"] / "entities.parquet")
    ends = pd.DataFrame({"source": ["a"], "target": ["a"], "weight": [1.0]})
    ends.to_parquet(files["graphrag"] / "relationships.parquet")
    return files


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_files(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def usual(small):
    """The memory that reading a small graph takes, libraries included."""
    with watching() as seen:
        for _ in range(3):
            read_graph(small["pt"])
            read_graph(small["graphml"])
    return seen["peak"]


@linux
@pytest.mark.parametrize("bomb", NETWORKS)
def test_a_small_network_takes_little_memory_and_is_refused(tmp_path, usual, monkeypatch, bomb):
    monkeypatch.setenv(VARIABLE, BOUNDS)
    path = NETWORKS[bomb](tmp_path)
    with watching() as seen, pytest.raises(UserError) as caught:
        read_graph(path, text=TEXTS.get(bomb, "t"), id="id", label="none")
    line = str(caught.value)
    print(f"{bomb}: {seen['peak'] - usual >> 20} MiB, {line}")
    assert seen["peak"] - usual < MAX_BYTES
    assert "expected" in line and len(line) < 1_000 and "\n" not in line
    if "entities" in bomb or "laughs" in bomb:
        assert "entity declarations" in line


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ("nodes=1", ["at most 1 nodes, found more", "nodes=NUMBER"]),
        ("columns=1", ["at most 1 columns", "columns=NUMBER"]),
        ("memory=20", ["expected at most", "memory=NUMBER"]),
    ],
)
def test_the_user_sets_the_bounds_of_every_network(small, monkeypatch, bounds, words):
    monkeypatch.setenv(VARIABLE, bounds)
    for name, path in small.items():
        if name == "graphrag" and bounds == "nodes=1":
            continue  # it has one
        with pytest.raises(UserError) as caught:
            file, _ = recognise([path], DEFAULTS)
            for (table,) in (file.nodes, file.edges):
                values(table, without_lists(table))
        assert all(word in str(caught.value) for word in words), str(caught.value)


changes = st.tuples(
    st.sampled_from(["cut", "flip", "add", "all"]), st.floats(0, 1), st.binary(min_size=1)
)


def changed(content, how):
    for kind, share, value in how:
        place = int(share * max(len(content) - 1, 0))
        before, after = content[:place], content[place:]
        if kind == "flip" and after:
            after = bytes([after[0] ^ 1 << value[0] % 8]) + after[1:]
        elif kind != "flip":
            before, after = {
                "cut": (before, b""),
                "add": (before + value, after),
                "all": (value, b""),
            }[kind]
        content = before + after
    return content


PLACES = {
    **dict.fromkeys(("graphml", "gexf", "json", "pt", "cytoscape"), ""),
    "saved": "data.arrow",
    "graphrag": "entities.parquet",
}


@pytest.mark.parametrize("kind", PLACES)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(how=st.lists(changes, min_size=1, max_size=3))
def test_a_damaged_network_is_a_graph_or_one_line(tmp_path_factory, small, kind, how):
    path = tmp_path_factory.mktemp("damaged") / small[kind].name
    (shutil.copytree if small[kind].is_dir() else shutil.copy)(small[kind], path)
    file = path / PLACES[kind] if path.is_dir() else path
    file.write_bytes(changed(file.read_bytes(), how))
    try:
        read, _ = recognise([path], DEFAULTS)
        for (table,) in (read.nodes, read.edges):
            for name in without_lists(table):
                values(table, [name])
    except UserError as error:
        assert isinstance(error, DataError)
        assert "\n" not in str(error) and len(str(error)) < 2_000


def test_no_flipped_bit_of_a_parquet_file_ends_the_process(small, tmp_path):
    """Arrow's objects of columns call `terminate` where a histogram of statistics is damaged."""
    folder = tmp_path / "graphrag"
    shutil.copytree(small["graphrag"], folder)
    content = (folder / "entities.parquet").read_bytes()
    if not (child := os.fork()):
        with (folder / "entities.parquet").open("r+b", buffering=0) as file:
            for place, byte in enumerate(content):
                os.pwrite(file.fileno(), bytes([byte ^ 1 << place % 8]), place)
                with suppress(UserError):
                    (nodes,) = recognise([folder], DEFAULTS)[0].nodes
                    values(nodes, without_lists(nodes))
                os.pwrite(file.fileno(), bytes([byte]), place)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
