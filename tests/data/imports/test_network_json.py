"""JSON of graphs: node-link of NetworkX, D3 and Cytoscape, from their documentation."""

import json

import networkx as nx
import pytest
from support.tables import of_roles, roles_of, values

from dance_flwr.data.imports.importer import read_network
from dance_flwr.errors import DataError


def read(folder, content, name="g.json"):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8-sig")
    return read_network(folder / name)


@pytest.mark.parametrize("edges", ["links", "edges"])
def test_node_link_of_networkx(tmp_path, edges):
    graph = nx.MultiDiGraph()
    graph.add_node(1, text="soil", year=1999.0, score=0.5, seen=True, note=None)
    graph.add_node("b", text="stone", score=float("nan"))
    graph.add_edge(1, "b", relation="under", weight=2)
    graph.add_edge(1, "b", relation="near")
    file = read(tmp_path, nx.node_link_data(graph, edges=edges))
    assert values(file.nodes) == {
        "text": ["soil", "stone"],
        "year": ["1999", ""],
        "score": ["0.5", ""],
        "seen": ["true", ""],
        "note": ["", ""],
        "id": ["1", "b"],
    }
    assert values(file.edges) == {
        "relation": ["under", "near"],
        "weight": ["2", ""],
        "source": ["1", "1"],
        "target": ["b", "b"],
        "key": ["0", "1"],
    }
    assert (file.kind, file.directed) == ("node-link JSON of NetworkX", True)
    assert set(roles_of(file)) == {"id", "source", "target", "weight"}


D3 = [{"name": "Myriel", "group": 1}, {"name": "Napoleon", "group": 1}, {"name": "Valjean"}]


def test_links_of_d3_by_place(tmp_path):
    """As `miserables.json` of D3 version 3 has them."""
    links = [{"source": 1, "target": 0, "value": 8}, {"source": 2, "target": 0, "value": 1}]
    file = read(tmp_path, {"nodes": D3, "links": links})
    assert (file.kind, file.directed, file.facts) == ("JSON of D3", None, {"links": "by place"})
    assert values(file.nodes) == {
        "index": ["0", "1", "2"],
        "name": ["Myriel", "Napoleon", "Valjean"],
        "group": ["1", "1", ""],
    }
    assert of_roles(file) == {"id": ["0", "1", "2"], "source": ["1", "2"], "target": ["0", "0"]}
    assert values(file.edges)["value"] == ["8", "1"]


@pytest.mark.parametrize(
    ("ids", "ends", "how", "column"),
    [
        (["a", "b", "c"], ["a", "c"], "by id", "id"),
        ([0, 1, 2], [0, 2], "by id", "id"),
        ([2, 1, 0], [0, 2], "by id", "id"),
        ([10, 11, 12], [0, 2], "by place", "index"),
        ([1, 2, 3], [0, 2], "by place", "index"),
        (["1", "2", "3"], [1, 3], "by id", "id"),
        (["a", "b", "c"], ["a", "zz"], "by id", "id"),
        ([0, 1, 2], [0, 9], "by id", "id"),
        ([10, 11, 12], [True, False], "by id", "id"),
        (None, ["Myriel", "Valjean"], "by name", "name"),
    ],
)
def test_links_of_d3_by_id_where_ids_are_their_ends(tmp_path, ids, ends, how, column):
    nodes = D3 if ids is None else [{**n, "id": i} for n, i in zip(D3, ids, strict=True)]
    file = read(tmp_path, {"nodes": nodes, "links": [{"source": ends[0], "target": ends[1]}]})
    assert (file.facts["links"], roles_of(file)["id"]) == (how, column)


def test_places_beside_a_column_index(tmp_path):
    nodes = [{"index": 7, "text": "a"}, {"index": 8, "text": "b"}]
    file = read(tmp_path, {"nodes": nodes, "links": [{"source": 0, "target": 1}]})
    assert values(file.nodes, ["@index", "index"]) == {"@index": ["0", "1"], "index": ["7", "8"]}
    assert roles_of(file)["id"] == "@index"


def test_nodes_without_any_id_leave_the_choice_to_the_user(tmp_path):
    links = [{"source": "x1", "target": "x2"}]
    file = read(tmp_path, {"nodes": [{"key": "x1"}, {"key": "x2"}], "links": links})
    assert "id" not in roles_of(file) and values(file.nodes) == {"key": ["x1", "x2"]}


NODES = [
    {"data": {"id": "a", "label": "soil"}, "position": {"x": 1, "y": 2}, "selected": False},
    {"data": {"id": "b"}, "classes": "top"},
]
EDGES = [{"data": {"id": "ab", "source": "a", "target": "b", "interaction": "pp", "weight": 0.5}}]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"elements": {"nodes": NODES, "edges": EDGES}, "style": []}, "g.json"),
        (
            {"format_version": "1.0", "data": {}, "elements": {"nodes": NODES, "edges": EDGES}},
            "g.cyjs",
        ),
        ({"elements": [*EDGES, *NODES]}, "g.json"),
        (
            [{"group": "edges", **EDGES[0]}, *({"group": "nodes", **node} for node in NODES)],
            "g.json",
        ),
    ],
)
def test_elements_of_cytoscape_by_group_and_in_one_list(tmp_path, content, name):
    file = read(tmp_path, content, name)
    assert (file.kind, file.directed) == ("JSON of Cytoscape", None)
    assert values(file.nodes, ["id", "label"]) == {"id": ["a", "b"], "label": ["soil", ""]}
    assert {"position.x", "selected", "classes"} <= {*file.nodes[0].names}
    assert of_roles(file) == {
        "id": ["a", "b"],
        "source": ["a"],
        "target": ["b"],
        "weight": ["0.5"],
        "relation": ["pp"],
    }
    assert values(file.edges, ["id"]) == {"id": ["ab"]}


def test_what_no_column_of_a_json_file_shows_is_named(tmp_path):
    graph = {"nodes": {"a": {"metadata": {"text": "t"}}}, "hyperedges": [{"nodes": ["a"]}]}
    file = read(tmp_path, {"graph": graph})
    assert values(file.nodes) == {"text": ["t"], "id": ["a"]}
    assert file.left_out["edges"] == ["hyperedges"]


def test_lists_and_objects_are_refused_when_they_are_read(tmp_path):
    nodes = [{"id": 1, "text": "a", "tags": ["x", "y"]}, {"id": 2, "at": {"x": 1}}]
    file = read(tmp_path, {"nodes": nodes, "links": [{"source": [1], "target": 2}]})
    assert values(file.nodes, ["text"]) == {"text": ["a", ""]}
    for table, name, what in (
        (file.nodes, "tags", "a list in row 1"),
        (file.edges, "source", "a list in row 1"),
    ):
        with pytest.raises(DataError, match=f"one value in '{name}', found {what}; name another"):
            values(table, [name])
    with pytest.raises(DataError, match=r"one column 'title', found id, text, tags, at\.x"):
        values(file.nodes, ["title"])


def test_half_a_character_is_refused_with_its_place(tmp_path):
    nodes = [{"id": i, "text": "t"} for i in range(5000)]
    nodes[4500]["text"] = "\ud800"
    file = read(tmp_path, {"nodes": nodes, "links": []})
    assert len(values(file.nodes, ["id"])["id"]) == 5000
    with pytest.raises(DataError, match="nodes 4097 to 5000, found half a character"):
        values(file.nodes)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ([], "expected lists 'nodes' and 'links'"),
        (3, "expected lists 'nodes' and 'links'"),
        ({"nodes": []}, "expected lists 'nodes' and 'links'"),
        (nx.adjacency_data(nx.Graph([(1, 2)])), "from NetworkX with node_link_data"),
        ({"nodes": [1], "links": []}, "an object for every one of the nodes"),
        ({"nodes": [], "links": ["a"]}, "an object for every one of the edges"),
        ({"elements": {"nodes": 3, "edges": []}}, "'elements' of Cytoscape"),
        ({"elements": {"nodes": [1], "edges": []}}, "an object for every one of the nodes"),
        ({"graph": {"nodes": {"a": 3}}}, "an object for every one of the nodes"),
        ({"graph": {"nodes": {}, "edges": [["a", "b"]]}}, "an object for every one of the edges"),
        ({"elements": [{"data": 3}]}, "an object for every one of the nodes"),
        ("[" * 100_000, "expected JSON of a graph"),
        ('{"nodes": [}', "expected JSON of a graph"),
    ],
)
def test_other_json_is_refused_in_one_line(tmp_path, content, part):
    with pytest.raises(DataError) as caught:
        read(tmp_path, content)
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_a_control_character_in_a_string_is_what_it_is(tmp_path):
    """As tools write it that escape too little; Python's reader refuses it by default."""
    file = read(tmp_path, '{"nodes": [{"id": "a", "text": "x\x0by"}], "links": []}')
    assert values(file.nodes)["text"] == ["x\x0by"]
