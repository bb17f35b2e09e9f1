"""Which column is the id, the text, the label, an end of an edge: named, declared or recognised."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.imports.layouts import ENDS, NEO4J, USUAL, table_layout
from dance_flwr.data.imports.options import NO_LABELS, Options
from dance_flwr.errors import ColumnError, meant, near

# Neptune writes types in the same place as Neo4j.
_TYPED = re.compile(r"(?P<name>[^:]*):(?P<type>[A-Za-z_]+)(\(\w*\))?(\[\])?(\{.*\})?(\(.*\))?")
_TYPES = {
    *("id", "label", "start_id", "end_id", "type", "ignore", "string", "char", "boolean", "bool"),
    *("byte", "short", "int", "long", "float", "double", "date", "datetime", "localdatetime"),
    *("time", "localtime", "duration", "point"),
}
_OPTIONS = {"weight": "--edge-weight"}


@dataclass(frozen=True)
class Header:
    """The columns of a table.

    Attributes
    ----------
    where : the table, for messages
    lacks : (column, option) of what was looked for and is not among `names`
    """

    names: Sequence[str]
    where: str
    lacks: list[tuple[str, str]] = field(default_factory=list)

    def find(
        self, role: str, given: str, declared: Mapping[str, str], usual: Sequence[str] = ()
    ) -> str:
        """Return the column that an option names, else the declared one, else a usual one.

        The case and the type of a named column may be omitted.
        """
        if given:
            column = given if given in self.names else recognised(self.names, (plain_name(given),))
            if not column:
                self.lacks.append((given, _OPTIONS.get(role, f"--{role}")))
            return column
        return declared[role] if role in declared else recognised(self.names, usual or USUAL[role])

    def need(self, role: str, given: str, column: str) -> str:
        """Return a column after remembering that the table lacks it, if nobody named one."""
        if not column and not given:
            self.lacks.append((role, f"--{role}"))
        return column

    def others(self, columns: Sequence[str]) -> "Header":
        """Return a header without these columns that remembers in the same place."""
        return Header([n for n in self.names if n not in columns], self.where, self.lacks)


def refuse_lacking(*headers: Header) -> None:
    """Refuse tables that lack columns, all of them in one line."""
    lacks = [lack for header in headers for lack in header.lacks]
    if not lacks:
        return
    parts, similar, advice = [], [], ""
    for header in headers:
        if absent := [name for name, _ in header.lacks]:
            what = "a column or attribute" if len(absent) == 1 else "columns or attributes"
            parts.append(
                f"{header.where}: expected {what} {', '.join(map(repr, absent))}, "
                f"found {listed(header.names) or 'no column'}"
            )
            similar += [near(name, map(plain_name, header.names)) for name in absent]
            if any(name.strip().lstrip("-").isdecimal() for name in header.names):
                advice = "; if the first row is no header, give --no-header"
    options = list(dict.fromkeys(option for _, option in lacks))
    how = f"; name {'it' if len(lacks) == 1 else 'them'} with {', '.join(options)}"
    raise ColumnError("; ".join(parts) + how + advice + meant(similar), options[0])


@dataclass(frozen=True)
class NodeRoles:
    """Columns of the nodes; "" where there is none."""

    id: str
    text: tuple[str, ...]
    label: str
    split: str
    site: str


@dataclass(frozen=True)
class EdgeRoles:
    """Columns of the edges; "" where there is none."""

    source: str
    target: str
    relation: str
    weight: str
    description: str


def plain_name(column: str) -> str:
    """Return the name of a column in lower case, without the type of Neo4j or Neptune."""
    typed = _TYPED.fullmatch(column.strip())
    is_typed = typed and typed["type"].lower() in _TYPES and typed["name"]
    return (typed["name"] if typed and is_typed else column).strip().lower()


def known_names(options: Options) -> set[str]:
    """Return all names, in lower case, that make a row a header."""
    usual = [name for role in ("id", "text", "label", "weight") for name in USUAL[role]]
    named = (options.id, options.label, options.source, options.target, options.edge_weight)
    ends = [name for pair in ENDS for name in pair]
    given = {name.strip().lower() for name in (*named, *options.text.split(","))}
    return {*usual, *ends, "relation", *given} - {""}


def ends_of(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of the two ends of an edge, if the names are among the usual ones."""
    declared = neo4j_roles(names)
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


def dialect(nodes: Sequence[str], edges: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the tool that writes tables with these columns, and the roles that it declares."""
    roles = neo4j_roles(nodes) | neo4j_roles(edges)
    if "source" in roles:
        # Both kinds of rows may have an :ID or a :TYPE, and the nodes' :ID is meant.
        return "Neo4j tables", roles | neo4j_roles(nodes)
    layout = table_layout(nodes, edges)
    if layout is None:
        return "tables", {}
    for role, columns in layout.roles.items():
        names = nodes if role in ("id", "text", "label") else edges
        if role == "text" and recognised(nodes, USUAL["text"]):
            continue
        if (column := next((c for c in columns if c in names or not c), None)) is not None:
            roles[role] = column
    return layout.kind, roles


def neo4j_roles(names: Sequence[str]) -> dict[str, str]:
    """Return the roles that headers such as `:START_ID(Note)` declare."""
    roles: dict[str, str] = {}
    for name in names:
        typed = _TYPED.fullmatch(name.strip())
        if typed and typed["type"] in NEO4J:
            roles.setdefault(NEO4J[typed["type"]], name)
    return roles


def node_roles(header: Header, declared: Mapping[str, str], options: Options) -> NodeRoles:
    """Return the columns of the nodes: named, else declared, else usual ones."""
    names = header.names
    key = header.need("id", options.id, header.find("id", options.id, declared))
    parts = [options.text] if options.text in names else options.text.split(",")
    texts = tuple(header.find("text", part.strip(), declared) for part in parts)
    header.need("text", options.text, texts[0])
    label = ""
    if options.label != NO_LABELS or NO_LABELS in names:
        # A name on the screen that is the text is no class, unless somebody says so.
        others = header if options.label else header.others(texts)
        label = others.find("label", options.label, declared)
    split, site = (header.find(role, "", declared) for role in ("split", "site"))
    return NodeRoles(key, tuple(filter(None, texts)), label, split, site)


def edge_roles(header: Header, declared: Mapping[str, str], options: Options) -> EdgeRoles:
    """Return the columns of the edges: named, else declared, else usual ones."""
    # One end of a pair alone, so that the message names the other.
    names = header.names
    usual = ends_of(names) or tuple(recognised(names, (end,)) for end in ("source", "target"))
    ends = []
    for role, given, name in zip(
        ("source", "target"), (options.source, options.target), usual, strict=True
    ):
        column = header.find(role, given, {role: declared.get(role, "") or name})
        ends.append(header.need(role, given, column))
    others = header.others(ends)
    relation, description = (others.find(r, "", declared) for r in ("relation", "description"))
    whole = header if options.edge_weight else others
    weight = whole.find("weight", options.edge_weight, declared)
    return EdgeRoles(ends[0], ends[1], relation, weight, description)


def recognised(names: Sequence[str], usual: Sequence[str]) -> str:
    """Return the first column with one of these names, one in the same case before the others."""
    for wanted in usual:
        if wanted in names:
            return wanted
        match = next((name for name in names if plain_name(name) == wanted), "")
        if match:
            return match
    return ""
