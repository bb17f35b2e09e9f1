"""Which column is the id, the text, the label, an end of an edge: named, declared or recognised."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.imports.layouts import ENDS, LAYOUTS, USUAL, layout_of
from dance_flwr.data.imports.options import NO_LABELS, Options
from dance_flwr.errors import ColumnError, meant, near

Roles = dict[str, list[str]]  # role -> its columns; a role without a column is left out
_ENDS = ("source", "target")
# Neptune writes types in the same place as Neo4j.
_TYPED = re.compile(r"(?P<name>[^:]*):(?P<type>[A-Za-z_]+)(\(\w*\))?(\[\])?(\{.*\})?(\(.*\))?")
_TYPES = {
    *("id", "label", "start_id", "end_id", "type", "ignore", "string", "char", "boolean", "bool"),
    *("byte", "short", "int", "long", "float", "double", "date", "datetime", "localdatetime"),
    *("time", "localtime", "duration", "point"),
}


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
        self,
        role: str,
        given: str,
        declared: Mapping[str, str],
        *,
        but: Sequence[str] = (),
        needed: bool = False,
    ) -> str:
        """Return the column that an option names, else the declared one, else a usual one, else "".

        The case and the type of a named column may be omitted.

        Parameters
        ----------
        but : columns that are none of the usual ones
        needed : whether to remember that the column is missing even if no option names it
        """
        if given:
            column = given if given in self.names else recognised(self.names, (plain_name(given),))
        elif role in declared:
            column = declared[role]
        else:
            column = recognised([name for name in self.names if name not in but], USUAL[role])
        if not column and (given or needed):
            self.lacks.append((given or role, f"--{'edge-weight' if role == 'weight' else role}"))
        return column


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


def plain_name(column: str) -> str:
    """Return the name of a column in lower case, without the type of Neo4j or Neptune."""
    typed = _TYPED.fullmatch(column.strip())
    is_typed = typed and typed["type"].lower() in _TYPES and typed["name"]
    return (typed["name"] if typed and is_typed else column).strip().lower()


def recognised(names: Sequence[str], usual: Sequence[str]) -> str:
    """Return the first column with one of these names, one in the same case before the others."""
    for wanted in usual:
        if wanted in names:
            return wanted
        if match := next((name for name in names if plain_name(name) == wanted), ""):
            return match
    return ""


def known_names(options: Options) -> set[str]:
    """Return all names, in lower case, that make a row a header."""
    usual = [name for role in ("id", "text", "label", "weight") for name in USUAL[role]]
    named = (options.id, options.label, options.source, options.target, options.edge_weight)
    ends = [name for pair in ENDS for name in pair]
    given = {name.strip().lower() for name in (*named, *options.text.split(","))}
    return {*usual, *ends, "relation", *given} - {""}


def ends_of(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of the two ends of an edge, if the names are among the usual ones."""
    declared = _neo4j_roles(names)
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
    roles = _neo4j_roles(nodes) | _neo4j_roles(edges)
    if "source" in roles:
        # Both kinds of rows may have an :ID or a :TYPE, and the nodes' :ID is meant.
        return "Neo4j tables", roles | _neo4j_roles(nodes)
    kind, of_tool = layout_of("tables", nodes, edges) or ("tables", {})
    for role, columns in of_tool.items():
        names = nodes if role in ("id", "text", "label") else edges
        if role == "text" and recognised(nodes, USUAL["text"]):
            continue
        if (column := next((c for c in columns if c in names or not c), None)) is not None:
            roles[role] = column
    return kind, roles


def _neo4j_roles(names: Sequence[str]) -> dict[str, str]:
    """Return the roles that headers such as `:START_ID(Note)` declare."""
    roles: dict[str, str] = {}
    for name in names:
        typed = _TYPED.fullmatch(name.strip())
        if typed and typed["type"] in LAYOUTS["neo4j"]:
            roles.setdefault(LAYOUTS["neo4j"][typed["type"]], name)
    return roles


def node_roles(header: Header, declared: Mapping[str, str], options: Options) -> Roles:
    """Return the columns of the nodes: named, else declared, else usual ones."""
    names = header.names
    roles = {"id": [header.find("id", options.id, declared, needed=True)]}
    parts = [options.text] if options.text in names else options.text.split(",")
    texts = [header.find("text", part.strip(), declared, needed=True) for part in parts]
    roles["text"] = texts
    if options.label != NO_LABELS or NO_LABELS in names:
        # A name on the screen that is the text is no class, unless somebody says so.
        roles["label"] = [header.find("label", options.label, declared, but=texts)]
    roles |= {role: [header.find(role, "", declared)] for role in ("split", "site")}
    return {role: columns for role, columns in roles.items() if any(columns)}


def edge_roles(header: Header, declared: Mapping[str, str], options: Options) -> Roles:
    """Return the columns of the edges: named, else declared, else usual ones."""
    # One end of a pair alone, so that the message names the other.
    usual = ends_of(header.names) or [recognised(header.names, (end,)) for end in _ENDS]
    roles: Roles = {}
    for role, name in zip(_ENDS, usual, strict=True):
        end = {role: declared.get(role, "") or name}
        roles[role] = [header.find(role, getattr(options, role), end, needed=True)]
    ends = [*roles["source"], *roles["target"]]
    for role in ("relation", "description", "weight"):
        given = options.edge_weight if role == "weight" else ""
        roles[role] = [header.find(role, given, declared, but=ends)]
    return {role: columns for role, columns in roles.items() if any(columns)}
