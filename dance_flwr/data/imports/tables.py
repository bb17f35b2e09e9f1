"""Tables by the names of their files: which reader reads one, and where a folder keeps them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dance_flwr.data.graphs.folder import declared_classes
from dance_flwr.data.graphs.tables import Table, as_strings, parquet_table, readable
from dance_flwr.data.imports.layouts import LAYOUTS, USUAL, GraphFile
from dance_flwr.data.imports.memory_tables import ids_in
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.roles import (
    Header,
    dialect,
    has_ends,
    known_names,
    node_roles,
    refuse_lacking,
)
from dance_flwr.data.imports.text_tables import (
    COMMENTS,
    EDGE_LISTS,
    delimited,
    json_lines,
    suffix_of,
)
from dance_flwr.errors import DataError

_JSON_LINES = (".jsonl", ".ndjson")
_BINARY = (".parquet", ".arrow", ".feather")
_SUFFIXES = (".parquet", ".csv", ".jsonl", ".tsv", ".arrow", ".feather", ".ndjson", *EDGE_LISTS)


def is_table(path: Path) -> bool:
    """Return whether the name of a file is that of a table."""
    suffix = suffix_of(path)
    # Parquet and Arrow compress by themselves.
    is_packed = path.suffix.lower() == ".gz" and suffix in _BINARY
    return path.is_file() and suffix in _SUFFIXES and not is_packed


def open_table(
    file: Path, options: Options = DEFAULTS, rows: str = "nodes", *, comments: bool = True
) -> Table:
    """Return the table in a file, by its suffix."""
    suffix = suffix_of(file)
    if suffix == ".parquet":
        return parquet_table(file, rows)
    if suffix in _BINARY:
        return _arrow_table(file, rows)
    if suffix in _JSON_LINES:
        return json_lines(file, options, rows)
    return delimited(file, options, rows, known_names(options), comments)


def _arrow_table(file: Path, rows: str) -> Table:
    """Return the table in an Arrow IPC file or stream, as `pandas.to_feather` and Arrow write."""

    def opened() -> Any:
        with file.open("rb") as stream:
            is_file = stream.read(6) == b"ARROW1"
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(str(file))

    def record_batches(columns: list[str]) -> Iterator[Any]:
        with opened() as reader:
            numbered = hasattr(reader, "num_record_batches")
            batches = (
                map(reader.get_batch, range(reader.num_record_batches)) if numbered else reader
            )
            for batch in batches:
                batch.validate(full=True)  # offsets in a foreign file may point anywhere
                yield batch.select(columns)

    with readable(file), opened() as reader:
        schema = reader.schema
    return Table(str(file), list(schema.names), record_batches, rows, dict(schema.metadata or {}))


def read_tables(first: Path, second: Path, options: Options) -> GraphFile:
    """Return the graph of a node table and an edge table, which may come in either order."""
    nodes, edges = open_table(first, options), open_table(second, options, "edges")
    if not has_ends(edges.names, options) and (
        has_ends(nodes.names, options)
        or has_ends(open_table(first, options, "edges").names, options)
    ):
        first, second = second, first
        nodes, edges = open_table(first, options), open_table(second, options, "edges")
    if "skipped" in edges.facts and _begins_with_marks(nodes, options):
        edges = open_table(second, options, "edges", comments=False)
    kind, roles = dialect(nodes.names, edges.names)
    facts: dict[str, str] = {}
    for file, table in ((first, nodes), (second, edges)):
        what = [f"{name} {value}" for name, value in table.facts.items()]
        facts |= {file.name: ", ".join(what)} if what else {}
    classes = declared_classes(nodes.metadata, nodes.where)
    return GraphFile(kind, (first, second), nodes, edges, roles, facts, classes)


def _begins_with_marks(nodes: Table, options: Options) -> bool:
    """Return whether an id begins with a mark of comments, which is then none."""
    (key,) = node_roles(Header(nodes.names, nodes.where), {}, options).get("id", [""])
    return bool(key) and any(
        pc.any(pc.starts_with(batch[key], mark)).as_py()
        for batch in nodes.batches([key])
        for mark in COMMENTS
    )


def read_lone_table(path: Path, options: Options) -> GraphFile:
    """Return the graph of one table, in which a column names the neighbours of each node.

    Raises
    ------
    DataError : there is no such column
    """
    nodes = open_table(path, options)
    column = options.edges_from or next(
        (name for name in USUAL["neighbours"] if name in nodes.names), ""
    )
    is_edges = has_ends(nodes.names, options)
    if not column or is_edges:
        kind, other = (
            ("edges", "node table with the texts") if is_edges else ("nodes", "edge table")
        )
        raise DataError(
            f"{path}: expected a node table and an edge table, found a table of {kind} alone; "
            f"give the {other}, too, or name a column of neighbours with --edges-from"
        )
    kind, roles = dialect(nodes.names, [])
    (key,) = node_roles(Header(nodes.names, nodes.where), roles, options).get("id", [""])
    lists = nodes
    if suffix_of(path) in _JSON_LINES:
        lists = json_lines(path, options, lists=column)
    edges = neighbours(lists, column, key)
    facts = {path.name: ", ".join(f"{name} {value}" for name, value in nodes.facts.items())}
    facts |= {"edges from": column}
    roles |= {"source": "source", "target": "target"}
    return GraphFile(kind, (path,), nodes, edges, roles, facts)


def neighbours(nodes: Table, column: str, key: str) -> Table:
    """Return the edges that a column of a node table names: lists of ids, or ids with separators.

    Parameters
    ----------
    key : column of the ids of the nodes
    """
    where = nodes.where

    def record_batches(columns: list[str]) -> Iterator[Any]:
        for batch in nodes.record_batches([key, column]):
            lists = batch.column(column)
            if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
                texts = as_strings(lists, column, where)
                entries = [ids_in(text) for text in texts.to_pylist()]
                lists = pa.array(entries, pa.list_(pa.large_string()))
            ids = as_strings(batch.column(key), key, where)
            ends = {"source": ids.take(pc.list_parent_indices(lists))}
            ends["target"] = as_strings(pc.list_flatten(lists), column, where)
            yield pa.record_batch({name: ends[name] for name in columns})

    header = Header(nodes.names, where)
    header.find("edges-from", column, {})
    refuse_lacking(header)
    return Table(where, ["source", "target"], record_batches, "edges")


def table_files(folder: Path) -> tuple[Path, Path]:
    """Return the node table and the edge table of a folder."""
    return _only_table(folder, "nodes"), _only_table(folder, "edges")


def _only_table(folder: Path, kind: str) -> Path:
    matches = sorted(
        path
        for path in folder.iterdir()
        if is_table(path) and path.name.split(".")[0].lower() in LAYOUTS["stems"][kind]
    )
    if len(matches) == 1:
        return matches[0]
    expected = f"{folder}: expected one of {', '.join(kind + suffix for suffix in _SUFFIXES[:6])}"
    found = " and ".join(path.name for path in matches) or "none"
    raise DataError(f"{expected}, found {found}; {'keep only one' if matches else 'add one'}")
