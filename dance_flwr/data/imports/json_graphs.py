"""JSON of graphs: node-link of NetworkX, D3, Cytoscape, JSON Graph Format and Neo4j."""

from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.imports.layouts import LAYOUTS, GraphFile
from dance_flwr.data.imports.memory_tables import memory_table, record_table, values_of
from dance_flwr.data.imports.text_tables import read_json
from dance_flwr.data.imports.torch_files import unused
from dance_flwr.errors import DataError

Record = dict[str, Any]
_LeftOut = dict[str, list[str]]
# The kind of a file, its nodes and edges, its word on directions, and what of it is left out.
_Network = tuple[str, list[Any], list[Any], Any, _LeftOut]
_D3 = "JSON of D3"
_IDS = ("id", "name")  # keys of a node by which links name it


def read_network_json(file: Path) -> GraphFile:
    """Return the graph in a JSON file.

    Links name nodes by id. In files of D3 without ids, or with ends that are no ids, whole numbers
    are places in the list of nodes.
    """
    content = read_json(file, "JSON of a graph", "export it again")
    network = _cytoscape(content, file) or _graph_format(content) or _node_link(content, file)
    kind, *lists, directed, left_out = network
    for rows, records in zip(("nodes", "edges"), lists, strict=True):
        check(file, **{rows: len(records)})
        if any(not isinstance(record, dict) for record in records):
            raise DataError(
                f"{file}: expected an object for every one of the {rows}, found other values; "
                "export it again"
            )
    nodes, edges = record_table(file, "nodes", lists[0]), record_table(file, "edges", lists[1])
    if not edges.names:  # a graph without edges has none that would name the ends
        edges = memory_table(file, "edges", 0, {"source": (), "target": ()})
    facts, key, by_place = {}, "id", False
    if kind == _D3:
        key, by_place = _ends_are(*lists)
        facts["links"] = "by place" if by_place else f"by {key}"
    if by_place:
        key = unused(key, nodes.names)
        size = len(lists[0])
        columns = {name: values_of(lists[0], name) for name in nodes.names}
        nodes = memory_table(file, "nodes", size, {key: range(size), **columns})
    roles = {"id": key} if key in nodes.names else {}
    roles |= {name: name for name in ("source", "target", "weight") if name in edges.names}
    if kind == "JSON of Cytoscape" and "interaction" in edges.names:
        roles["relation"] = "interaction"
    says = directed if isinstance(directed, bool) else None
    return GraphFile(
        kind,
        (file,),
        nodes,
        edges,
        roles,
        facts,
        directed=says,
        by_place=by_place,
        left_out=left_out,
    )


def _node_link(content: Any, file: Path) -> _Network:
    """Return the graph of two lists, such as `nodes` and `links`."""
    if isinstance(content, list):
        raise DataError(
            f"{file}: expected JSON of a graph, found a list, which has no edges; save its records "
            "as nodes.jsonl, one per line, beside a table of edges"
        )
    content = content if isinstance(content, dict) else {}
    for names in LAYOUTS["json"]["lists"]:
        nodes, links = (content.get(name) for name in names)
        if isinstance(nodes, list) and isinstance(links, list):
            kind = "node-link JSON of NetworkX" if "multigraph" in content else _D3
            return kind, nodes, links, content.get("directed"), {}
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
    records = [
        _flat({"id": key, **node} if isinstance(node, dict) else node)
        for key, node in nodes.items()
    ]
    edges = graph.get("edges") or []
    edges = [_flat(edge) for edge in (edges if isinstance(edges, list) else [edges])]
    left_out = {"edges": ["hyperedges"] if graph.get("hyperedges") else []}
    return "JSON Graph Format", records, edges, graph.get("directed"), left_out


def _flat(record: Any) -> Any:
    """Return a record with the entries of its metadata beside the others."""
    if not isinstance(record, dict):
        return record  # refused with the others
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
        groups: Record = {"nodes": [], "edges": []}
        for element in elements:
            groups["edges" if _is_edge(element) else "nodes"].append(element)
        elements = groups
    if not isinstance(elements, dict):
        return None
    lists = [elements.get(group) or [] for group in ("nodes", "edges")]
    if not all(isinstance(group, list) for group in lists):
        raise DataError(
            f"{file}: expected lists 'nodes' and 'edges' in 'elements', found other values; "
            "export it again"
        )
    directed = content.get("directed") if isinstance(content, dict) else None
    left_out: _LeftOut = {}
    for what, group in zip(("nodes", "edges"), lists, strict=True):
        keys = {key: None for element in group if isinstance(element, dict) for key in element}
        left_out[what] = [key for key in keys if key not in ("data", "group")]
    nodes, edges = ([e.get("data") if isinstance(e, dict) else e for e in group] for group in lists)
    return "JSON of Cytoscape", nodes, edges, directed, left_out


def _is_edge(element: Record) -> bool:
    """Return whether an element of a list without groups is an edge, as Cytoscape decides it."""
    data = element["data"] if isinstance(element["data"], dict) else {}
    return bool(element.get("group", "edges" if "source" in data else "nodes") == "edges")


def _ends_are(nodes: list[Record], edges: list[Record]) -> tuple[str, bool]:
    """Return the key of the nodes that links of D3 name, and whether it is their place."""
    ends = [record.get(end) for record in edges for end in ("source", "target")]
    for key in _IDS:
        ids = {str(node[key]) for node in nodes if node.get(key) is not None}
        if ids and all(str(end) in ids for end in ends):
            return key, False
    if all(type(end) is int and end in range(len(nodes)) for end in ends):
        return "index", True
    return "id", False
