"""NetworkX formats: GraphML and node-link JSON with a text attribute."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from dance_flwr.data.graphs.delimited import to_string
from dance_flwr.data.graphs.folder import edge_ends
from dance_flwr.data.graphs.graphml import read as read_graphml
from dance_flwr.data.graphs.imported import Ends, Incoming, rows_of
from dance_flwr.data.graphs.json_files import read_json
from dance_flwr.data.graphs.limits import Meter, listed
from dance_flwr.data.graphs.tables import as_strings
from dance_flwr.errors import DataError


def graphml(file: Path, text: str = "text", label: str = "label") -> Incoming:
    """Return the graph of a GraphML file; an attribute `split`, if present, is the split.

    Raises
    ------
    DataError : the file is not GraphML, declares entities, passes a bound, or no node has the text
        attribute
    """
    network = read_graphml(file)
    columns = _columns(network.records, text, label, str(file))

    def ends(known: Any) -> Ends:
        names = ("source", "target")
        arrays = [pa.array(values, pa.large_string()) for values in network.ends]
        return edge_ends(dict(zip(names, arrays, strict=True)), known, str(file), "the graph")

    return Incoming("GraphML", (file,), rows_of(Meter(file), network.ids, *columns), ends)


def node_link(file: Path, text: str = "text", label: str = "label", key: str = "id") -> Incoming:
    """Return the graph of a node-link JSON file of NetworkX: `nodes` and `links` (or `edges`).

    Raises
    ------
    DataError : the file is not node-link JSON, passes a bound, a node has no id, or no node has the
        text attribute
    """
    content = read_json(file, "node-link JSON", "export it again")
    links = (
        next((content[k] for k in ("links", "edges") if k in content), None)
        if isinstance(content, dict)
        else None
    )
    nodes = content.get("nodes") if isinstance(content, dict) else None
    if (
        not isinstance(nodes, list)
        or not isinstance(links, list)
        or not all(isinstance(n, dict) for n in nodes)
    ):
        raise DataError(
            f"{file}: expected node-link JSON with lists 'nodes' and 'links', found none; "
            "export it again"
        )
    Meter(file, "edges").rows(len(links))
    missing = next((i for i, node in enumerate(nodes) if node.get(key) in (None, "")), None)
    if missing is not None:
        raise DataError(
            f"{file} node {missing + 1}: expected an id in {key!r}, found none; name it with --id"
        )
    ids = [to_string(node[key]) or "" for node in nodes]
    columns = {name: _link_ends(links, name, file) for name in ("source", "target")}
    rows = rows_of(Meter(file), ids, *_columns(nodes, text, label, str(file)))
    return Incoming(
        "node-link JSON",
        (file,),
        rows,
        lambda known: edge_ends(columns, known, str(file), "the graph"),
    )


def _link_ends(links: list[Any], name: str, file: Path) -> Any:
    """Return one end of every link as strings; ends must be all strings or all integers."""
    for kind in (pa.large_string(), pa.int64()):
        try:
            table = pa.array(links, pa.struct([(name, kind)]))
        except (pa.ArrowException, TypeError, UnicodeError, OverflowError):
            continue
        return as_strings(table.field(0), name, str(file))
    raise DataError(
        f"{file}: expected a string or an integer as {name!r} of every link, found other values; "
        "convert them"
    )


def _columns(
    records: list[dict[str, Any]], text: str, label: str, where: str
) -> tuple[list[str], list[str], list[str]]:
    """Return the texts, labels and splits of the nodes; a missing attribute becomes ""."""
    if not any(text in record for record in records):
        names = listed({name: None for record in records for name in record}) or "no attribute"
        raise DataError(
            f"{where}: expected a node attribute {text!r}, found {names}; name it with --text"
        )
    texts, labels, splits = (
        [to_string(record.get(name)) or "" for record in records] for name in (text, label, "split")
    )
    return texts, labels, splits
