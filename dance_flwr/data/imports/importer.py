"""The one way in: recognise the format of a user's files, read them, store or return their graph.

`prepare` runs in a child process (`sandbox`): `recognise` finds the reader by the names of the
files, and `assemble` chooses columns and applies the rules. `import_graph` stores the graph under
a name, whole or not at all, and `read_graph` returns it.
"""

import json
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dance_flwr.data.graphs.catalogue import CATALOGUE, graphs_folder
from dance_flwr.data.graphs.edges import EdgeList, csr_rows
from dance_flwr.data.graphs.folder import (
    CLASSES_KEY,
    EDGES,
    NODES,
    declared_classes,
    graph_of,
    is_ours,
)
from dance_flwr.data.graphs.graph import SPLIT_NAMES, TextGraph, csr_from_pairs
from dance_flwr.data.graphs.tables import parquet_table
from dance_flwr.data.imports.assemble import EDGES_FILE, NODES_FILE, assemble
from dance_flwr.data.imports.json_graphs import read_network_json
from dance_flwr.data.imports.layouts import GraphFile
from dance_flwr.data.imports.networks import RDF, read_gml, read_notes, read_rdf
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.published import read_published
from dance_flwr.data.imports.records import read_object, suffix_of
from dance_flwr.data.imports.report import left_out
from dance_flwr.data.imports.sandbox import read_in_child
from dance_flwr.data.imports.saved import is_saved, read_saved_dataset
from dance_flwr.data.imports.tables import holds_tables, is_table, pieces_of, read_pieces
from dance_flwr.data.imports.torch_files import load_data, pyg_data
from dance_flwr.data.imports.xml_graphs import format_of, read_gexf, read_graphml
from dance_flwr.disk import atomic_folder, write_text
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import file_sha256
from dance_flwr.terminal import bar

REPORT = "import.json"
_KNOWN = (
    "a folder with nodes.* and edges.*, a node and an edge table (.csv, .tsv, .jsonl, .parquet, "
    ".arrow), .graphml, .gexf, .json, .pt, or a saved data set"
)
_TORCH = (".pt", ".pth")
_READERS: dict[str, Callable[[Path, Options], GraphFile | None]] = {
    ".graphml": lambda file, _: read_graphml(file),
    ".gexf": lambda file, _: read_gexf(file),
    **dict.fromkeys((".json", ".cyjs"), lambda file, _: read_network_json(file)),
    ".gml": lambda file, options: read_gml(file, options.encoding),
    **dict.fromkeys(RDF, lambda file, options: read_rdf(file, options.label)),
}
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
    read = partial(read_in_child, _existing(paths), name, options)
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
    with _tables_by(partial(read_in_child, _existing(paths), name, options)) as (report, _, _):
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
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    files = _existing([Path(path) for path in several])
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


def prepare(paths: Sequence[Path], name: str, options: Options, out: Path) -> dict[str, Any]:
    """Read files, write `nodes.arrow` and `edges.arrow` into a folder, and return the report."""
    source, options = recognise(paths, options, name)
    report = assemble(source, options, out).as_dict()
    files = {file.name: file_sha256(file) for file in source.files}
    return {"kind": source.kind, "files": files, **report}


def recognise(paths: Sequence[Path], options: Options, name: str = "") -> tuple[GraphFile, Options]:
    """Return the tables in these files, and options that hold for them."""
    if len(paths) != 1:
        return _graph_of_tables(paths, options), options
    path = paths[0]
    published = CATALOGUE.get(name)
    if published and all((path / file.name).is_file() for file in published.files):
        return read_published(published, path, options.split_index), options
    if is_ours(path):
        return _our_folder(path, options)
    if source := read_network(path, options):
        return source, options
    return _graph_of_tables(paths, options), options


def _graph_of_tables(paths: Sequence[Path], options: Options) -> GraphFile:
    """Return the graph in files that are tables, and in folders of them."""
    found = [pieces_of(path, options) for path in paths if path.is_dir() or _may_be_table(path)]
    pieces = [piece for of_path, _ in found for piece in of_path]
    if not pieces:
        raise DataError(
            f"{paths[0]}: expected a table of nodes and one of edges, such as nodes.csv and "
            "edges.csv, found none; add them"
        )
    return read_pieces(pieces, options, [name for _, names in found for name in names])


def _may_be_table(path: Path) -> bool:
    if is_table(path) or suffix_of(path) == ".json":
        return True
    if suffix_of(path) in (*_TORCH, *_READERS):
        raise DataError(
            f"{path}: expected tables of nodes and of edges, found a file that holds both; give it "
            "alone, with its texts in it"
        )
    raise DataError(
        f"{path}: expected {_KNOWN}, found a file ending in {path.suffix!r}; convert it"
    )


def read_network(path: Path, options: Options = DEFAULTS) -> GraphFile | None:
    """Return the graph in a file or folder of a network; None if it is none by name and content."""
    if path.is_dir():
        if is_saved(path):
            return read_saved_dataset(path, options)
        return None if holds_tables(path) else read_notes(path)
    suffix = suffix_of(path)
    if suffix in _TORCH:
        return pyg_data(load_data(path), (path,), options.split_index)
    suffix = format_of(path) if suffix == ".xml" else suffix
    return _READERS[suffix](path, options) if suffix in _READERS else None


def needs_torch(paths: Sequence[Path]) -> bool:
    """Return whether a file of torch is among these, or in one of these folders."""
    files = [file for path in paths for file in (path.glob("*") if path.is_dir() else [path])]
    return any(suffix_of(file) in (*_TORCH, ".zip") for file in files)


def _existing(paths: Sequence[Path]) -> list[Path]:
    files = [path.expanduser() for path in paths]
    if absent := [str(path) for path in files if not path.exists()]:
        where = ", ".join(absent)
        raise DataError(f"{where}: expected {_KNOWN}, found nothing there; check the path")
    return files


def _our_folder(folder: Path, options: Options) -> tuple[GraphFile, Options]:
    """Return the tables that this project wrote, and options that leave them as they stand."""
    files = folder / NODES, folder / EDGES
    nodes, edges = parquet_table(files[0]), parquet_table(files[1], "edges")
    has_text, has_weight = "text" in edges.names, "weight" in edges.names
    roles = {"relation": "", "description": "text" if has_text else ""}
    classes = declared_classes({CLASSES_KEY: nodes.metadata[CLASSES_KEY]}, nodes.where)
    edges = replace(edges, roles=roles)
    source = GraphFile("dance-flwr folder", files, (nodes,), (edges,), classes=classes)
    return source, replace(
        options,
        unlabelled=(),
        edge_text="append" if has_text else "",
        edge_weight="weight" if has_weight else "",
    )


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
