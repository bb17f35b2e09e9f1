"""Any graph that NetworkX writes comes back; graphs in memory follow the rules of files."""

import json
from functools import partial

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.imports import drawn
from support.tables import values

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.imports.reading import read_network
from dance_flwr.errors import DataError

# Characters of XML; a carriage return becomes a line feed in every XML file.
texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff")
    | st.sampled_from("\n\t<&>\"']]> "),
    max_size=8,
)
names = st.sampled_from(["text", "label", "id", "source", "weight", "é 1", "@id", "key", "name"])
attributes = st.dictionaries(names, texts, max_size=4)


@st.composite
def graphs(draw):
    """A graph of any kind, with attributes of strings at nodes and edges."""
    kind = draw(st.sampled_from([nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]))
    graph = kind()
    ids = draw(st.lists(texts.filter(bool), min_size=1, max_size=5, unique=True))
    for name in ids:
        graph.add_node(name, **draw(attributes))
    for _ in range(draw(st.integers(0, 6))):
        ends = draw(st.tuples(st.sampled_from(ids), st.sampled_from(ids)))
        graph.add_edge(*ends, **draw(attributes))
    return graph


def rows(table, *roles):
    """Rows as (values of these columns, the others that are not empty), in order."""
    columns = values(table)
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    fixed = [tuple(record.pop(name) for name in roles) for record in records]
    return [(f, {k: v for k, v in r.items() if v}) for f, r in zip(fixed, records, strict=True)]


def without_empty(record):
    return {name: value for name, value in record.items() if value}


def same(file, graph, left_out=()):
    """Whether a file is a graph; `left_out` are columns of edges that NetworkX adds."""
    assert rows(file.nodes, file.roles["id"]) == [
        ((name,), without_empty(record)) for name, record in graph.nodes(data=True)
    ]
    undirected = set if not graph.is_directed() else tuple
    edges = [
        (undirected(ends), {k: v for k, v in record.items() if k not in left_out})
        for ends, record in rows(file.edges, file.roles["source"], file.roles["target"])
    ]
    assert edges == [
        (undirected((a, b)), without_empty(record)) for a, b, record in graph.edges(data=True)
    ]
    assert file.directed in (graph.is_directed(), None)


def write_json(graph, path, data, **options):
    path.write_text(json.dumps(data(graph, **options)))


# Format -> how NetworkX writes it; attributes of nodes and of edges that it takes for its own; and
# columns of edges that it adds.
FORMATS = {
    "graphml": (nx.write_graphml, (), ("id",), ("id",)),
    **{
        f"{version}.gexf": (
            partial(nx.write_gexf, version=version),
            *(("id", "key"), ("id", "key", "weight"), ("id", "networkx_key")),
        )
        for version in ("1.2draft", "1.3")
    },
    **{
        f"{edges}.json": (
            partial(write_json, data=nx.node_link_data, edges=edges),
            *(("id",), ("source", "key"), ("key",)),
        )
        for edges in ("links", "edges")
    },
    "cytoscape.json": (
        partial(write_json, data=nx.cytoscape_data),
        *((), ("source", "key"), ("key",)),
    ),
}


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=graphs())
def test_a_graph_of_networkx_comes_back(tmp_path_factory, name, graph):
    write, of_nodes, of_edges, added = FORMATS[name]
    for node, record in graph.nodes(data=True):
        for own in of_nodes:
            record.pop(own, None)
        if name.endswith("gexf"):
            record.setdefault("label", "l")
        if name == "cytoscape.json":
            record |= {"id": node, "name": node, "value": node}  # NetworkX puts them into every one
    for *_, record in graph.edges(data=True):
        for own in of_edges:
            record.pop(own, None)
    path = tmp_path_factory.mktemp("g") / f"g.{name}"
    write(graph, path)
    file = read_network(path)
    if name == "cytoscape.json":
        for _, record in graph.nodes(data=True):
            del record["id"]
    same(file, graph, left_out=added)


@pytest.mark.filterwarnings("ignore:.*empty text")
def test_graphs_in_memory_follow_the_rules_of_files():
    """None, NaN and "" mean the same, in frames, records and networks."""
    options = {"id": "key", "text": "title", "label": "kind"}
    nodes = {"key": [1, 2, 3], "title": ["one", None, "three"], "kind": ["x", float("nan"), ""]}
    ends = {"source": [1, 2, 2], "target": [2, 3, 2]}
    records = [dict(zip(nodes, row, strict=True)) for row in zip(*nodes.values(), strict=True)]
    links = [dict(zip(ends, row, strict=True)) for row in zip(*ends.values(), strict=True)]
    network = nx.Graph([(link["source"], link["target"]) for link in links])
    network.add_nodes_from((record["key"], record) for record in records)
    frame = pd.DataFrame(nodes)
    for graph in (
        TextGraph.from_pandas(frame, pd.DataFrame(ends), **options),
        TextGraph.from_pandas(frame.set_index("key"), pd.DataFrame(ends), **options),
        TextGraph.from_records(records, links, **options),
        TextGraph.from_networkx(network, **{**options, "id": ""}),
    ):
        assert drawn(graph) == "1: 'one' x, 2: '', 3: 'three' | 1-2, 2-3 | x"
    alone = [{"id": "a", "text": "t", "references": ["b"]}, {"id": "b", "text": "u"}]
    assert drawn(TextGraph.from_records(alone)) == "a: 't', b: 'u' | a-b | "
    alone[0] |= {"text": pd.NA, "references": np.array(["b"])}
    alone[1]["text"] = pd.NaT
    assert drawn(TextGraph.from_records(alone)) == "a: '', b: '' | a-b | "
    with pytest.raises(DataError, match="'nothing', found key, title, kind"):
        TextGraph.from_records(records, links, **{**options, "text": "nothing"})
