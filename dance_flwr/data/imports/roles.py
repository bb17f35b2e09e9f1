"""Which column is the id, the text, the label, an end of an edge: named, declared or recognised."""

import re
from collections.abc import Sequence
from itertools import groupby

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.layouts import ENDS, LAYOUTS, USUAL, GraphFile, Roles, layout_of
from dance_flwr.data.imports.options import NO_LABELS, Options
from dance_flwr.errors import DataError, meant, near

Chosen = dict[str, list[str]]  # role -> its columns; a role without a column is left out
Lack = tuple[Table, str, str]  # a table, the column that it lacks, and the option that names it
_NO_ROLES: Roles = {}
# Neptune writes types in the same place as Neo4j.
_TYPED = re.compile(
    r"(?P<name>[^:]*):(?P<type>[A-Za-z_]+)(?P<space>\(\w*\))?(\[\])?(\{.*\})?(\(.*\))?"
)
_TYPES = {
    *("id", "label", "start_id", "end_id", "type", "ignore", "string", "char", "boolean", "bool"),
    *("byte", "short", "int", "long", "float", "double", "date", "datetime", "localdatetime"),
    *("time", "localtime", "duration", "point"),
}


def declared(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return role -> column and space, as `:START_ID(Note)` declares them by the rules of Neo4j."""
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        typed = _TYPED.fullmatch(name.strip())
        if typed and typed["type"] in LAYOUTS["neo4j"]:
            space = (typed["space"] or "").strip("()")
            found.setdefault(LAYOUTS["neo4j"][typed["type"]], (name, space))
    return found


def plain_name(column: str) -> str:
    """Return the name of a column in lower case, without the type of Neo4j or Neptune."""
    typed = _TYPED.fullmatch(column.strip())
    is_typed = typed and typed["type"].lower() in _TYPES and typed["name"]
    return (typed["name"] if typed and is_typed else column).strip().lower()


def _joined(column: str) -> str:
    return re.sub(r"(?<=\w)[-_ ](?=\w)", "", plain_name(column))


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


def ends_of(names: Sequence[str]) -> Sequence[str]:
    """Return the columns of the two ends of an edge; of one end alone, the other is ""."""
    header = declared(names)
    usual = ([recognised(names, (end,)) for end in pair] for pair in ENDS)
    pairs = [[header.get(end, ("", ""))[0] for end in ENDS[0]], *usual]
    return next(filter(all, pairs), pairs[1])


def has_ends(names: Sequence[str], options: Options) -> bool:
    """Return whether a table with these columns is one of edges."""
    ends = (options.source, options.target)
    if all(ends):
        return all(recognised(names, (end, plain_name(end))) for end in ends)
    return all(ends_of(names))


def known_names(options: Options) -> set[str]:
    """Return all names, in lower case, that make a row a header."""
    usual = [name for role in ("id", "text", "name", "label", "weight") for name in USUAL[role]]
    named = (options.id, options.label, options.source, options.target, options.edge_weight)
    ends = [name for pair in ENDS for name in pair]
    given = {name.strip().lower() for name in (*named, *options.text.split(","))}
    return {*usual, *ends, "relation", *given} - {""}


def find(
    table: Table,
    role: str,
    given: str = "",
    roles: Roles = _NO_ROLES,
    but: Sequence[str] = (),
) -> list[str]:
    """Return the columns of a role: the one that is named, else declared, else a usual one.

    The case and the type of a named column may be omitted.

    Parameters
    ----------
    given : name that an option gives; empty for none
    roles : of the file; what the table's header declares comes before
    but : columns that are none of the usual ones
    """
    names, header, of_file = table.names, declared(table.names), roles.get(role)
    if given:
        # Tables of several kinds may have a column of ids each.
        wanted = [given] if given in names or role != "id" else given.split(",")
        column = next((n for n in wanted if n in names), "")
        column = column or recognised(names, [plain_name(name) for name in wanted])
    elif role in header:
        column = header[role][0]
    elif of_file is not None and not isinstance(of_file, str):
        return [name for name in of_file if name in names]
    elif of_file is not None and of_file in ("", *names):
        column = of_file
    elif role in ENDS[0]:
        column = ends_of(names)[ENDS[0].index(role)]
    else:
        column = recognised([name for name in names if name not in but], USUAL.get(role, (role,)))
        if role in ("id", "text") and not column:
            others = USUAL["index" if role == "id" else "name"]
            return [name for name in names if name.strip().lower() in others][:1]
    return [column] if column else []


def find_id(table: Table, options: Options, roles: Roles = _NO_ROLES) -> str:
    """Return the column of the ids of a node table.

    Raises
    ------
    DataError : it has none
    """
    if not (columns := find(table, "id", options.id, roles)):
        raise lacking([(table, options.id or "id", "--id")])
    return columns[0]


def choose(file: GraphFile, options: Options) -> tuple[list[Chosen], list[Chosen]]:
    """Return the columns of each table of nodes, and of each of edges.

    Raises
    ------
    DataError : a table lacks its ids or ends, or none of a kind has the texts or a named column
    """
    found: dict[str, list[Chosen]] = {
        "nodes": [{} for _ in file.nodes],
        "edges": [{} for _ in file.edges],
    }
    lacks: list[Lack] = []

    def fill(
        rows: str, role: str, given: str = "", *, needed: str = "", but: Sequence[str] = ()
    ) -> None:
        """Find the columns of a role, which every table needs, or any, or none."""
        tables = file.nodes if rows == "nodes" else file.edges
        without: list[Lack] = []
        for table, of in zip(tables, found[rows], strict=True):
            taken = [name for other in but for name in of.get(other, ())]
            if names := find(table, role, given, file.roles, taken):
                of[role] = of.get(role, []) + names
            else:
                option = "edge-weight" if role == "weight" else role
                without.append((table, given or role, f"--{option}"))
        if needed == "every":
            lacks.extend(without)
        elif needed == "any" and len(without) == len(tables):
            lacks.extend(without[:1])

    columns = {name for table in file.nodes for name in table.names}
    fill("nodes", "id", options.id, needed="every")
    for part in [options.text] if options.text in columns else options.text.split(","):
        fill("nodes", "text", part.strip(), needed="any")
    if options.label != NO_LABELS or NO_LABELS in columns:
        # A name on the screen that is the text is no class, unless somebody says so.
        fill("nodes", "label", options.label, needed="any" * bool(options.label), but=["text"])
    for role in ("split", *TextGraph.columns(plain=True)):
        fill("nodes", role)
    for end in ENDS[0]:
        fill("edges", end, getattr(options, end), needed="every")
    for role in ("relation", "description"):
        fill("edges", role, but=ENDS[0])
    weight = options.edge_weight
    fill("edges", "weight", weight, needed="any" * bool(weight), but=ENDS[0])
    if lacks:
        raise lacking(lacks)
    return found["nodes"], found["edges"]


def lacking(lacks: Sequence[Lack]) -> DataError:
    """Return the error for tables that lack columns, all of them in one line."""
    parts, similar, advice = [], [], ""
    for names, group in groupby(lacks, key=lambda lack: lack[0].names):
        (table, *_), *_ = of_table = list(group)
        absent = [column for _, column, _ in of_table]
        what = "a column or attribute" if len(absent) == 1 else "columns or attributes"
        parts.append(
            f"{table.where}: expected {what} {', '.join(map(repr, absent))}, "
            f"found {listed(names) or 'no column'}"
        )
        # `paper_id` and `paperId` are far from `id` by letters.
        words = {name: re.split(r"[\W_]+|(?<=[a-z\d])(?=[A-Z])", name) for name in names}
        ends = (
            next((name for name in names if words[name][-1].lower() == end), "") for end in absent
        )
        plain = [plain_name(name) for name in names]
        similar += [near(end, plain) or name for end, name in zip(absent, ends, strict=True)]
        lacks_all = "id" in absent or {*ENDS[0]} <= {*absent}
        may_lack = "delimiter" in table.facts and table.facts.get("header") != "none"
        if may_lack and (lacks_all or any(n.strip().lstrip("-").isdecimal() for n in names)):
            advice = "; if the first row is no header, give --no-header"
    options = ", ".join(dict.fromkeys(option for *_, option in lacks))
    how = f"; name {'it' if len(lacks) == 1 else 'them'} with {options} of `dance-flwr data import`"
    return DataError("; ".join(parts) + how + advice + meant(similar))


def dialect(
    nodes: Sequence[str], edges: Sequence[str], files: Sequence[str] = ()
) -> tuple[str, dict[str, str], bool | None]:
    """Return the tool that writes these columns, its roles, and whether its edges are directed."""
    if "source" in declared(edges):
        return "Neo4j tables", {}, None
    layout = layout_of("tables", nodes, [*edges, *files]) or {"kind": "tables", "roles": {}}
    roles = {}
    for role, columns in layout["roles"].items():
        names = nodes if role in TextGraph.columns() else edges
        if role == "text" and recognised(nodes, USUAL["text"]):
            continue
        if (column := next((c for c in columns if c in names or not c), None)) is not None:
            roles[role] = column
    return layout["kind"], roles, layout.get("directed")
