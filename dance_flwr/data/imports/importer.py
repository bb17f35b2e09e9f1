"""The one way in: recognise the format of a user's files, read them, store or return their graph.

`recognise` finds the reader by the names of the files, `assemble` chooses columns and applies the
rules, `save` stores the graph under a name and `in_memory` returns it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.catalogue import CATALOGUE
from dance_flwr.data.graphs.folder import CLASSES_KEY, EDGES, NODES, declared_classes, is_ours
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.graphs.tables import ParquetTable
from dance_flwr.data.imports.assemble import assemble
from dance_flwr.data.imports.imported import Incoming, check_name, in_memory, save
from dance_flwr.data.imports.networks import read_network
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.source import GraphFile
from dance_flwr.data.imports.tables import is_table, lone_table, read_tables, table_files
from dance_flwr.errors import DataError
from dance_flwr.terminal import bar

_KNOWN = (
    "a folder with nodes.* and edges.*, a node and an edge table (.csv, .tsv, .jsonl, .parquet, "
    ".arrow), .graphml, .gexf, .json, .pt, or a saved data set"
)


def import_graph(
    paths: Sequence[Path],
    name: str,
    root: Path,
    options: Options = DEFAULTS,
    reserved: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Store the graph in these files as `<root>/graphs/<name>` and return its report.

    Parameters
    ----------
    paths : one folder or file, or a node table and an edge table
    name : name of the graph; under a published graph's name, the counts must be those of the paper
    reserved : names that may not be used

    Raises
    ------
    DataError : the files are invalid; nothing is stored
    """
    check_name(name, reserved)
    return save(_incoming(_existing(paths), options, name), name, root)


def read_graph(paths: Path | str | Iterable[Path | str], **options: Any) -> TextGraph:
    """Return the graph in these files, in any format that `dance-flwr data import` reads.

    Parameters
    ----------
    paths : one folder or file, or a node table and an edge table
    options : as in `Options`: `text="title,abstract"`, `label="none"`, `dangling="drop"`, ...

    Returns
    -------
    the graph, with the name of the folder or of the first file

    Raises
    ------
    DataError : the files are invalid
    UserError : an option has an unknown value
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    files = _existing([Path(path) for path in several])
    # Resolved, as `.` has no name.
    name = files[0].resolve().name
    return in_memory(_incoming(files, Options(**options), name), name)


def _existing(paths: Sequence[Path]) -> list[Path]:
    files = [path.expanduser() for path in paths]
    if absent := [str(path) for path in files if not path.exists()]:
        where = ", ".join(absent)
        raise DataError(f"{where}: expected {_KNOWN}, found nothing there; check the path")
    return files


def _incoming(paths: Sequence[Path], options: Options, name: str) -> Incoming:
    """Return the graph in these files, recognised and with its columns chosen."""
    folder = paths[0]
    published = CATALOGUE.get(name)
    if (
        len(paths) == 1
        and published
        and all((folder / file.name).is_file() for file in published.files)
    ):
        # torch takes a second to load.
        from dance_flwr.data.imports.layouts import read_layout

        return read_layout(published, folder, options.split_index)
    if len(paths) == 1 and is_ours(folder):
        return assemble(*_our_folder(folder, options))
    # Networks are read whole here, and of JSON lines the names of all columns.
    with bar("reading"):
        source = recognise(paths, options)
    return assemble(source, options)


def recognise(paths: Sequence[Path], options: Options) -> GraphFile:
    """Return the tables in these files, read by the reader of their format."""
    if len(paths) == 2 and all(is_table(path) for path in paths):
        return read_tables(paths[0], paths[1], options)
    if len(paths) != 1:
        raise DataError(
            "expected one path, or a node table and an edge table, "
            f"found {len(paths)} paths; see --help"
        )
    path = paths[0]
    network = read_network(path, key=options.id, split_index=options.split_index)
    if network:
        return network
    if path.is_dir():
        return read_tables(*table_files(path), options)
    if is_table(path):
        raise lone_table(path, options)
    raise DataError(
        f"{path}: expected {_KNOWN}, found a file ending in {path.suffix!r}; convert it"
    )


def _our_folder(folder: Path, options: Options) -> tuple[GraphFile, Options]:
    """Return the tables that this project wrote, and options that leave them as they stand."""
    files = folder / NODES, folder / EDGES
    nodes, edges = ParquetTable(files[0]), ParquetTable(files[1], "edges")
    as_stored = {
        "unlabelled": (),
        "edge_text": "append" if "text" in edges.names else "",
        "edge_weight": "weight" if "weight" in edges.names else "",
    }
    roles = {"relation": "", "description": "text" if "text" in edges.names else ""}
    classes = declared_classes({CLASSES_KEY: nodes.metadata[CLASSES_KEY]}, nodes.where)
    source = GraphFile("dance-flwr folder", files, nodes, edges, roles, classes=classes)
    return source, replace(options, **as_stored)  # type: ignore[arg-type]
