"""JSON of graphs, by the layouts of `layouts.toml`, and lists of records in JSON."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.layouts import LAYOUTS, GraphFile
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.records import (
    Record,
    as_string,
    fault,
    flat,
    network,
    read_json,
    record_table,
    unused,
)
from dance_flwr.data.imports.roles import ends_of
from dance_flwr.data.imports.text_tables import json_lines
from dance_flwr.errors import DataError

_IDS = ("id", "name")  # keys of a node by which links name it
_ROLES = ("id", "source", "target", "weight")
_SAID = ("directed", "multigraph", "format_version")  # keys that are read, or say nothing


def read_json_graph(
    file: Path, options: Options, layouts: Sequence[Record] = LAYOUTS["json"]
) -> GraphFile | Table:
    """Return the graph in a JSON file, or the table of its records: a list, the only one, or lines.

    Links name nodes by id, in files of D3 by what most ends are: ids, names or places in the list
    of nodes.
    """
    try:
        content = read_json(file, "JSON of a graph", "export it again")
    except DataError as error:
        if "Extra data: line 2" in str(error):  # an object in every line
            return json_lines(file, options)
        raise
    grouped = _grouped(content)
    found = next((layout for layout in layouts if _fits(layout, grouped)), None)
    if found is None:
        if (records := _record_list(content)) is not None:
            return record_table(file, "nodes", map(flat, records))
        what = "lists 'nodes' and 'links' (or 'edges'), or 'elements' of Cytoscape"
        advice = "export it again, from NetworkX with node_link_data"
        if not layouts:
            what, advice = "a list of objects", "save its records, one per line, as .jsonl"
        raise fault(file, what, type(content).__name__, advice)
    content = grouped
    of_edges = next((path for path in found["edges"] if _has(content, path)), found["edges"][0])
    paths = {"nodes": found["nodes"], "edges": of_edges}
    nodes, edges = (
        [_record(entry, found.get("inner"), rows, file) for entry in _entries(content, path)]
        for rows, path in paths.items()
    )
    roles = {**{name: name for name in _ROLES}, **found.get("roles", {})}
    facts, by_place = {}, False
    if found["kind"] == "JSON of D3":
        key = _ends_are(file, nodes, edges, options)
        by_place = key == "index"
        facts["links"] = "by place" if by_place else f"by {key}"
        if by_place:
            key = unused(key, {name for record in nodes for name in record})
            nodes = [{key: place, **record} for place, record in enumerate(nodes)]
        roles["id"] = key
    used = {path.split(".")[0] for path in paths.values()}
    outer = content[found["nodes"].split(".")[0]]
    inner = outer if isinstance(outer, dict) else {}
    said = content.get("directed", inner.get("directed"))
    left_out = {
        "edges": ["hyperedges"] if inner.get("hyperedges") else [],
        "file": [key for key in content if key not in (*used, *_SAID)],
    }
    return network(
        found["kind"],
        file,
        nodes,
        edges,
        roles,
        facts=facts,
        directed=said if isinstance(said, bool) else None,
        by_place=by_place,
        left_out=left_out,
    )


def _record_list(content: Any) -> list[Record] | None:
    """Return the records that JSON consists of, or the only list of records in it."""
    lists = [content] if isinstance(content, list) else []
    if isinstance(content, dict):
        if not any(isinstance(value, dict | list) for value in content.values()):
            return [content]  # the only line of a file
        lists = [v for k, v in content.items() if isinstance(v, list) and v and k != "nodes"]
    of_records = [one for one in lists if one and all(isinstance(r, dict) for r in one)]
    return of_records[0] if len(of_records) == 1 else None


def _fits(layout: Record, content: Any) -> bool:
    if not isinstance(content, dict) or not _has(content, layout["nodes"]):
        return False
    edges = next((path for path in layout["edges"] if _has(content, path)), "")
    first = next(_entries(content, edges), None) if edges else None
    beside = {*content, *(flat(first) if isinstance(first, dict) else ())}
    marks = layout.get("marks")
    return bool(edges or "without-edges" in layout) and not (marks and beside.isdisjoint(marks))


def _has(content: Any, path: str) -> bool:
    """Return whether there is a list or an object at a path of keys."""
    key, _, rest = path.partition(".")
    if isinstance(content, list):
        return any(_has(one, path) for one in content)
    if not isinstance(content, dict) or key not in content:
        return False
    return _has(content[key], rest) if rest else isinstance(content[key], list | dict)


def _entries(content: Any, path: str) -> Iterator[Any]:
    """Yield the entries at a path of keys; those of objects by id with their `id`."""
    key, _, rest = path.partition(".")
    if isinstance(content, list):
        for one in content:
            yield from _entries(one, path)
        return
    inner = content.get(key) if isinstance(content, dict) else None
    if rest:
        yield from _entries(inner, rest)
    elif isinstance(inner, dict):
        for name, entry in inner.items():
            yield {"id": name, **entry} if isinstance(entry, dict) else entry
    else:
        yield from inner or []


def _record(entry: Any, inner: str | None, rows: str, file: Path) -> Record:
    """Return the record of an entry, with what is below its key `inner` if it has one."""
    data = entry.get(inner) if inner and isinstance(entry, dict) else entry
    if not isinstance(data, dict):
        raise fault(file, f"an object for every one of the {rows}", "other values")
    return flat(data | {k: v for k, v in entry.items() if k not in (inner, *data)})  # type: ignore[no-any-return]


def _grouped(content: Any) -> Any:
    """Return JSON of Cytoscape with its elements by group; other JSON as it is."""
    elements = content.get("elements") if isinstance(content, dict) else content
    if not (isinstance(elements, list) and elements):
        return content
    if not all(isinstance(element, dict) and "data" in element for element in elements):
        return content
    groups: Record = {"nodes": [], "edges": []}
    for element in elements:
        # As Cytoscape decides it.
        has_ends = isinstance(element["data"], dict) and "source" in element["data"]
        is_edge = element.get("group", "edges" if has_ends else "nodes") == "edges"
        groups["edges" if is_edge else "nodes"].append(element)
    return {**(content if isinstance(content, dict) else {}), "elements": groups}


def _ends_are(file: Path, nodes: list[Record], edges: list[Record], options: Options) -> str:
    """Return the key of the nodes that most ends of links of D3 name; "index" for their place.

    Places count from 0, and may be strings.
    """
    usual = ends_of(list(dict.fromkeys(name for record in edges for name in record)))
    pair = options.source or usual[0], options.target or usual[1]
    ends = [as_string(record.get(end)) for record in edges for end in pair]
    known = {key: {as_string(node.get(key)) for node in nodes} - {""} for key in _IDS}
    known["index"] = set(map(str, range(len(nodes))))
    whole = [end.removesuffix(".0") for end in ends]  # strings of floats
    hits = {
        key: sum(end in ids or short in ids for end, short in zip(ends, whole, strict=True))
        for key, ids in known.items()
    }
    if ends and not any(hits.values()):
        return "id"
    # Of equals the first.
    key = max(known, key=lambda key: (hits[key], bool(known[key])))
    if key == "index" and hits[key] < len(ends) and "0" not in whole and str(len(nodes)) in whole:
        what = f"places of nodes from 0 to {len(nodes) - 1}"
        found = f"1 to {len(nodes)}, as if they were counted from 1"
        raise fault(file, what, found, "subtract 1 from each, or name the nodes by id")
    return key
