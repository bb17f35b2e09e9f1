"""How tools name the parts of a graph: one table of layouts, and what a reader of files returns."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dance_flwr.data.graphs.tables import Table

# Names by which a column is recognised, in lower case and without the type after a colon.
# Why (decision 28): short lists, since a column that is taken for another changes the graph.
USUAL: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "~id", "node_id", "nodeid"),
    "text": ("text", "texts", "raw_text", "raw_texts", "content", "description"),
    "label": ("label", "class", "category"),
    "split": ("split",),
    "site": ("site",),
    "relation": (
        *("relation", "relationship", "relation_type", "predicate", "type", "label", "~label"),
    ),
    "weight": ("weight",),
    "description": ("description", "text"),
}
ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("~from", "~to"),
    ("head", "tail"),
    ("subject", "object"),
    ("u", "v"),
)
# Columns of a node table that name the neighbours of a node, where no table of edges is given.
NEIGHBOURS = (
    *("neighbors", "neighbours", "edges", "references", "referenced_works", "citations", "links"),
    *("parent_id", "in_reply_to"),
)
# Neo4j's header for import: `name:type`, `id:ID(Space)`, `:START_ID(Space)`.
NEO4J = {"ID": "id", "LABEL": "label", "START_ID": "source", "END_ID": "target", "TYPE": "relation"}


@dataclass(frozen=True)
class Layout:
    """The columns of one tool, and the names by which it is recognised.

    Attributes
    ----------
    kind : printed, and stored in `import.json`
    marks : sets of names, of which one is wholly there
    roles : role -> column; of several the first that is there; "" = the tool has no such column
    first : names with which the node table begins, as a further mark
    needs : a name that the node table must have
    """

    kind: str
    marks: tuple[frozenset[str], ...]
    roles: Mapping[str, tuple[str, ...]]
    first: tuple[str, ...] = ()
    needs: str = ""

    def fits(self, nodes: Sequence[str], others: Collection[str] = ()) -> bool:
        """Return whether the tool writes these columns of nodes, and others."""
        is_marked = any(marks <= {*nodes, *others} for marks in self.marks)
        begins = bool(self.first) and tuple(nodes[: len(self.first)]) == self.first
        return (is_marked or begins) and (not self.needs or self.needs in nodes)


def _marks(*sets: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(names.split()) for names in sets)


TABLES = (
    Layout(
        "Neptune tables",
        _marks("~id ~from"),
        {
            **{"id": ("~id",), "label": ("~label",), "source": ("~from",), "target": ("~to",)},
            "relation": ("~label",),
        },
        needs="~id",
    ),
    # Why (decision 28): Gephi draws `Label` beside a node, so it is no class. `Type` of an edge
    # says whether it is directed.
    Layout(
        "Gephi tables",
        _marks("Source Target Type"),
        {"label": ("",), "relation": ("Label", ""), "text": ("Label",)},
        first=("Id", "Label"),
        needs="Id",
    ),
)
GRAPHML = (
    # "@" is the label that yEd draws.
    Layout("GraphML of yEd", _marks("@"), {"text": ("@",), "relation": ("@",)}),
    Layout(
        "GraphML of TinkerPop",
        _marks("labelV", "labelE"),
        {"label": ("labelV",), "relation": ("labelE",)},
    ),
    Layout(
        "GraphML of LightRAG",
        _marks("entity_type description source_id"),
        {"text": ("description",), "relation": ("keywords",), "description": ("description",)},
    ),
    Layout(
        "GraphML of Gephi",
        _marks("edgelabel", "edgeid"),
        {"text": ("label",), "relation": ("Edge Label",)},
    ),
)
# Keys of the lists of nodes and of edges in JSON.
JSON_LISTS = (("nodes", "links"), ("nodes", "edges"), ("nodes", "rels"), ("nodes", "relationships"))
# Parts of a saved data set, and the split that each is.
SAVED_SPLITS = {"train": "train", "test": "test"}
SAVED_SPLITS |= dict.fromkeys(("validation", "valid", "val", "dev"), "val")
# Keys of a PyG `Data`.
TEXT_KEYS = ("raw_texts", "raw_text", "texts", "text")
LABEL_NAME_KEYS = ("label_name", "label_names", "class_names")
# Files and columns of GraphRAG, since version 1.0 and before. The type of an entity is no label
# before the user asks for it, as models also make up types.
GRAPHRAG_FILES = ("{}.parquet", "create_final_{}.parquet")
GRAPHRAG_FOLDERS = ("", "output", "artifacts", "output/artifacts")
GRAPHRAG = {"source": "source", "target": "target", "text": "description"}
GRAPHRAG |= {"description": "description", "weight": "weight"}


@dataclass(frozen=True)
class GraphFile:
    """A graph as its files hold it, before columns are chosen and rules applied.

    Attributes
    ----------
    kind : format and dialect, as in "GraphML of yEd"; printed, and stored in `import.json`
    files : every file that is read
    nodes, edges : the two tables
    roles : column that the format itself declares for a role: `id`, `text`, `label`, `split`,
        `site`, `source`, `target`, `relation`, `weight`, `description`; "" = the format has none
    facts : what was recognised, as in {"encoding": "utf-16", "delimiter": ";"}
    classes : classes that the file declares for its own column of labels, in any order
    directed : whether the format says that edges have a direction; None if it does not say
    by_place : whether the ends of edges are places in the table of nodes, from 0
    left_out : "nodes" or "edges" -> names of what the file holds and no column shows
    """

    kind: str
    files: tuple[Path, ...]
    nodes: Table
    edges: Table
    roles: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    directed: bool | None = None
    by_place: bool = False
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)


def graphml_layout(names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the kind of a GraphML file and its columns of roles.

    Parameters
    ----------
    names : keys and attributes, and "@" if the file holds a drawing of yEd
    """
    layout = next((layout for layout in GRAPHML if layout.fits(names)), None)
    if layout is None:
        return "GraphML", {"weight": "weight"}
    return layout.kind, {"weight": "weight"} | {
        r: column for r, (column, *_) in layout.roles.items()
    }
