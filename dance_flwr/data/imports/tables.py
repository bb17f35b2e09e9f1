"""From files and folders to tables of nodes and of edges: which is which, and where edges are."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dance_flwr.data.graphs.folder import declared_classes
from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.graphs.tables import Table, as_strings, derived, join, parquet_table, readable
from dance_flwr.data.imports.databases import sheets
from dance_flwr.data.imports.json_graphs import json_records
from dance_flwr.data.imports.layouts import ENDS, LAYOUTS, USUAL, GraphFile, declared
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.records import files_in, id_key, is_packed, opened, seekable, suffix_of
from dance_flwr.data.imports.roles import (
    Lack,
    dialect,
    ends_of,
    find,
    find_id,
    has_ends,
    id_space,
    known_names,
    recognised,
    refuse_lacking,
)
from dance_flwr.data.imports.text_tables import COMMENTS, EDGE_LISTS, delimited, json_lines
from dance_flwr.errors import DataError, counted

_SUFFIXES = (
    *(".parquet", ".csv", ".jsonl", ".tsv", ".arrow", ".feather", ".ndjson"),
    *EDGE_LISTS,
)
_SHEETS = (".xlsx", ".sqlite", ".sqlite3", ".db")
_TABLE = "table"  # the column with the name of its table, where there are several of a kind
# Between and around the ids of neighbours in one string, and those of an array of NumPy.
_SEPARATORS, _AROUND = re.compile(r"[;,|]|(?<=>)\s+(?=<)"), " \t\r\n'\"[]"
_NUMBERS = re.compile(r"\[[\d\s]*\]")


class Piece(NamedTuple):
    """A table that may be one of nodes or of edges."""

    name: str  # of its file or sheet
    file: Path
    hint: str  # "nodes" or "edges" if its name or that of its folder says so, else ""
    open: Callable[..., Table]  # takes "nodes" or "edges"


def is_table(path: Path) -> bool:
    """Return whether the name of a file is that of a table."""
    return path.is_file() and suffix_of(path) in (*_SUFFIXES, *_SHEETS)


def open_table(file: Path, options: Options = DEFAULTS, rows: str = "nodes", **more: Any) -> Table:
    """Return the table in a file, by its suffix.

    Parameters
    ----------
    more : as of `delimited`, for text files
    """
    suffix = suffix_of(file)
    if suffix == ".parquet":
        return parquet_table(seekable(file), rows, str(file))
    if suffix in (".arrow", ".feather"):
        return _arrow_table(file, rows)
    if suffix in (".jsonl", ".ndjson"):
        return json_lines(file, options, rows)
    if suffix == ".json":
        return json_records(file, options, rows)
    return delimited(file, options, rows, known_names(options), **more)


def _arrow_table(file: Path, rows: str) -> Table:
    """Return the table in an Arrow IPC file or stream, as `pandas.to_feather` and Arrow write."""

    def reader() -> Any:
        with opened(file) as stream:
            is_file = stream.read(6) == b"ARROW1"
        source = seekable(file) if is_packed(file) else str(file)
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source)

    def record_batches(columns: list[str]) -> Iterator[Any]:
        with reader() as table:
            number = getattr(table, "num_record_batches", None)
            for batch in table if number is None else map(table.get_batch, range(number)):
                batch.validate(full=True)  # offsets in a foreign file may point anywhere
                yield batch.select(columns)

    with readable(file), reader() as table:
        schema = table.schema
    return Table(str(file), list(schema.names), record_batches, rows, dict(schema.metadata or {}))


def pieces_of(path: Path, options: Options = DEFAULTS) -> tuple[list[Piece], list[str]]:
    """Return the tables in a file or folder, and the names of the files that are none of them.

    In a folder, files and folders that are named as nodes and as edges are these, and others are
    left out; without such names all tables are taken. Other folders in it are looked into if there
    is no table outside of them.
    """
    if not path.is_dir():
        return _pieces(path, "", options), []
    every = {name: path / name for name in files_in(path)}
    files = []
    for name, file in every.items():
        hint = next(filter(None, map(_hint, [*Path(name).parts, path.name])), "")
        if is_table(file) or (hint and suffix_of(file) == ".json"):
            files.append((file, hint))
    files = [(f, hint) for f, hint in files if _is_near(f, path)] or files
    if {"nodes", "edges"} <= {hint for _, hint in files}:
        files = [(file, hint) for file, hint in files if hint]
    files.sort(key=lambda entry: entry[1] == "edges")
    taken = {file for file, _ in files}
    left_out = [name for name, file in every.items() if file not in taken]
    return [p for file, hint in files for p in _pieces(file, hint, options)], left_out


def _is_near(file: Path, folder: Path) -> bool:
    """Return whether a file is in a folder, or in one in it that is named as nodes or edges."""
    return file.parent == folder or any(map(_hint, file.relative_to(folder).parts[:-1]))


def holds_tables(folder: Path) -> bool:
    """Return whether a folder is one of tables, and not of notes with a table among them."""
    every = {name: folder / name for name in files_in(folder)}
    is_of_notes = any(f.suffix == ".md" and f.stem.lower() != "readme" for f in every.values())
    tables = [f for f in every.values() if is_table(f) and suffix_of(f) != ".txt"]
    has_both = {"nodes", "edges"} <= {_hint(file.name) for file in tables}
    return (
        has_both or (bool(tables) and not is_of_notes) or any(_is_near(f, folder) for f in tables)
    )


def _plain(file: Path) -> str:
    """Return the name of a file, without what GraphRAG put in front before version 1.0."""
    return file.name.removeprefix("create_final_")


def _hint(name: str) -> str:
    """Return "nodes" or "edges" if the name of a file or folder says so, else ""."""
    stem = re.split(r"[.\-_\d]", _plain(Path(name)).lower(), maxsplit=1)[0]
    return next((kind for kind, stems in LAYOUTS["stems"].items() if stem in stems), "")


def _pieces(path: Path, hint: str, options: Options) -> list[Piece]:
    if suffix_of(path) in _SHEETS:
        return [Piece(name, path, _hint(name), table) for name, table in sheets(path)]
    return [Piece(path.name.split(".")[0], path, hint, partial(open_table, path, options))]


def _with_headers(pieces: Sequence[Piece]) -> list[Piece]:
    """Return tables with the header that a file apart holds, as `nodes-header.csv`."""
    apart = {re.sub(r"[-_]?header$", "", p.name): p for p in pieces if p.name.endswith("header")}
    completed = []
    for piece in pieces:
        if piece not in apart.values():
            header = next((apart[stem] for stem in apart if piece.name.startswith(stem)), None)
            with_names = header and partial(piece.open, names=header.open("nodes").names)
            completed.append(piece._replace(open=with_names or piece.open))
    return completed


def read_pieces(
    pieces: Sequence[Piece], options: Options, left_out: Sequence[str] = ()
) -> GraphFile:
    """Return the graph of tables of nodes and of edges in any order.

    Without a table of edges, the edges are a column of the nodes, or rows of the same table.
    """
    pieces = _with_headers(pieces)
    kinds = _kinds(pieces, options)
    tables: dict[str, list[Table]] = {}
    for rows in ("nodes", "edges"):
        chosen = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == rows]
        opened_ = [piece.open(rows) for piece in chosen]
        if rows == "edges" and _begin_with_marks(tables["nodes"], opened_, options):
            opened_ = [piece.open(rows, comments=False) for piece in chosen]
        read = list(zip(opened_, [piece.name for piece in chosen], strict=True))
        if rows == "nodes" and all(suffix_of(piece.file) in _SHEETS for piece in chosen):
            # Databases and workbooks hold other tables, too, which nobody can leave out.
            with_ids = [entry for entry in read if find(entry[0], "id", options.id)] or read
            left_out = [*left_out, *(_left_out(e[0]) for e in read if e not in with_ids)]
            read = with_ids
        tables[rows] = _named(read)
    facts = {
        Path(table.where).name: ", ".join(f"{name} {value}" for name, value in table.facts.items())
        for table in (*tables["nodes"], *tables["edges"])
        if table.facts
    }
    nodes, edges = tables["nodes"], tables["edges"]
    if len(pieces) == 1 and not options.edges_from:
        nodes, edges = _rows_of_two_kinds([*nodes, *edges][0])
    if not nodes:
        raise DataError(
            f"{edges[0].where}: expected a node table and an edge table, found a table of edges "
            "alone; give the node table with the texts, too"
        )
    of_nodes, of_edges = ([n for table in part for n in table.names] for part in (nodes, edges))
    kind, roles, directed = dialect(of_nodes, of_edges, [_plain(piece.file) for piece in pieces])
    nodes, edges = (
        [declared(table, {**roles, **id_space(table.names).roles}) for table in part]
        for part in (nodes, edges)
    )
    if options.edges_from or not edges:
        column, edges_of_column = _edges_from(nodes, options)
        edges, facts["edges from"] = [*edges, *edges_of_column], column
        nodes = [replace(table, roles={**table.roles, "neighbours": column}) for table in nodes]
    if len({id_space(table.names).of.get("id") for table in nodes}) > 1:
        nodes, edges = ([_prefixed(table) for table in part] for part in (nodes, edges))
    classes = tuple(c for table in nodes for c in declared_classes(table.metadata, table.where))
    files = tuple(dict.fromkeys(piece.file for piece in pieces))
    more = {"files": left_out}
    return GraphFile(
        kind, files, tuple(nodes), tuple(edges), facts, classes, directed, left_out=more
    )


def _left_out(table: Table) -> str:
    rows = sum(len(batch) for batch in table.record_batches(table.names[:1]))
    return f"{Path(table.where).name}, {counted(rows, 'row')} without ids"


def _kinds(pieces: Sequence[Piece], options: Options) -> list[str]:
    """Return "nodes" or "edges" for each table: by its name, else by its columns."""
    found = ["edges" if _has_ends(piece, options) else "nodes" for piece in pieces]
    if len(pieces) == 2 and not any(piece.hint for piece in pieces):
        # In the order in which they are given, unless the columns say otherwise.
        of_parts = pieces[0].open("nodes").names == pieces[1].open("nodes").names
        if found[0] == found[1] and not options.edges_from and not of_parts:
            return ["nodes", "edges"]
        return found
    return [piece.hint or kind for piece, kind in zip(pieces, found, strict=True)]


def _has_ends(piece: Piece, options: Options) -> bool:
    names = piece.open("nodes").names
    if has_ends(names, options):
        return True
    # Without a header, the columns are named only as those of edges.
    is_bare = any(name.strip().lstrip("-").replace(".", "", 1).isdecimal() for name in names)
    return is_bare and has_ends(piece.open("edges").names, options)


def _named(named: list[tuple[Table, str]]) -> list[Table]:
    """Return tables of a kind with a column of their names, where these differ."""
    tables = [table for table, _ in named]
    stems = {re.sub(r"[-_.]?\d*$", "", name) for _, name in named}
    if len(stems) < 2 or any(_TABLE in table.names for table in tables):
        return tables
    roles = {"relation": _TABLE} if tables[0].rows == "edges" else {}

    def with_name(name: str, arrays: dict[str, Any]) -> dict[str, Any]:
        size = len(next(iter(arrays.values())))
        return {**arrays, _TABLE: pa.repeat(pa.scalar(name, pa.string()), size)}

    return [
        derived(
            table,
            partial(with_name, name),
            table.names[:1],
            names=[*table.names, _TABLE],
            roles={**roles, **table.roles},
        )
        for table, name in named
    ]


def _rows_of_two_kinds(table: Table) -> tuple[list[Table], list[Table]]:
    """Return the rows without ends, which are nodes, and those with them, which are edges."""
    _, roles, _ = dialect(table.names, table.names)
    found = {**dict(zip(ENDS[0], ends_of(table.names) or (), strict=False)), **roles}
    ends = [str(found.get(end, "")) for end in ENDS[0]]
    if not all(ends):
        return [table], []

    def filtered(rows: str, arrays: dict[str, Any]) -> dict[str, Any]:
        empty = [pc.equal(as_strings(arrays[end], end, table.where), "") for end in ends]
        is_node = pc.and_(*empty)
        keep = is_node if rows == "nodes" else pc.invert(is_node)
        return {name: values.filter(keep) for name, values in arrays.items()}

    nodes, edges = (
        derived(table, partial(filtered, rows), ends, rows=rows) for rows in ("nodes", "edges")
    )
    is_mixed = any(len(batch[ends[0]]) for batch in nodes.batches(ends[:1]))
    return [nodes] if is_mixed else [], [edges if is_mixed else table]


def _begin_with_marks(nodes: list[Table], edges: list[Table], options: Options) -> bool:
    """Return whether an id begins with a mark of comments in the edges, which is then none."""
    return any("skipped" in table.facts for table in edges) and any(
        pc.any(pc.starts_with(batch[key], mark)).as_py()
        for table in nodes
        for key in [find_id(table, options)]
        for batch in table.batches([key])
        for mark in COMMENTS
    )


def _edges_from(nodes: Sequence[Table], options: Options) -> tuple[str, list[Table]]:
    """Return the column of neighbours, by its name and as its values are ids, and its edges."""
    usual = [options.edges_from] if options.edges_from else USUAL["neighbours"]
    named = [name for one in usual for t in nodes if (name := recognised(t.names, (one,)))]
    if options.edges_from and not named:
        refuse_lacking([Lack(nodes[0], options.edges_from, "--edges-from")])
    keys = [find_id(table, options) if named else "" for table in nodes]
    ids = join([t.read([key])[key] for t, key in zip(nodes, keys, strict=True) if key])
    for column in dict.fromkeys(named):
        with_it = [(t, key) for t, key in zip(nodes, keys, strict=True) if column in t.names]
        edges = [_neighbours(table, column, key, ids) for table, key in with_it]
        if options.edges_from:
            return column, edges
        for batch in (batch for table in edges for batch in table.batches(["target"])):
            whole = pc.replace_substring_regex(batch["target"], r"\.0$", "")  # floats of pandas
            known = [pc.any(pc.is_in(ends, value_set=ids)) for ends in (batch["target"], whole)]
            if any(one.as_py() for one in known):
                return column, edges
    where = ", ".join(table.where for table in nodes)
    no_ids = f", and no id in {listed(dict.fromkeys(named))}" if named else ""
    raise DataError(
        f"{where}: expected a node table and an edge table, found a table of nodes alone{no_ids}; "
        "give the edge table, such as edges.parquet or edges.csv, too, or name a column of "
        "neighbours with --edges-from"
    )


def _neighbours(nodes: Table, column: str, key: str, among: Any) -> Table:
    """Return the edges that a column of a node table names: lists of ids, or ids with separators.

    A value that is an id is one; another is split at semicolons, commas and bars.

    Parameters
    ----------
    key : column of the ids of the nodes
    among : ids of all nodes
    """
    where = nodes.where

    def change(arrays: dict[str, Any]) -> dict[str, Any]:
        ids, lists = as_strings(arrays[key], key, where), arrays[column]
        if pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type):
            parents, texts = pc.list_parent_indices(lists), pc.list_flatten(lists)
        else:
            parents, texts = pa.array(range(len(lists))), lists
        if pa.types.is_struct(texts.type) and (name := id_key(texts.type.names)):
            texts = pc.struct_field(texts, name)
        texts = as_strings(texts, column, where)
        whole = pc.is_in(texts, value_set=among).to_pylist()
        entries = [
            [text] if known else _split(text)
            for text, known in zip(texts.to_pylist(), whole, strict=True)
        ]
        lists = pa.array(entries, pa.list_(pa.large_string()))
        rows = parents.take(pc.list_parent_indices(lists))
        return {"source": ids.take(rows), "target": pc.list_flatten(lists)}

    ends = ENDS[0]
    more: dict[str, Any] = {"names": ends, "rows": "edges", "metadata": {}, "facts": {}}
    return derived(nodes, change, [key, column], roles=dict(zip(ends, ends, strict=True)), **more)


def _split(text: str) -> list[str]:
    if _NUMBERS.fullmatch(text):
        return text[1:-1].split()
    return [part for entry in _SEPARATORS.split(text) if (part := entry.strip(_AROUND))]


def _prefixed(table: Table) -> Table:
    """Return a table with ids prefixed by their space, where Neo4j's header names one."""
    space = id_space(table.names)
    roles = ["id"] if table.rows == "nodes" else ENDS[0]
    prefixes = {space.roles[role]: space.of[role] for role in roles if space.of.get(role)}

    def change(arrays: dict[str, Any]) -> dict[str, Any]:
        for name in prefixes.keys() & arrays.keys():
            ids = as_strings(arrays[name], name, table.where)
            ids = pc.if_else(pc.equal(ids, ""), None, ids)
            prefix, mark = (pa.scalar(text, ids.type) for text in (prefixes[name], ":"))
            arrays[name] = pc.binary_join_element_wise(prefix, ids, mark)
        return arrays

    return derived(table, change)
