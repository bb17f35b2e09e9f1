"""Graphs of data frames, records and NetworkX, by the rules of `data import`."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.imports.assemble import assemble
from dance_flwr.data.imports.importer import graph_by
from dance_flwr.data.imports.layouts import GraphFile
from dance_flwr.data.imports.networks import of_networkx
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.records import flat, record_table
from dance_flwr.data.imports.tables import Piece, read_pieces


def graph_of_frames(nodes: Any, edges: Any, name: str, options: Mapping[str, Any]) -> TextGraph:
    """Return the graph of `TextGraph.from_pandas`."""
    return graph_of_records(_rows(nodes), _rows(edges), name, options)


def graph_of_records(
    nodes: Iterable[Mapping[str, Any]],
    edges: Iterable[Mapping[str, Any]] | None,
    name: str,
    options: Mapping[str, Any],
) -> TextGraph:
    """Return the graph of `TextGraph.from_records`."""
    pieces = [
        Piece(what, Path(what), what, record_table(what, what, partial(map, flat, records)))
        for what, rows in (("nodes", nodes), ("edges", edges))
        if rows is not None
        for records in [list(map(dict, rows))]
    ]
    return _graph(read_pieces(pieces, Options(**options)), name, Options(**options))


def graph_of_network(graph: Any, name: str, options: Mapping[str, Any]) -> TextGraph:
    """Return the graph of `TextGraph.from_networkx`."""
    return _graph(of_networkx(graph, "NetworkX", "network"), name, Options(**options))


def _rows(frame: Any) -> Any:
    """Return the rows of a frame of pandas; its index is a column without a name, or with one."""
    columns = frame.reset_index(names=[name or "" for name in frame.index.names])
    columns = columns.astype(object).where(columns.notna(), None)
    return columns.rename(columns=str).to_dict("records")


def _graph(file: GraphFile, name: str, options: Options) -> TextGraph:
    return graph_by(lambda folder: {"files": {}, **assemble(file, options, folder).as_dict()}, name)
