"""The one way in: recognise the format of a user's files, read them, store or return their graph.

`recognise` finds the reader by the names of the files, `assemble` chooses columns and applies the
rules, `save` stores the graph under a name and `in_memory` returns it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.catalogue import CATALOGUE
from dance_flwr.data.graphs.folder import CLASSES_KEY, EDGES, NODES, declared_classes, is_ours
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.graphs.tables import ParquetTable, Table
from dance_flwr.data.imports import networks
from dance_flwr.data.imports.arrow_files import ArrowTable
from dance_flwr.data.imports.assemble import assemble
from dance_flwr.data.imports.delimited import EDGE_LISTS, CsvTable
from dance_flwr.data.imports.imported import Incoming, check_name, in_memory, save
from dance_flwr.data.imports.json_files import JsonLinesTable
from dance_flwr.data.imports.layouts import read_layout
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.roles import dialect, ends_of, known_names
from dance_flwr.data.imports.source import GraphFile
from dance_flwr.data.imports.text_files import suffix_of
from dance_flwr.errors import DataError

# In the order in which a missing table is described.
TABLES = (".parquet", ".csv", ".jsonl", ".tsv", ".arrow", ".feather", ".ndjson", *EDGE_LISTS)
_UNPACKED = (".parquet", ".arrow", ".feather")  # their own formats compress
_NODE_STEMS = ("nodes", "vertices", "entities", "node")
_EDGE_STEMS = ("edges", "relationships", "links", "relations", "rels", "edge")
_KNOWN = (
    "a folder with nodes.* and edges.*, a node and an edge table, .pt, .graphml, .json, "
    "or a saved data set"
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
    for path in files:
        if not path.exists():
            raise DataError(f"{path}: expected {_KNOWN}, found nothing there; check the path")
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
        return read_layout(published, folder, options.split_index)
    if len(paths) == 1 and is_ours(folder):
        return assemble(*_our_folder(folder, options))
    source = recognise(paths, options)
    return source if isinstance(source, Incoming) else assemble(source, options)


def recognise(paths: Sequence[Path], options: Options) -> GraphFile | Incoming:
    """Return the tables in these files, read by the reader of their format.

    Raises
    ------
    DataError : the format is unknown, or the files are damaged
    """
    if len(paths) == 2 and all(_is_table(path) for path in paths):
        return read_tables(paths[0], paths[1], options)
    if len(paths) != 1:
        raise DataError(
            "expected one path, or a node table and an edge table, "
            f"found {len(paths)} paths; see --help"
        )
    path = paths[0]
    network = networks.read_network(path, options)
    if network:
        return network
    if path.is_dir():
        nodes, edges = (find_table(path, stems) for stems in (_NODE_STEMS, _EDGE_STEMS))
        return read_tables(nodes, edges, options)
    if _is_table(path):
        kind = "edges" if ends_of(open_table(path, options).names) else "nodes"
        other = "node table with the texts" if kind == "edges" else "edge table"
        raise DataError(
            f"{path}: expected a node table and an edge table, found a table of {kind} alone; "
            f"give the {other}, too"
        )
    raise DataError(
        f"{path}: expected {_KNOWN}, found a file ending in {path.suffix!r}; convert it"
    )


def open_table(file: Path, options: Options = DEFAULTS, rows: str = "nodes") -> Table:
    """Return the table in a file, by its suffix.

    Parameters
    ----------
    rows : what a row is, "nodes" or "edges", each with its own bound

    Raises
    ------
    DataError : the file cannot be parsed, or has too many columns
    """
    binary: dict[str, Callable[[Path, str], Table]] = {
        ".parquet": ParquetTable,
        ".arrow": ArrowTable,
        ".feather": ArrowTable,
    }
    suffix = suffix_of(file)
    if suffix in binary:
        return binary[suffix](file, rows)
    if suffix in (".jsonl", ".ndjson"):
        return JsonLinesTable(file, rows, encoding=options.encoding)
    known = known_names() | {options.source.lower(), options.target.lower()} - {""}
    return CsvTable(file, rows, encoding=options.encoding, delimiter=options.delimiter, known=known)


def read_tables(first: Path, second: Path, options: Options) -> GraphFile:
    """Return the graph of a node table and an edge table, which may come in either order.

    Raises
    ------
    DataError : a file cannot be parsed
    """
    nodes, edges = open_table(first, options), open_table(second, options, "edges")
    # Swapped only where both are clear: ends may have any name that the options give.
    if ends_of(nodes.names) and not ends_of(edges.names) and not options.source:
        first, second = second, first
        nodes, edges = open_table(first, options), open_table(second, options, "edges")
    kind, roles = dialect(nodes.names, edges.names)
    facts = {
        f"{what} of {table.file.name}": value
        for table in (nodes, edges)
        for what, value in getattr(table, "facts", {}).items()
    }
    classes = declared_classes(nodes.metadata, nodes.where)
    return GraphFile(kind, (first, second), nodes, edges, roles, facts, classes)


def find_table(folder: Path, stems: tuple[str, ...]) -> Path:
    """Return the only table in the folder whose name is one of these stems and a known suffix.

    Raises
    ------
    DataError : there is no such file, or more than one
    """
    matches = sorted(path for path in folder.iterdir() if _is_table(path) and _stem(path) in stems)
    if len(matches) == 1:
        return matches[0]
    expected = f"{folder}: expected one of {', '.join(stems[0] + end for end in TABLES[:6])}"
    if not matches:
        raise DataError(f"{expected}, found none; add one")
    names = " and ".join(path.name for path in matches)
    raise DataError(f"{expected}, found {names}; keep only one")


def table_files(folder: Path) -> tuple[Path, Path]:
    """Return the node table and the edge table of a folder.

    Raises
    ------
    DataError : there is none of a kind, or more than one
    """
    return find_table(folder, _NODE_STEMS), find_table(folder, _EDGE_STEMS)


def _is_table(path: Path) -> bool:
    suffix = suffix_of(path)
    is_packed = path.suffix.lower() == ".gz"
    return path.is_file() and suffix in TABLES and not (is_packed and suffix in _UNPACKED)


def _stem(path: Path) -> str:
    return path.name.split(".")[0].lower()


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
