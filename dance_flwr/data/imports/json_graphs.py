"""JSON of graphs: node-link of NetworkX, D3, Cytoscape, JSON Graph Format and Neo4j."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.imports.layouts import JSON_LISTS, GraphFile
from dance_flwr.data.imports.memory_tables import memory_table, record_table, record_values
from dance_flwr.data.imports.text_tables import read_json
from dance_flwr.errors import DataError

Record = dict[str, Any]
_IDS = ("id", "name")  # keys of a node by which links name it


@dataclass(frozen=True)
class _Network:
    """Nodes and edges as records, and what the file says of them."""

    kind: str
    nodes: list[Any]
    edges: list[Any]
    directed: Any = None
    roles: Mapping[str, str] | None = None


def read_network_json(file: Path) -> GraphFile:
    """Return the graph in a JSON file.

    Links name nodes by id. In files of D3 without ids, or with ends that are no ids, whole numbers
    are places in the list of nodes.
    """
    content = read_json(file, "JSON of a graph", "export it again")
    network = _cytoscape(content, file) or _graph_format(content) or _node_link(content, file)
    for rows, records in (("nodes", network.nodes), ("edges", network.edges)):
        check(file, **{rows: len(records)})
        if any(not isinstance(record, dict) for record in records):
            raise DataError(
                f"{file}: expected an object for every one of the {rows}, found other values; "
                "export it again"
            )
    nodes, edges = (
        record_table(file, rows, records)
        for rows, records in (("nodes", network.nodes), ("edges", network.edges))
    )
    if not edges.names:  # a graph without edges has none that would name the ends
        edges = memory_table(file, "edges", 0, dict.fromkeys(("source", "target"), _nothing))
    facts, key, by_place = {}, "id", False
    if network.kind == "JSON of D3":
        key, by_place = _ends_are(network)
        facts["links"] = "by place" if by_place else f"by {key}"
    if by_place:
        while key in nodes.names:
            key = "@" + key
        size = len(network.nodes)
        columns: dict[str, Callable[[slice], Sequence[Any]]] = {key: lambda rows: range(size)[rows]}
        columns |= {name: record_values(network.nodes, name) for name in nodes.names}
        nodes = memory_table(file, "nodes", size, columns)
    roles = {"id": key} if key in nodes.names else {}
    ends = {name: name for name in ("source", "target", "weight")}
    roles |= {
        r: name for r, name in (ends | dict(network.roles or {})).items() if name in edges.names
    }
    directed = network.directed if isinstance(network.directed, bool) else None
    return GraphFile(
        network.kind, (file,), nodes, edges, roles, facts, directed=directed, by_place=by_place
    )


def _nothing(_: slice) -> Sequence[Any]:
    return ()


def _node_link(content: Any, file: Path) -> _Network:
    """Return the graph of two lists, such as `nodes` and `links`."""
    if isinstance(content, list):
        raise DataError(
            f"{file}: expected JSON of a graph, found a list, which has no edges; save its records "
            "as nodes.jsonl, one per line, beside a table of edges"
        )
    content = content if isinstance(content, dict) else {}
    for names in JSON_LISTS:
        nodes, links = (content.get(name) for name in names)
        if isinstance(nodes, list) and isinstance(links, list):
            is_networkx = "multigraph" in content
            kind = "node-link JSON of NetworkX" if is_networkx else "JSON of D3"
            return _Network(kind, nodes, links, content.get("directed"))
    raise DataError(
        f"{file}: expected lists 'nodes' and 'links' (or 'edges'), or 'elements' of Cytoscape, "
        "found none; export it again, from NetworkX with node_link_data"
    )


def _graph_format(content: Any) -> _Network | None:
    """Return the graph in JSON Graph Format, whose nodes are an object by id, else None."""
    graph = content.get("graph") if isinstance(content, dict) else None
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if not isinstance(graph, dict) or not isinstance(nodes, dict):
        return None
    records = [_flat({"id": key, **node}) for key, node in nodes.items() if isinstance(node, dict)]
    edges = [_flat(edge) for edge in graph.get("edges") or [] if isinstance(edge, dict)]
    return _Network("JSON Graph Format", records, edges, graph.get("directed"))


def _flat(record: Record) -> Record:
    """Return a record with the entries of its metadata beside the others."""
    metadata = record.get("metadata")
    extra = metadata if isinstance(metadata, dict) else {}
    return {**extra, **{name: value for name, value in record.items() if name != "metadata"}}


def _cytoscape(content: Any, file: Path) -> _Network | None:
    """Return the graph of `elements`, by group or in one list; None for other JSON."""
    elements = content.get("elements") if isinstance(content, dict) else content
    if (
        isinstance(elements, list)
        and elements
        and all(isinstance(e, dict) and "data" in e for e in elements)
    ):
        nodes = [element for element in elements if not _is_edge(element)]
        elements = {"nodes": nodes, "edges": [e for e in elements if _is_edge(e)]}
    if not isinstance(elements, dict):
        return None
    groups = [elements.get(group) or [] for group in ("nodes", "edges")]
    if not all(isinstance(group, list) for group in groups):
        raise DataError(
            f"{file}: expected lists 'nodes' and 'edges' in 'elements', found other values; "
            "export it again"
        )
    directed = content.get("directed") if isinstance(content, dict) else None
    nodes, edges = (
        [element.get("data") if isinstance(element, dict) else None for element in group]
        for group in groups
    )
    return _Network("JSON of Cytoscape", nodes, edges, directed, {"relation": "interaction"})


def _is_edge(element: Record) -> bool:
    """Whether an element of a list without groups is an edge, as Cytoscape decides it."""
    data = element["data"] if isinstance(element["data"], dict) else {}
    return bool(element.get("group", "edges" if "source" in data else "nodes") == "edges")


def _ends_are(network: _Network) -> tuple[str, bool]:
    """Return the key of the nodes that links of D3 name, and whether it is their place."""
    ends = [record.get(end) for record in network.edges for end in ("source", "target")]
    for key in _IDS:
        ids = {str(node[key]) for node in network.nodes if node.get(key) is not None}
        if ids and all(str(end) in ids for end in ends):
            return key, False
    places = range(len(network.nodes))
    if all(type(end) is int and end in places for end in ends):
        return "index", True
    return "id", False
