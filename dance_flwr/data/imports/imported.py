"""Imported graphs: in memory, or under a data root, written whole or not at all."""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dance_flwr.data.graphs.catalogue import CATALOGUE, Dataset, graphs_folder
from dance_flwr.data.graphs.edges import EdgeList
from dance_flwr.data.graphs.folder import CLASSES_KEY, EDGES, NODES, check_ids, edge_table, graph_of
from dance_flwr.data.graphs.graph import SPLIT_NAMES, TextGraph, csr_from_pairs
from dance_flwr.data.imports.json_files import read_object
from dance_flwr.data.imports.report import (
    ImportReport,
    NodeCounter,
    count_edges,
    count_nodes,
    left_out,
)
from dance_flwr.disk import atomic_folder, write_text
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import file_sha256
from dance_flwr.terminal import bar

COLUMNS = ("id", "text", "label", "split")
REPORT = "import.json"
# Readers take a row group at a time.
_ROW_GROUP = 8 << 20  # bytes
Ends = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Incoming:
    """A graph that is being imported, with its nodes in batches.

    Attributes
    ----------
    kind : format of the files, for the report
    files : files that are read; the report lists their sha256
    rows : batches of large_string arrays, one per name in `columns`; "" means no text, no label or
        no split
    edges : takes the ids of all rows and returns the edges by row number
    classes : classes that the source declares; empty if it declares none
    columns : names of the columns in `rows`: `COLUMNS`, then `site` if the source has sites
    report : what is known before the rows are read; reading adds to it
    """

    kind: str
    files: tuple[Path, ...]
    rows: Iterator[dict[str, Any]]
    edges: Callable[[Any], EdgeList]
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    report: ImportReport = field(default_factory=ImportReport)


def check_name(name: str, reserved: tuple[str, ...] = ()) -> str:
    """Return the name of a graph after checking that it can name a folder."""
    # Neither a separator nor a dot in front: a name must not lead out of the folder.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise DataError(
            f"--name: expected letters, digits, '.', '_' and '-', at most 64, found {name!r}; "
            "choose another name"
        )
    if name in reserved:
        raise DataError(f"--name: {name!r} is a built-in graph; choose another name")
    return name


def save(
    incoming: Incoming, name: str, root: Path, extra: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write a graph to `<root>/graphs/<name>`, whole or not at all, and return its report.

    Raises
    ------
    DataError : the graph is invalid, its counts are not those of the published graph of this name,
        or the name is in use
    """
    target = graphs_folder(root) / name
    # Never replaced: partitions may have been made of the graph of this name.
    if target.exists():
        raise DataError(f"{target} is already there; remove it or choose another --name")
    try:
        with atomic_folder(target) as draft, bar("storing"):
            _write(incoming, draft)
            published = CATALOGUE.get(name)
            if published:
                # Inside the draft: a graph with other counts is never stored.
                published.check(incoming.report.counts)
            report = {
                "name": name,
                "kind": incoming.kind,
                "files": {file.name: file_sha256(file) for file in incoming.files},
                "tables": {file: file_sha256(draft / file) for file in (NODES, EDGES)},
                **asdict(incoming.report),
                "split": {"official": bool(published and published.official), **_shares(published)},
                "inductive": bool(published and published.inductive),
                "licence": published.licence if published else "not known here",
                **(extra or {}),
            }
            text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"  # readable class names
            write_text(draft / REPORT, text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"{target}: expected a writable folder with room, found: {reason}; "
            "free some space, choose another data root or change its owner (chown)"
        ) from error
    return report


def read_report(folder: Path) -> dict[str, Any]:
    """Return what `save` stored beside an imported graph; empty for a folder without it."""
    file = folder / REPORT
    if not file.is_file():
        return {}
    return read_object(file, "the report of an import", "import the graph again")


def in_memory(incoming: Incoming, name: str) -> TextGraph:
    """Return an incoming graph without storing it; what is left out of its edges is a warning."""
    counter = NodeCounter(incoming.columns)
    texts: list[str] = []
    with bar("nodes", unit="read") as shown:
        for batch in incoming.rows:
            counter.add(batch)
            # Batch by batch, so that the column is never held twice.
            texts += batch["text"].to_pylist()
            shown.move(len(texts))
    columns, edges = _counted(incoming, counter)
    for line in left_out(incoming.report.edges_left_out):
        warnings.warn(f"{name}: left out: {line}", stacklevel=2)
    hashes = {file.name: f"sha256:{file_sha256(file)}" for file in incoming.files}
    return graph_of(name, columns, texts, edges, incoming.classes, hashes)


def _counted(incoming: Incoming, counter: NodeCounter) -> tuple[dict[str, Any], EdgeList]:
    """Complete the report once all rows are read; return their columns, and the edges."""
    where, report = str(incoming.files[0]), incoming.report
    with bar("checking"):
        columns = counter.joined()
        check_ids(columns["id"], where)
        count_nodes(report, counter, columns, incoming.classes, where)
        edges = incoming.edges(columns["id"])
        count_edges(report, edges)
    for line in report.warnings:
        warnings.warn(line, stacklevel=4)
    return columns, edges


def _shares(published: Dataset | None) -> dict[str, float]:
    return dict(zip(SPLIT_NAMES[1:], published.split, strict=True)) if published else {}


def _write(incoming: Incoming, folder: Path) -> None:
    """Write both tables and complete the report."""
    counter = NodeCounter(incoming.columns)
    pending: list[Any] = []
    schema = pa.schema([(name, pa.string()) for name in incoming.columns])
    schema = schema.with_metadata({CLASSES_KEY: json.dumps(sorted(incoming.classes)).encode()})
    # Texts rarely repeat, so a dictionary of them would only be a second copy.
    dictionaries = ["label", *incoming.columns[3:]]
    with (
        pq.ParquetWriter(folder / NODES, schema, use_dictionary=dictionaries) as writer,
        bar("nodes", unit="read") as shown,
    ):
        for batch in incoming.rows:
            counter.add(batch)
            shown.move(counter.counts["nodes"])
            pending.append(
                pa.table([_stored(name, batch[name]) for name in incoming.columns], schema=schema)
            )
            if sum(table.nbytes for table in pending) > _ROW_GROUP:
                writer.write_table(pa.concat_tables(pending))
                pending = []
        if pending:
            writer.write_table(pa.concat_tables(pending))
    columns, edges = _counted(incoming, counter)
    _write_edges(edges, columns["id"], folder / EDGES)


def _stored(name: str, values: Any) -> Any:
    """Return a column as it is stored; a missing label or split is null."""
    values = pc.cast(values, pa.string())
    return pc.if_else(pc.equal(values, ""), None, values) if name in ("label", "split") else values


def _write_edges(edges: EdgeList, ids: Any, file: Path) -> None:
    """Write each undirected edge once; with texts or weights, each row of the file as it stands."""
    ids = pc.cast(ids, pa.string())
    if edges.text is None and edges.weight is None:
        pq.write_table(edge_table(ids, *csr_from_pairs(edges.source, edges.target, len(ids))), file)
        return
    rows = np.flatnonzero(edges.source != edges.target)
    columns = {
        "source": ids.take(pa.array(edges.source[rows])),
        "target": ids.take(pa.array(edges.target[rows])),
    }
    if edges.text is not None:
        columns["text"] = pa.array([edges.text[row] or None for row in rows.tolist()], pa.string())
    if edges.weight is not None:
        columns["weight"] = pa.array(edges.weight[rows])
    pq.write_table(pa.table(columns), file)


def ends_of(edge_index: NDArray[np.int64], num_nodes: int, where: str) -> Ends:
    """Return the two rows of an edge list [2, m] after checking their node numbers."""
    if edge_index.size and not (edge_index.min() >= 0 and edge_index.max() < num_nodes):
        raise DataError(
            f"{where}: expected edges between nodes 0..{num_nodes - 1}, "
            f"found {edge_index.min()}..{edge_index.max()}; correct the edges"
        )
    return edge_index[0], edge_index[1]
