"""From files and folders to tables of nodes and of edges: which is which, and where edges are."""

import re
from collections.abc import Iterator, Sequence
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
from dance_flwr.data.imports.json_graphs import read_json_graph
from dance_flwr.data.imports.layouts import ENDS, LAYOUTS, USUAL, GraphFile, Roles
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.records import (
    fault,
    files_in,
    id_key,
    is_packed,
    opened,
    seekable,
    suffix_of,
)
from dance_flwr.data.imports.roles import (
    declared,
    dialect,
    ends_of,
    find,
    find_id,
    has_ends,
    lacking,
    recognised,
)
from dance_flwr.data.imports.text_tables import COMMENTS, EDGE_LISTS, delimited, json_lines
from dance_flwr.errors import counted

_SUFFIXES = (
    *(".parquet", ".csv", ".jsonl", ".tsv", ".arrow", ".feather", ".ndjson"),
    *EDGE_LISTS,
)
_SHEETS = (".xlsx", ".sqlite", ".sqlite3", ".db")
_TABLE = "table"  # the column with the name of its table, where there are several of a kind
# Between and around the ids of neighbours in one string, and those of an array of NumPy.
_SEPARATORS, _AROUND = re.compile(r"[;,|]|(?<=[>'\"])\s+(?=[<'\"])"), " \t\r\n'\"[]"
_NUMBERS = re.compile(r"\[[\d\s]*\]")


class Piece(NamedTuple):
    """A table that may be one of nodes or of edges."""

    name: str  # of its file or sheet
    file: Path
    hint: str  # "nodes" or "edges" if its name or that of its folder says so, else ""
    table: Table


def is_table(path: Path) -> bool:
    """Return whether the name of a file is that of a table."""
    return path.is_file() and suffix_of(path) in (*_SUFFIXES, *_SHEETS)


def open_table(file: Path, options: Options = DEFAULTS, **more: Any) -> Table:
    """Return the table in a file, by its suffix; `more` as of `delimited`, for text files."""
    suffix = suffix_of(file)
    if suffix == ".parquet":
        return parquet_table(seekable(file), where=str(file))
    if suffix in (".arrow", ".feather"):
        return _arrow_table(file)
    if suffix in (".jsonl", ".ndjson"):
        return json_lines(file, options)
    if suffix == ".json":
        table = read_json_graph(file, options, layouts=())
        assert isinstance(table, Table)
        return table
    return delimited(file, options, **more)


def _arrow_table(file: Path) -> Table:
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
    return Table(str(file), list(schema.names), record_batches, metadata=schema.metadata or {})


def files_of(path: Path) -> tuple[list[tuple[Path, str]], list[str]]:
    """Return the tables in a file or folder with their hints, and the names of other files.

    In a folder, files and folders that are named as nodes and as edges are these, and others are
    left out; without such names all tables are taken. Other folders in it are looked into if there
    is no table outside of them.
    """
    if not path.is_dir():
        return [(path, "")], []
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
    return files, [name for name, file in every.items() if file not in taken]


def _is_near(file: Path, folder: Path) -> bool:
    """Return whether a file is in a folder, or in one in it that is named as nodes or edges."""
    return file.parent == folder or any(map(_hint, file.relative_to(folder).parts[:-1]))


def holds_tables(folder: Path) -> bool:
    """Return whether a folder is one of tables, and not of notes with a table among them."""
    tables, others = files_of(folder)
    tables = [(file, hint) for file, hint in tables if suffix_of(file) != ".txt"]
    names = [Path(name) for name in others]
    is_of_notes = any(name.suffix == ".md" and name.stem.lower() != "readme" for name in names)
    is_graph = {"nodes", "edges"} <= {hint for _, hint in tables}
    is_near = any(_is_near(file, folder) for file, _ in tables)
    return bool(tables) and (is_graph or is_near or not is_of_notes)


def _plain(file: Path) -> str:
    """Return the name of a file, without what GraphRAG put in front before version 1.0."""
    return file.name.removeprefix("create_final_")


def _hint(name: str) -> str:
    """Return "nodes" or "edges" if the name of a file or folder says so, else ""."""
    stem = re.split(r"[.\-_\d]", _plain(Path(name)).lower(), maxsplit=1)[0]
    return next((kind for kind, stems in LAYOUTS["stems"].items() if stem in stems), "")


def pieces_of(files: Sequence[tuple[Path, str]], options: Options) -> list[Piece]:
    """Return the tables in files; a file apart may hold the header of others."""
    pieces: list[Piece] = []
    for file, hint in files:
        if suffix_of(file) in _SHEETS:
            pieces += [Piece(name, file, _hint(name), table) for name, table in sheets(file)]
        else:
            name = file.name.split(".")[0]
            pieces.append(Piece(name, file, hint, open_table(file, options)))
    headers = {
        re.sub(r"[-_]?header$", "", p.name): p.table.names
        for p in pieces
        if p.name.endswith("header")
    }
    pieces = [piece for piece in pieces if not piece.name.endswith("header")]
    for place, piece in enumerate(pieces):
        if names := next((headers[stem] for stem in headers if piece.name.startswith(stem)), []):
            table = open_table(piece.file, options, names=names)
            pieces[place] = piece._replace(table=table)
    return pieces


def read_pieces(
    pieces: Sequence[Piece],
    options: Options,
    left_out: Sequence[str] = (),
    roles: Roles | None = None,
) -> GraphFile:
    """Return the graph of tables of nodes and of edges in any order.

    Without a table of edges, the edges are a column of the nodes, or rows of the same table.

    Parameters
    ----------
    left_out : files that are none of these tables
    roles : of columns, where something other than the tables says so
    """
    kinds = _kinds(pieces, options)
    of_kind: dict[str, list[Piece]] = {"nodes": [], "edges": []}
    for piece, rows in zip(pieces, kinds, strict=True):
        of_kind[rows].append(piece._replace(table=replace(piece.table, rows=rows)))
    if all(suffix_of(piece.file) in _SHEETS for piece in of_kind["nodes"]):
        # Databases and workbooks hold other tables, too, which nobody can leave out.
        with_ids = [p for p in of_kind["nodes"] if find(p.table, "id", options.id)]
        for name, file, _, table in of_kind["nodes"] if with_ids else ():
            if name not in [piece.name for piece in with_ids]:
                size = sum(len(batch) for batch in table.record_batches(table.names[:1]))
                left_out = [*left_out, f"{file.name}: {name}, {counted(size, 'row')} without ids"]
        of_kind["nodes"] = with_ids or of_kind["nodes"]
    if _begin_with_marks(of_kind, options):
        of_kind["edges"] = [
            piece._replace(
                table=replace(open_table(piece.file, options, comments=False), rows="edges")
            )
            for piece in of_kind["edges"]
        ]
    nodes, edges = (_named(of_kind[rows]) for rows in ("nodes", "edges"))
    facts = {
        Path(table.where).name: ", ".join(f"{name} {value}" for name, value in table.facts.items())
        for table in (*nodes, *edges)
        if table.facts
    }
    if len(pieces) == 1 and not options.edges_from:
        nodes, edges = _rows_of_two_kinds([*nodes, *edges][0])
    if not nodes:
        found = "a table of edges alone"
        advice = "give the node table with the texts, too"
        raise fault(edges[0].where, "a node table and an edge table", found, advice)
    of_nodes, of_edges = ([n for table in part for n in table.names] for part in (nodes, edges))
    kind, usual, directed = dialect(of_nodes, of_edges, [_plain(piece.file) for piece in pieces])
    named = {"relation": _TABLE} if _TABLE in of_edges else {}
    roles = {**named, **usual, **(roles or {})}
    if options.edges_from or not edges:
        column, edges_of_column = _edges_from(nodes, options, roles)
        edges, facts["edges from"] = [*edges, *edges_of_column], column
    if len({declared(table.names).get("id", ("", ""))[1] for table in nodes}) > 1:
        nodes, edges = ([_prefixed(table) for table in part] for part in (nodes, edges))
    return GraphFile(
        kind,
        tuple(dict.fromkeys(piece.file for piece in pieces)),
        tuple(nodes),
        tuple(edges),
        roles,
        facts,
        tuple(c for table in nodes for c in declared_classes(table.metadata, table.where)),
        directed,
        left_out={"files": left_out},
    )


def _kinds(pieces: Sequence[Piece], options: Options) -> list[str]:
    """Return "nodes" or "edges" for each table: by its name, else by its columns."""
    found = ["edges" if has_ends(piece.table.names, options) else "nodes" for piece in pieces]
    if len(pieces) == 2 and not any(piece.hint for piece in pieces):
        # In the order in which they are given, unless the columns say otherwise.
        of_parts = pieces[0].table.names == pieces[1].table.names
        if found[0] == found[1] and not options.edges_from and not of_parts:
            return ["nodes", "edges"]
        return found
    return [piece.hint or kind for piece, kind in zip(pieces, found, strict=True)]


def _named(pieces: list[Piece]) -> list[Table]:
    """Return tables of a kind with a column of their names, where these differ."""
    tables = [piece.table for piece in pieces]
    stems = {re.sub(r"[-_.]?\d*$", "", piece.name) for piece in pieces}
    if len(stems) < 2 or any(_TABLE in table.names for table in tables):
        return tables

    def with_name(name: str, arrays: dict[str, Any]) -> dict[str, Any]:
        size = len(next(iter(arrays.values())))
        return {**arrays, _TABLE: pa.repeat(pa.scalar(name, pa.string()), size)}

    return [
        derived(t, partial(with_name, name), t.names[:1], names=[*t.names, _TABLE])
        for name, _, _, t in pieces
    ]


def _rows_of_two_kinds(table: Table) -> tuple[list[Table], list[Table]]:
    """Return the rows without ends, which are nodes, and those with them, which are edges."""
    _, roles, _ = dialect(table.names, table.names)
    usual = zip(ENDS[0], ends_of(table.names), strict=True)
    ends = [roles.get(end, name) for end, name in usual]
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


def _begin_with_marks(of_kind: dict[str, list[Piece]], options: Options) -> bool:
    """Return whether an id begins with a mark of comments in the edges, which is then none."""
    return any("skipped" in piece.table.facts for piece in of_kind["edges"]) and any(
        pc.any(pc.starts_with(batch[key], mark)).as_py()
        for piece in of_kind["nodes"]
        for key in [find_id(piece.table, options)]
        for batch in piece.table.batches([key])
        for mark in COMMENTS
    )


def _edges_from(nodes: Sequence[Table], options: Options, roles: Roles) -> tuple[str, list[Table]]:
    """Return the column of neighbours, by its name and as its values are ids, and its edges."""
    usual = [options.edges_from] if options.edges_from else USUAL["neighbours"]
    named = [name for one in usual for t in nodes if (name := recognised(t.names, (one,)))]
    if options.edges_from and not named:
        raise lacking([(nodes[0], options.edges_from, "--edges-from")])
    keys = [find_id(table, options, roles) if named else "" for table in nodes]
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
    advice = (
        "give the edge table, such as edges.parquet or edges.csv, too, or name a column of "
        "neighbours with --edges-from"
    )
    found = f"a table of nodes alone{no_ids}"
    raise fault(where, "a node table and an edge table", found, advice)


def _neighbours(nodes: Table, column: str, key: str, among: Any) -> Table:
    """Return the edges that a column of a node table names: lists of ids, or ids with separators.

    A value that is an id is one; another is split at semicolons, commas and bars.

    Parameters
    ----------
    key : column of the ids of the nodes
    among : ids of all nodes
    """
    where, ends = nodes.where, ENDS[0]

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
        return dict(zip(ends, (ids.take(rows), pc.list_flatten(lists)), strict=True))

    more: dict[str, Any] = {"rows": "edges", "metadata": {}, "facts": {}}
    return derived(nodes, change, [key, column], names=ends, **more)


def _split(text: str) -> list[str]:
    if _NUMBERS.fullmatch(text):
        return text[1:-1].split()
    return [part for entry in _SEPARATORS.split(text) if (part := entry.strip(_AROUND))]


def _prefixed(table: Table) -> Table:
    """Return a table with ids prefixed by their space, where Neo4j's header names one."""
    ends = ["id"] if table.rows == "nodes" else ENDS[0]
    found = {role: of for role, of in declared(table.names).items() if role in ends}
    prefixes = {column: space for column, space in found.values() if space}

    def change(arrays: dict[str, Any]) -> dict[str, Any]:
        for name in prefixes.keys() & arrays.keys():
            ids = as_strings(arrays[name], name, table.where)
            ids = pc.if_else(pc.equal(ids, ""), None, ids)
            prefix, mark = (pa.scalar(text, ids.type) for text in (prefixes[name], ":"))
            arrays[name] = pc.binary_join_element_wise(prefix, ids, mark)
        return arrays

    return derived(table, change)
