"""JSON of graphs: node-link of NetworkX, D3, and Cytoscape."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.limits import Meter
from dance_flwr.data.imports.columns import MemoryColumns, record_values
from dance_flwr.data.imports.json_files import read_json
from dance_flwr.data.imports.source import GraphFile
from dance_flwr.errors import DataError

Record = dict[str, Any]
_IDS = ("id", "name")  # keys of a node by which links name it


@dataclass(frozen=True)
class _Network:
    """Nodes and edges as records, and what the file says of them."""

    kind: str
    nodes: list[Any]
    edges: list[Any]
    directed: bool | None


def read_network_json(file: Path) -> GraphFile:
    """Return the graph in a JSON file of NetworkX, D3 or Cytoscape.

    Links name nodes by id. In files of D3 without ids, or with ends that are no ids, whole numbers
    are places in the list of nodes.
    """
    content = read_json(file, "JSON of a graph", "export it again")
    network = _cytoscape(content, file) or _node_link(content, file)
    for rows, records in (("nodes", network.nodes), ("edges", network.edges)):
        Meter(file, rows).rows(len(records))
        if any(not isinstance(record, dict) for record in records):
            raise DataError(
                f"{file}: expected an object for every one of the {rows}, found other values; "
                "export it again"
            )
    nodes, edges = (
        _names(file, *part) for part in (("nodes", network.nodes), ("edges", network.edges))
    )
    # A graph without edges has none that would name the ends.
    edges = edges or ["source", "target"]
    facts, key, by_place = {}, "id", False
    if network.kind == "JSON of D3":
        key, by_place = _ends_are(network)
        facts["links"] = "by place" if by_place else f"by {key}"
    columns = {name: record_values(network.nodes, name) for name in nodes}
    if by_place:
        while key in nodes:
            key = "@" + key
        columns = {key: lambda rows: range(len(network.nodes))[rows], **columns}
    roles = {"id": key} if key in columns else {}
    optional = {name: name for name in ("source", "target", "weight")}
    if network.kind == "JSON of Cytoscape":
        optional["relation"] = "interaction"
    roles |= {role: name for role, name in optional.items() if name in edges}
    return GraphFile(
        network.kind,
        (file,),
        MemoryColumns(file, "nodes", len(network.nodes), columns),
        MemoryColumns(
            file,
            "edges",
            len(network.edges),
            {name: record_values(network.edges, name) for name in edges},
        ),
        roles,
        facts,
        directed=network.directed,
    )


def _node_link(content: Any, file: Path) -> _Network:
    """Return the graph of `nodes` and `links` or `edges`."""
    if isinstance(content, list):
        raise DataError(
            f"{file}: expected JSON of a graph, found a list, which has no edges; save its records "
            "as nodes.jsonl, one per line, beside a table of edges"
        )
    content = content if isinstance(content, dict) else {}
    nodes = content.get("nodes")
    links = next((content[key] for key in ("links", "edges") if key in content), None)
    if not isinstance(nodes, list) or not isinstance(links, list):
        raise DataError(
            f"{file}: expected lists 'nodes' and 'links' (or 'edges'), or 'elements' of Cytoscape, "
            "found none; export it again, from NetworkX with node_link_data"
        )
    directed = content.get("directed")
    is_networkx = "multigraph" in content
    return _Network(
        "node-link JSON of NetworkX" if is_networkx else "JSON of D3",
        nodes,
        links,
        directed if isinstance(directed, bool) else None,
    )


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
    return _Network(
        "JSON of Cytoscape", nodes, edges, directed if isinstance(directed, bool) else None
    )


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


def _names(file: Path, rows: str, records: Sequence[Record]) -> list[str]:
    """Return the keys of all records, in the order in which they first appear."""
    names: dict[str, None] = {}
    meter = Meter(file, rows)
    for record in records:
        names.update(dict.fromkeys(record))
        meter.columns(len(names))
    return list(names)
