"""What the child process does: recognise the format of a user's files, and read them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.catalogue import CATALOGUE
from dance_flwr.data.graphs.folder import CLASSES_KEY, EDGES, NODES, declared_classes, is_ours
from dance_flwr.data.graphs.tables import parquet_table
from dance_flwr.data.imports.assemble import assemble
from dance_flwr.data.imports.json_graphs import read_json_graph
from dance_flwr.data.imports.layouts import GraphFile
from dance_flwr.data.imports.networks import RDF, read_gml, read_notes, read_rdf
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.published import read_published
from dance_flwr.data.imports.records import fault, suffix_of
from dance_flwr.data.imports.saved import is_saved, read_saved_dataset
from dance_flwr.data.imports.tables import (
    Piece,
    files_of,
    holds_tables,
    is_table,
    pieces_of,
    read_pieces,
)
from dance_flwr.data.imports.torch_files import load_data, pyg_data
from dance_flwr.data.imports.xml_graphs import format_of, read_gexf, read_graphml
from dance_flwr.fingerprint import file_sha256

_KNOWN = (
    "a folder with nodes.* and edges.*, a node and an edge table (.csv, .tsv, .jsonl, .parquet, "
    ".arrow), .graphml, .gexf, .json, .pt, or a saved data set"
)
_TORCH = (".pt", ".pth")
_READERS: dict[str, Callable[[Path, Options], GraphFile]] = {
    ".graphml": lambda file, _: read_graphml(file),
    ".gexf": lambda file, _: read_gexf(file),
    **dict.fromkeys((".json", ".cyjs"), lambda file, options: _read_json(file, options)),
    ".gml": lambda file, options: read_gml(file, options.encoding),
    **dict.fromkeys(RDF, lambda file, options: read_rdf(file, options.label)),
    **dict.fromkeys(
        _TORCH, lambda file, options: pyg_data(load_data(file), (file,), options.split_index)
    ),
}


def needs_torch(paths: Sequence[Path]) -> bool:
    """Return whether a file of torch is among these, or in one of these folders."""
    files = [file for path in paths for file in (path.glob("*") if path.is_dir() else [path])]
    return any(suffix_of(file) in (*_TORCH, ".zip") for file in files)


def prepare(paths: Sequence[Path], name: str, options: Options, out: Path) -> dict[str, Any]:
    """Read files, write their graph into a folder, and return the report."""
    paths = [path.expanduser() for path in paths]
    if absent := [str(path) for path in paths if not path.exists()]:
        raise fault(", ".join(absent), _KNOWN, "nothing there", "check the path")
    source, options = recognise(paths, options, name)
    report = assemble(source, options, out).as_dict()
    files = {file.name: file_sha256(file) for file in source.files}
    return {"kind": source.kind, "files": files, **report}


def recognise(paths: Sequence[Path], options: Options, name: str = "") -> tuple[GraphFile, Options]:
    """Return the tables in these files, and options that hold for them."""
    path = paths[0]
    if len(paths) == 1:
        published = CATALOGUE.get(name)
        if published and all((path / file.name).is_file() for file in published.files):
            return read_published(published, path, options.split_index), options
        if is_ours(path):
            return _our_folder(path, options)
        if source := read_network(path, options):
            return source, options
    found = [files_of(path) for path in paths if path.is_dir() or _may_be_table(path)]
    pieces = pieces_of([file for files, _ in found for file in files], options)
    if not pieces:
        what = "a table of nodes and one of edges, such as nodes.csv and edges.csv"
        raise fault(path, what, "none", "add them")
    return read_pieces(pieces, options, [name for _, names in found for name in names]), options


def _may_be_table(path: Path) -> bool:
    if is_table(path) or suffix_of(path) == ".json":
        return True
    if suffix_of(path) in _READERS:
        advice = "give it alone, with its texts in it"
        raise fault(path, "tables of nodes and of edges", "a file that holds both", advice)
    raise fault(path, _KNOWN, f"a file ending in {path.suffix!r}", "convert it")


def read_network(path: Path, options: Options = DEFAULTS) -> GraphFile | None:
    """Return the graph in a file or folder of a network; None if it is none by name and content."""
    if path.is_dir():
        if is_saved(path):
            return read_saved_dataset(path, options)
        return None if holds_tables(path) else read_notes(path)
    suffix = suffix_of(path)
    suffix = format_of(path) if suffix == ".xml" else suffix
    return _READERS[suffix](path, options) if suffix in _READERS else None


def _read_json(file: Path, options: Options) -> GraphFile:
    found = read_json_graph(file, options)
    if isinstance(found, GraphFile):
        return found
    return read_pieces([Piece(file.name.split(".")[0], file, "", found)], options)


def _our_folder(folder: Path, options: Options) -> tuple[GraphFile, Options]:
    """Return the tables that this project wrote, and options that leave them as they stand."""
    files = folder / NODES, folder / EDGES
    nodes, edges = parquet_table(files[0]), parquet_table(files[1], "edges")
    has_text, has_weight = "text" in edges.names, "weight" in edges.names
    roles = {"relation": "", "description": "text" if has_text else ""}
    classes = declared_classes({CLASSES_KEY: nodes.metadata[CLASSES_KEY]}, nodes.where)
    source = GraphFile("dance-flwr folder", files, (nodes,), (edges,), roles, classes=classes)
    return source, replace(
        options,
        unlabelled=(),
        edge_text="append" if has_text else "",
        edge_weight="weight" if has_weight else "",
    )
