"""Tables by the names of their files: which reader reads one, and where a folder keeps them."""

from collections.abc import Callable
from pathlib import Path

from dance_flwr.data.graphs.folder import declared_classes
from dance_flwr.data.graphs.tables import ParquetTable, Table
from dance_flwr.data.imports.arrow_files import ArrowTable
from dance_flwr.data.imports.delimited import EDGE_LISTS, CsvTable
from dance_flwr.data.imports.json_files import JsonLinesTable
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.roles import dialect, has_ends, known_names
from dance_flwr.data.imports.source import GraphFile
from dance_flwr.data.imports.text_files import suffix_of
from dance_flwr.errors import DataError

_BINARY: dict[str, Callable[[Path, str], Table]] = {
    ".parquet": ParquetTable,
    ".arrow": ArrowTable,
    ".feather": ArrowTable,
}
_JSON_LINES = (".jsonl", ".ndjson")
_SUFFIXES = (".parquet", ".csv", ".jsonl", ".tsv", ".arrow", ".feather", ".ndjson", *EDGE_LISTS)
_COMMON = _SUFFIXES[:6]
_STEMS = {
    "nodes": ("nodes", "vertices", "entities", "node"),
    "edges": ("edges", "relationships", "links", "relations", "rels", "edge"),
}


def is_table(path: Path) -> bool:
    """Return whether the name of a file is that of a table."""
    suffix = suffix_of(path)
    # Parquet and Arrow compress by themselves.
    is_packed = path.suffix.lower() == ".gz" and suffix in _BINARY
    return path.is_file() and suffix in _SUFFIXES and not is_packed


def open_table(file: Path, options: Options = DEFAULTS, rows: str = "nodes") -> Table:
    """Return the table in a file, by its suffix."""
    suffix = suffix_of(file)
    if suffix in _BINARY:
        return _BINARY[suffix](file, rows)
    if suffix in _JSON_LINES:
        return JsonLinesTable(file, rows, encoding=options.encoding)
    known = known_names() | {options.source.lower(), options.target.lower()} - {""}
    return CsvTable(file, rows, encoding=options.encoding, delimiter=options.delimiter, known=known)


def read_tables(first: Path, second: Path, options: Options) -> GraphFile:
    """Return the graph of a node table and an edge table, which may come in either order."""
    nodes, edges = open_table(first, options), open_table(second, options, "edges")
    if has_ends(nodes.names, options) and not has_ends(edges.names, options):
        first, second = second, first
        nodes, edges = open_table(first, options), open_table(second, options, "edges")
    kind, roles = dialect(nodes.names, edges.names)
    facts: dict[str, str] = {}
    for table in (nodes, edges):
        what = [f"{name} {value}" for name, value in table.facts.items()]
        facts |= {table.file.name: ", ".join(what)} if what else {}
    classes = declared_classes(nodes.metadata, nodes.where)
    return GraphFile(kind, (first, second), nodes, edges, roles, facts, classes)


def lone_table(path: Path, options: Options) -> DataError:
    """Return the error for one table where two are needed."""
    is_edges = has_ends(open_table(path, options).names, options)
    kind, other = ("edges", "node table with the texts") if is_edges else ("nodes", "edge table")
    return DataError(
        f"{path}: expected a node table and an edge table, found a table of {kind} alone; "
        f"give the {other}, too"
    )


def table_files(folder: Path) -> tuple[Path, Path]:
    """Return the node table and the edge table of a folder."""
    return _only_table(folder, "nodes"), _only_table(folder, "edges")


def _only_table(folder: Path, kind: str) -> Path:
    stems = _STEMS[kind]
    matches = sorted(path for path in folder.iterdir() if is_table(path) and _stem(path) in stems)
    if len(matches) == 1:
        return matches[0]
    expected = f"{folder}: expected one of {', '.join(kind + suffix for suffix in _COMMON)}"
    if not matches:
        raise DataError(f"{expected}, found none; add one")
    names = " and ".join(path.name for path in matches)
    raise DataError(f"{expected}, found {names}; keep only one")


def _stem(path: Path) -> str:
    return path.name.split(".")[0].lower()
