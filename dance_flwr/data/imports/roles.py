"""Which column is the id, the text, the label, an end of an edge: named, declared or recognised."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.imports.options import NO_LABELS, Options
from dance_flwr.errors import ColumnError

# Names by which a column is recognised, in lower case and without the type after a colon.
# Why (decision 28): short lists, since a column that is taken for another changes the graph.
IDS = ("id", "~id", "node_id", "nodeid")
TEXTS = ("text", "texts", "raw_text", "raw_texts", "content", "description")
LABELS = ("label", "class", "category")
ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("~from", "~to"),
    ("head", "tail"),
    ("subject", "object"),
    ("u", "v"),
)
RELATIONS = ("relation", "relationship", "relation_type", "predicate", "type", "label", "~label")
WEIGHTS = ("weight",)
DESCRIPTIONS = ("description", "text")
# Neo4j's header for import: `name:type`, `id:ID(Space)`, `:START_ID(Space)`; Neptune writes types
# in the same place.
_TYPED = re.compile(r"(?P<name>[^:]*):(?P<type>[A-Za-z_]+)(\(\w*\))?(\[\])?(\{.*\})?(\(.*\))?")
_NEO4J = {"ID": "id", "LABEL": "label", "START_ID": "source", "END_ID": "target"}
_NEO4J |= {"TYPE": "relation"}
_TYPES = {
    *("id", "label", "start_id", "end_id", "type", "ignore", "string", "char", "boolean", "bool"),
    *("byte", "short", "int", "long", "float", "double", "date", "datetime", "localdatetime"),
    *("time", "localtime", "duration", "point"),
}


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


def known_names() -> set[str]:
    """Return all names, in lower case, that make a row a header."""
    ends = [name for pair in ENDS for name in pair]
    return {*IDS, *TEXTS, *LABELS, *ends, *WEIGHTS, "relation"}


def ends_of(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of the two ends of an edge, if the names are among the usual ones."""
    declared = neo4j_roles(names)
    if "source" in declared and "target" in declared:
        return declared["source"], declared["target"]
    for pair in ENDS:
        source, target = (_recognised(names, (end,)) for end in pair)
        if source and target:
            return source, target
    return None


def has_ends(names: Sequence[str], options: Options) -> bool:
    """Return whether a table with these columns is one of edges."""
    ends = (options.source, options.target)
    if all(ends):
        return all(_recognised(names, (end, plain_name(end))) for end in ends)
    return ends_of(names) is not None


def dialect(nodes: Sequence[str], edges: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the tool that writes tables with these columns, and the roles that it declares.

    A role whose column is "" is one that the tool's tables do not have.
    """
    roles = neo4j_roles(nodes) | neo4j_roles(edges)
    if "source" in roles:
        # Both kinds of rows may have an :ID or a :TYPE, and the nodes' :ID is meant.
        return "Neo4j tables", roles | neo4j_roles(nodes)
    if "~id" in nodes and "~from" in edges:
        roles = {"id": "~id", "source": "~from", "target": "~to"}
        roles |= {"label": "~label"} if "~label" in nodes else {}
        return "Neptune tables", roles | ({"relation": "~label"} if "~label" in edges else {})
    is_gephi = list(nodes[:2]) == ["Id", "Label"] or {"Source", "Target", "Type"} <= {*edges}
    if is_gephi and "Id" in nodes:
        # Why (decision 28): Gephi draws `Label` beside a node, so it is no class. `Type` of an edge
        # says whether it is directed.
        roles = {"label": "", "relation": "Label" if "Label" in edges else ""}
        has_text = _recognised(nodes, TEXTS)
        return "Gephi tables", roles | (
            {} if has_text or "Label" not in nodes else {"text": "Label"}
        )
    return "tables", {}


def neo4j_roles(names: Sequence[str]) -> dict[str, str]:
    """Return the roles that headers such as `:START_ID(Note)` declare."""
    roles: dict[str, str] = {}
    for name in names:
        typed = _TYPED.fullmatch(name.strip())
        if typed and typed["type"] in _NEO4J:
            roles.setdefault(_NEO4J[typed["type"]], name)
    return roles


def node_roles(
    names: Sequence[str], declared: Mapping[str, str], options: Options, where: str
) -> NodeRoles:
    """Return the columns of the nodes: named, else declared, else usual ones."""
    key = _named(names, options.id, "--id", where) or _role(names, declared, "id", IDS)
    if not key:
        raise _missing("id", "--id", names, where)
    texts = _texts(names, options.text, where)
    texts = texts or tuple(filter(None, [_role(names, declared, "text", TEXTS)]))
    if not texts:
        raise _missing("text", "--text", names, where)
    label = ""
    if options.label != NO_LABELS or NO_LABELS in names:
        label = _named(names, options.label, "--label", where)
        # A name on the screen that is the text is no class, unless somebody says so.
        others = [name for name in names if name not in texts]
        label = label or _role(others, declared, "label", LABELS)
    split, site = (_role(names, declared, role, (role,)) for role in ("split", "site"))
    return NodeRoles(key, texts, label, split, site)


def edge_roles(
    names: Sequence[str], declared: Mapping[str, str], options: Options, where: str
) -> EdgeRoles:
    """Return the columns of the edges: named, else declared, else usual ones."""
    # One end of a pair alone, so that the message names the other.
    usual = ends_of(names) or tuple(_recognised(names, (end,)) for end in ("source", "target"))
    ends = []
    for role, given, name in zip(
        ("source", "target"), (options.source, options.target), usual, strict=True
    ):
        column = _named(names, given, f"--{role}", where) or declared.get(role, "") or name
        if not column:
            raise _missing(role, f"--{role}", names, where)
        ends.append(column)
    others = [name for name in names if name not in ends]
    weight = _named(names, options.edge_weight, "--edge-weight", where)
    source, target = ends
    return EdgeRoles(
        source,
        target,
        relation=_role(others, declared, "relation", RELATIONS),
        weight=weight or _role(others, declared, "weight", WEIGHTS),
        description=_role(others, declared, "description", DESCRIPTIONS),
    )


def _texts(names: Sequence[str], text: str, where: str) -> tuple[str, ...]:
    """Return the columns that `--text` names: one, or several separated by commas."""
    if not text:
        return ()
    parts = [text] if text in names else text.split(",")
    return tuple(_named(names, part.strip(), "--text", where) for part in parts)


def _named(names: Sequence[str], name: str, option: str, where: str) -> str:
    """Return the column that an option names, "" without one; its case and type may be omitted."""
    if not name:
        return ""
    column = name if name in names else _recognised(names, (plain_name(name),))
    if not column:
        raise _missing(name, option, names, where)
    return column


def _role(
    names: Sequence[str], declared: Mapping[str, str], role: str, usual: tuple[str, ...]
) -> str:
    return declared[role] if role in declared else _recognised(names, usual)


def _recognised(names: Sequence[str], usual: Sequence[str]) -> str:
    """Return the first column with one of these names, one in the same case before the others."""
    for wanted in usual:
        if wanted in names:
            return wanted
        match = next((name for name in names if plain_name(name) == wanted), "")
        if match:
            return match
    return ""


def _missing(name: str, option: str, names: Sequence[str], where: str) -> ColumnError:
    columns = listed(names) or "no column"
    return ColumnError(f"{where}: expected a column or attribute {name!r}, found {columns}", option)
