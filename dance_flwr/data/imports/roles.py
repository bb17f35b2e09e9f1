"""Which column is the id, the text, the label, an end of an edge: named, declared or recognised."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.layouts import ENDS, LAYOUTS, NODE_ROLES, USUAL, layout_of
from dance_flwr.data.imports.options import NO_LABELS, Options
from dance_flwr.errors import DataError, meant, near

Roles = dict[str, list[str]]  # role -> its columns; a role without a column is left out
_ENDS = ("source", "target")
# Neptune writes types in the same place as Neo4j.
_TYPED = re.compile(
    r"(?P<name>[^:]*):(?P<type>[A-Za-z_]+)(?P<space>\(\w*\))?(\[\])?(\{.*\})?(\(.*\))?"
)
_TYPES = {
    *("id", "label", "start_id", "end_id", "type", "ignore", "string", "char", "boolean", "bool"),
    *("byte", "short", "int", "long", "float", "double", "date", "datetime", "localdatetime"),
    *("time", "localtime", "duration", "point"),
}


class Lack(NamedTuple):
    """A column that was looked for, the option that names it, and the table that lacks it."""

    table: Table
    column: str
    option: str


def find(table: Table, role: str, given: str = "", but: Sequence[str] = ()) -> list[str]:
    """Return the columns of a role: the one that is named, else declared, else a usual one.

    The case and the type of a named column may be omitted.

    Parameters
    ----------
    given : name that an option gives; empty for none
    but : columns that are none of the usual ones
    """
    names = table.names
    if given:
        # Tables of several kinds may have a column of ids each.
        wanted = [given] if given in names or role != "id" else given.split(",")
        column = next((n for n in wanted if n in names), "")
        column = column or recognised(names, [plain_name(name) for name in wanted])
    elif role in table.roles:
        declared = table.roles[role]
        if not isinstance(declared, str):
            return [name for name in declared if name in names]
        column = declared
    else:
        column = recognised([name for name in names if name not in but], USUAL[role])
        if role in ("id", "text") and not column:
            others = USUAL["index" if role == "id" else "name"]
            return [name for name in names if name.strip().lower() in others][:1]
    return [column] if column else []


def find_id(table: Table, options: Options) -> str:
    """Return the column of the ids of a node table.

    Raises
    ------
    DataError : it has none
    """
    if not (columns := find(table, "id", options.id)):
        refuse_lacking([Lack(table, options.id or "id", "--id")])
    return columns[0]


def refuse_lacking(lacks: Sequence[Lack]) -> None:
    """Refuse tables that lack columns, all of them in one line."""
    if not lacks:
        return
    parts, similar, advice = [], [], ""
    for names, group in groupby(lacks, key=lambda lack: lack.table.names):
        of_table = list(group)
        absent = [lack.column for lack in of_table]
        what = "a column or attribute" if len(absent) == 1 else "columns or attributes"
        parts.append(
            f"{of_table[0].table.where}: expected {what} {', '.join(map(repr, absent))}, "
            f"found {listed(names) or 'no column'}"
        )
        similar += [near(name, map(plain_name, names)) for name in absent]
        lacks_ends = "delimiter" in of_table[0].table.facts and {*_ENDS} <= {*absent}
        if lacks_ends or any(name.strip().lstrip("-").isdecimal() for name in names):
            advice = "; if the first row is no header, give --no-header"
    options = list(dict.fromkeys(lack.option for lack in lacks))
    how = f"; name {'it' if len(lacks) == 1 else 'them'} with {', '.join(options)}"
    raise DataError("; ".join(parts) + how + advice + meant(similar))


def plain_name(column: str) -> str:
    """Return the name of a column in lower case, without the type of Neo4j or Neptune."""
    typed = _TYPED.fullmatch(column.strip())
    is_typed = typed and typed["type"].lower() in _TYPES and typed["name"]
    return (typed["name"] if typed and is_typed else column).strip().lower()


def recognised(names: Sequence[str], usual: Sequence[str]) -> str:
    """Return the first column with one of these names.

    One in the same case comes before others; `In-Reply-To` and `parentId` are `in_reply_to` and
    `parent_id`.
    """
    for wanted in usual:
        if wanted in names:
            return wanted
        for form in (plain_name, _joined):
            if match := next((name for name in names if form(name) == form(wanted)), ""):
                return match
    return ""


def _joined(column: str) -> str:
    return re.sub(r"(?<=\w)[-_ ](?=\w)", "", plain_name(column))


def known_names(options: Options) -> set[str]:
    """Return all names, in lower case, that make a row a header."""
    usual = [name for role in ("id", "text", "label", "weight") for name in USUAL[role]]
    named = (options.id, options.label, options.source, options.target, options.edge_weight)
    ends = [name for pair in ENDS for name in pair]
    given = {name.strip().lower() for name in (*named, *options.text.split(","))}
    return {*usual, *ends, "relation", *given} - {""}


def ends_of(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of the two ends of an edge, if the names are among the usual ones."""
    declared = id_space(names).roles
    if "source" in declared and "target" in declared:
        return declared["source"], declared["target"]
    for pair in ENDS:
        source, target = (recognised(names, (end,)) for end in pair)
        if source and target:
            return source, target
    return None


def has_ends(names: Sequence[str], options: Options) -> bool:
    """Return whether a table with these columns is one of edges."""
    ends = (options.source, options.target)
    if all(ends):
        return all(recognised(names, (end, plain_name(end))) for end in ends)
    return ends_of(names) is not None


def dialect(
    nodes: Sequence[str], edges: Sequence[str], files: Sequence[str] = ()
) -> tuple[str, dict[str, str], bool | None]:
    """Return the tool that writes these columns, its roles, and whether its edges are directed.

    What Neo4j's headers declare, `id_space` returns for each table.
    """
    if "source" in id_space(edges).roles:
        return "Neo4j tables", {}, None
    layout = layout_of("tables", nodes, [*edges, *files]) or {"kind": "tables", "roles": {}}
    roles = {}
    for role, columns in layout["roles"].items():
        names = nodes if role in NODE_ROLES else edges
        if role == "text" and recognised(nodes, USUAL["text"]):
            continue
        if (column := next((c for c in columns if c in names or not c), None)) is not None:
            roles[role] = column
    return layout["kind"], roles, layout.get("directed")


class IdSpace(NamedTuple):
    """The roles that headers such as `:START_ID(Note)` declare, and role -> `Note`."""

    roles: dict[str, str]
    of: dict[str, str]


def id_space(names: Sequence[str]) -> IdSpace:
    """Return what the names of a table's columns declare by the rules of Neo4j."""
    found = IdSpace({}, {})
    for name in names:
        typed = _TYPED.fullmatch(name.strip())
        if typed and typed["type"] in LAYOUTS["neo4j"]:
            role = LAYOUTS["neo4j"][typed["type"]]
            if found.roles.setdefault(role, name) == name:
                found.of[role] = (typed["space"] or "").strip("()")
    return found


def node_roles(tables: Sequence[Table], options: Options) -> tuple[list[Roles], list[Lack]]:
    """Return the columns of each table of nodes, and those that are missing.

    Every table needs an id; a text or a column that is named, one of them.
    """
    found = []
    for table in tables:
        roles = {"id": find(table, "id", options.id)}
        parts = [options.text] if options.text in table.names else options.text.split(",")
        roles["text"] = [name for part in parts for name in find(table, "text", part.strip())]
        if options.label != NO_LABELS or NO_LABELS in table.names:
            # A name on the screen that is the text is no class, unless somebody says so.
            roles["label"] = find(table, "label", options.label, roles["text"])
        roles |= {role: find(table, role) for role in ("split", "site")}
        found.append(roles)
    lacks = list(_missing("id", options.id or "id", tables, found, every=True))
    if not options.text or options.text not in {name for t in tables for name in t.names}:
        for part in options.text.split(","):
            with_it = [{"text": find(table, "text", part.strip())} for table in tables]
            lacks += _missing("text", part.strip() or "text", tables, with_it)
    if options.label not in ("", NO_LABELS):
        lacks += _missing("label", options.label, tables, found)
    return _without_empty(found), lacks


def edge_roles(tables: Sequence[Table], options: Options) -> tuple[list[Roles], list[Lack]]:
    """Return the columns of each table of edges, and those that are missing."""
    found = []
    for table in tables:
        # One end of a pair alone, so that the message names the other.
        usual = ends_of(table.names) or [recognised(table.names, (end,)) for end in _ENDS]
        roles: Roles = {}
        for end, name in zip(_ENDS, usual, strict=True):
            given = getattr(options, end)
            declared = [str(table.roles.get(end, "") or name)]
            roles[end] = find(table, end, given) if given else [n for n in declared if n]
        ends = [*roles["source"], *roles["target"]]
        roles |= {role: find(table, role, but=ends) for role in ("relation", "description")}
        roles["weight"] = find(table, "weight", options.edge_weight, ends)
        found.append(roles)
    lacks: list[Lack] = []
    for end in _ENDS:
        lacks += _missing(end, getattr(options, end) or end, tables, found, every=True)
    if options.edge_weight:
        lacks += _missing("weight", options.edge_weight, tables, found)
    return _without_empty(found), lacks


def _missing(
    role: str, name: str, tables: Sequence[Table], found: Sequence[Roles], *, every: bool = False
) -> Iterator[Lack]:
    """Yield the tables without a column of a role; only if none has it, the first."""
    without = [table for table, roles in zip(tables, found, strict=True) if not roles[role]]
    if every or len(without) == len(tables):
        option = f"--{'edge-weight' if role == 'weight' else role}"
        yield from (Lack(table, name, option) for table in without[: None if every else 1])


def _without_empty(found: Sequence[Roles]) -> list[Roles]:
    return [{role: names for role, names in roles.items() if names} for roles in found]
