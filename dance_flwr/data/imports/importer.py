"""The one way in: read a user's files in a child process, store or return their graph.

`import_graph` stores the graph under a name, whole or not at all, and `read_graph` returns it.
"""

import json
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dance_flwr.data.graphs.catalogue import CATALOGUE, graphs_folder
from dance_flwr.data.graphs.edges import EdgeList, csr_rows
from dance_flwr.data.graphs.folder import CLASSES_KEY, EDGES, NODES, graph_of
from dance_flwr.data.graphs.graph import SPLIT_NAMES, TextGraph, csr_from_pairs
from dance_flwr.data.imports.assemble import EDGES_FILE, NODES_FILE
from dance_flwr.data.imports.child import read_in_child
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.records import read_object
from dance_flwr.data.imports.report import left_out
from dance_flwr.disk import atomic_folder, write_text
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import file_sha256
from dance_flwr.terminal import bar

REPORT = "import.json"
# Readers take a row group at a time.
_ROW_GROUP = 8 << 20  # bytes
_EDGES = 1 << 20  # of a row group


def import_graph(
    paths: Sequence[Path],
    name: str,
    root: Path,
    options: Options = DEFAULTS,
    reserved: tuple[str, ...] = (),
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Store the graph in these files as `<root>/graphs/<name>` and return its report.

    Parameters
    ----------
    paths : one folder or file, or a node table and an edge table
    name : name of the graph; under a published graph's name, the counts must be those of the paper
    reserved : names that may not be used
    extra : added to the report

    Raises
    ------
    DataError : the files are invalid, the counts are not those of the published graph of this name,
        or the name is in use; nothing is stored
    """
    check_name(name, reserved)
    target = graphs_folder(root) / name
    # Never replaced: partitions may have been made of the graph of this name.
    if target.exists():
        raise DataError(f"{target} is already there; remove it or choose another --name")
    published = CATALOGUE.get(name)
    shares = dict(zip(SPLIT_NAMES[1:], published.split, strict=True)) if published else {}
    read = partial(read_in_child, list(paths), name, options)
    with _tables_by(read) as (report, nodes, edges):
        try:
            with atomic_folder(target) as draft, bar("storing"):
                _write_nodes(nodes, report["classes"], draft / NODES)
                _write_edges(edges, nodes["id"], draft / EDGES)
                if published:
                    # Inside the draft: a graph with other counts is never stored.
                    published.check(report["counts"])
                report |= {
                    "name": name,
                    "tables": {file: file_sha256(draft / file) for file in (NODES, EDGES)},
                    "split": {"official": bool(published and published.official), **shares},
                    "inductive": bool(published and published.inductive),
                    "licence": published.licence if published else "not known here",
                    **(extra or {}),
                }
                # Readable class names; half a character in a name is escaped.
                text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
                write_text(draft / REPORT, text.encode(errors="backslashreplace").decode())
        except OSError as error:
            reason = error.strerror or str(error)
            raise DataError(
                f"{target}: expected a writable folder with room, found: {reason}; "
                "free some space, choose another data root or change its owner (chown)"
            ) from error
    return report


def look_at(paths: Sequence[Path], name: str, options: Options = DEFAULTS) -> dict[str, Any]:
    """Return the report of an import without storing anything."""
    with _tables_by(partial(read_in_child, list(paths), name, options)) as (report, _, _):
        return report


def read_graph(paths: Path | str | Iterable[Path | str], **options: Any) -> TextGraph:
    """Return the graph in these files, in any format that `dance-flwr data import` reads.

    Parameters
    ----------
    paths : one folder or file, or a node table and an edge table
    options : as in `Options`: `text="title,abstract"`, `label="none"`, `dangling="drop"`, ...

    Returns
    -------
    the graph, with the name of the folder or of the first file; what is left out of its edges is a
    warning

    Raises
    ------
    DataError : the files are invalid
    UserError : an option has an unknown value
    """
    files = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    # Resolved, as `.` has no name.
    name = files[0].resolve().name
    return graph_by(partial(read_in_child, files, name, Options(**options)), name)


def graph_by(read: Callable[[Path], dict[str, Any]], name: str) -> TextGraph:
    """Return the graph whose tables a function writes into a folder, as `prepare` does."""
    with _tables_by(read) as (report, nodes, edges):
        return _graph_of(report, nodes, edges, name)


def _graph_of(report: dict[str, Any], nodes: Any, edges: Any, name: str) -> TextGraph:
    """Return the graph in tables as `assemble` writes them, and warn of what is left out."""
    for line in left_out(report["edges_left_out"]):
        warnings.warn(f"{name}: left out: {line}", stacklevel=4)
    columns = {n: nodes[n].combine_chunks() for n in nodes.column_names if n != "text"}
    texts: list[str] = []
    for chunk in nodes["text"].chunks:
        # Chunk by chunk, so that the column is never held twice.
        texts += chunk.to_pylist()
    hashes = {file: f"sha256:{sha256}" for file, sha256 in report["files"].items()}
    return graph_of(name, columns, texts, _edge_list(edges), tuple(report["classes"]), hashes)


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


def read_report(folder: Path) -> dict[str, Any]:
    """Return the report beside an imported graph; empty for a folder without it."""
    file = folder / REPORT
    if not file.is_file():
        return {}
    return read_object(file, "the report of an import", "import the graph again")


@contextmanager
def _tables_by(
    read: Callable[[Path], dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], Any, Any]]:
    """Yield the report, and the tables of nodes and edges, that a function writes into a folder."""
    folder = Path(tempfile.mkdtemp(prefix="dance-flwr-"))
    try:
        with bar("reading"):
            report = read(folder)
        with (
            pa.memory_map(str(folder / NODES_FILE)) as nodes,
            pa.memory_map(str(folder / EDGES_FILE)) as edges,
        ):
            shutil.rmtree(folder)  # mapped: nothing is left behind by a process that is killed
            for line in report["warnings"]:
                warnings.warn(line, stacklevel=5)
            yield report, pa.ipc.open_file(nodes).read_all(), pa.ipc.open_file(edges).read_all()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_nodes(nodes: Any, classes: list[str], file: Path) -> None:
    """Write a table of nodes in row groups; a missing label or split is null."""
    names = nodes.column_names
    schema = pa.schema([(name, pa.string()) for name in names])
    schema = schema.with_metadata({CLASSES_KEY: json.dumps(sorted(classes)).encode()})
    # Texts rarely repeat, so a dictionary of them would only be a second copy.
    dictionaries = ["label", *names[4:]]
    rows = max(1, len(nodes) * _ROW_GROUP // nodes.nbytes)
    with pq.ParquetWriter(file, schema, use_dictionary=dictionaries) as writer:
        for start in range(0, len(nodes), rows):
            part = nodes.slice(start, rows)
            for name in ("label", "split"):
                values = pc.if_else(pc.equal(part[name], ""), None, part[name])
                part = part.set_column(names.index(name), name, values)
            writer.write_table(part.cast(schema))


def _write_edges(edges: Any, ids: Any, file: Path) -> None:
    """Write each undirected edge once; with texts or weights, each row of the file as it stands."""
    ids = ids.combine_chunks().cast(pa.string())
    listed = _edge_list(edges)
    if listed.text is None and listed.weight is None:
        indptr, indices = csr_from_pairs(listed.source, listed.target, len(ids))
        source = csr_rows(indptr)
        # The graph is symmetric, so the half above the diagonal is all of it.
        once = np.flatnonzero(source < indices)
        ends = {"source": source, "target": indices}
        with pq.ParquetWriter(file, pa.schema(dict.fromkeys(ends, pa.string()))) as writer:
            for start in range(0, len(once) or 1, _EDGES):
                part = once[start : start + _EDGES]
                writer.write_table(
                    pa.table({name: ids.take(pa.array(rows[part])) for name, rows in ends.items()})
                )
        return
    rows = np.flatnonzero(listed.source != listed.target)
    columns = {
        "source": ids.take(pa.array(listed.source[rows])),
        "target": ids.take(pa.array(listed.target[rows])),
    }
    if listed.text is not None:
        columns["text"] = pa.array([listed.text[row] or None for row in rows.tolist()], pa.string())
    if listed.weight is not None:
        columns["weight"] = pa.array(listed.weight[rows])
    pq.write_table(pa.table(columns), file)


def _edge_list(edges: Any) -> EdgeList:
    columns = {name: edges[name] for name in edges.column_names}
    return EdgeList(
        columns["source"].to_numpy(),
        columns["target"].to_numpy(),
        columns["weight"].to_numpy() if "weight" in columns else None,
        columns["text"].to_pylist() if "text" in columns else None,
    )
