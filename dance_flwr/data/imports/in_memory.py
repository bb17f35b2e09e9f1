"""Graphs of data frames, records and NetworkX, by the rules of `data import`."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.assemble import assemble
from dance_flwr.data.imports.importer import graph_by
from dance_flwr.data.imports.layouts import ENDS, GraphFile
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.records import column_table, flat, network, record_table, unused
from dance_flwr.data.imports.tables import Piece, read_pieces


def graph_of_frames(nodes: Any, edges: Any, name: str, options: Mapping[str, Any]) -> TextGraph:
    """Return the graph of `TextGraph.from_pandas`."""
    tables = [_frame_table(frame, rows) for rows, frame in (("nodes", nodes), ("edges", edges))]
    return _graph_of_tables(tables, name, Options(**options))


def graph_of_records(
    nodes: Iterable[Mapping[str, Any]],
    edges: Iterable[Mapping[str, Any]] | None,
    name: str,
    options: Mapping[str, Any],
) -> TextGraph:
    """Return the graph of `TextGraph.from_records`."""
    tables = []
    for rows, given in (("nodes", nodes), ("edges", edges)):
        records = [flat(dict(record)) for record in given or ()]
        if given is not None:
            tables.append(record_table(rows, rows, partial(iter, records)))
    return _graph_of_tables(tables, name, Options(**options))


def graph_of_network(graph: Any, name: str, options: Mapping[str, Any]) -> TextGraph:
    """Return the graph of `TextGraph.from_networkx`."""
    nodes = [(node, flat(dict(values))) for node, values in graph.nodes(data=True)]
    edges = [(a, b, flat(dict(values))) for a, b, values in graph.edges(data=True)]
    key = unused("id", {name for _, values in nodes for name in values})
    source, target = (
        unused(end, {name for *_, values in edges for name in values}) for end in ENDS[0]
    )
    file = network(
        "NetworkX",
        "network",
        [{key: node, **values} for node, values in nodes],
        [{source: a, target: b, **values} for a, b, values in edges],
        {"id": key, "source": source, "target": target},
        directed=graph.is_directed(),
    )
    return _graph(file, name, Options(**options))


def _frame_table(frame: Any, rows: str) -> Table:
    """Return the table of a frame of pandas; its index is a column without a name, or with one."""
    columns = frame.reset_index(names=[name or "" for name in frame.index.names])
    columns = columns.astype(object).where(columns.notna(), None)
    return column_table(rows, rows, len(columns), {str(n): columns[n].tolist() for n in columns})


def _graph_of_tables(tables: list[Table], name: str, options: Options) -> TextGraph:
    pieces = [
        Piece(table.rows, Path(table.rows), table.rows, lambda rows, table=table, **_: table)
        for table in tables
    ]
    return _graph(read_pieces(pieces, options), name, options)


def _graph(file: GraphFile, name: str, options: Options) -> TextGraph:
    return graph_by(lambda folder: {"files": {}, **assemble(file, options, folder).as_dict()}, name)
