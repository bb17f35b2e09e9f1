"""Which column is the id, the text, the label, an end of an edge: named, declared or recognised."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.imports.options import NO_LABELS, Options
from dance_flwr.errors import ColumnError, meant, near

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

    def named(self, name: str, option: str) -> str:
        """Return the column that an option names; its case and type may be omitted.

        "" without a name, or with one that the table lacks.
        """
        column = name if name in self.names else _recognised(self.names, (plain_name(name),))
        return column if column or not name else self.lack(name, option)

    def lack(self, name: str, option: str) -> str:
        """Remember what the table lacks, and return ""."""
        self.lacks.append((name, option))
        return ""


def refuse_lacking(*headers: Header) -> None:
    """Refuse tables that lack columns, all of them in one line."""
    lacks = [lack for header in headers for lack in header.lacks]
    if not lacks:
        return
    parts, similar = [], []
    for header in headers:
        if absent := [name for name, _ in header.lacks]:
            what = "a column or attribute" if len(absent) == 1 else "columns or attributes"
            parts.append(
                f"{header.where}: expected {what} {', '.join(map(repr, absent))}, "
                f"found {listed(header.names) or 'no column'}"
            )
            similar += [near(name, map(plain_name, header.names)) for name in absent]
    options = list(dict.fromkeys(option for _, option in lacks))
    how = f"; name {'it' if len(lacks) == 1 else 'them'} with {', '.join(options)}"
    raise ColumnError("; ".join(parts) + how + meant(similar), options[0])


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


def node_roles(header: Header, declared: Mapping[str, str], options: Options) -> NodeRoles:
    """Return the columns of the nodes: named, else declared, else usual ones."""
    names = header.names
    key = header.named(options.id, "--id") or _role(names, declared, "id", IDS)
    if not key and not options.id:
        header.lack("id", "--id")
    texts = _texts(header, options.text)
    texts = texts or tuple(filter(None, [_role(names, declared, "text", TEXTS)]))
    if not texts:
        header.lack("text", "--text")
    label = ""
    if options.label != NO_LABELS or NO_LABELS in names:
        label = header.named(options.label, "--label")
        # A name on the screen that is the text is no class, unless somebody says so.
        others = [name for name in names if name not in texts]
        label = label or _role(others, declared, "label", LABELS)
    split, site = (_role(names, declared, role, (role,)) for role in ("split", "site"))
    return NodeRoles(key, texts, label, split, site)


def edge_roles(header: Header, declared: Mapping[str, str], options: Options) -> EdgeRoles:
    """Return the columns of the edges: named, else declared, else usual ones."""
    names = header.names
    # One end of a pair alone, so that the message names the other.
    usual = ends_of(names) or tuple(_recognised(names, (end,)) for end in ("source", "target"))
    ends = []
    for role, given, name in zip(
        ("source", "target"), (options.source, options.target), usual, strict=True
    ):
        column = header.named(given, f"--{role}") or declared.get(role, "") or name
        if not column and not given:
            header.lack(role, f"--{role}")
        ends.append(column)
    others = [name for name in names if name not in ends]
    weight = header.named(options.edge_weight, "--edge-weight")
    source, target = ends
    return EdgeRoles(
        source,
        target,
        relation=_role(others, declared, "relation", RELATIONS),
        weight=weight or _role(others, declared, "weight", WEIGHTS),
        description=_role(others, declared, "description", DESCRIPTIONS),
    )


def _texts(header: Header, text: str) -> tuple[str, ...]:
    """Return the columns that `--text` names: one, or several separated by commas."""
    if not text:
        return ()
    parts = [text] if text in header.names else text.split(",")
    return tuple(header.named(part.strip(), "--text") for part in parts)


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
