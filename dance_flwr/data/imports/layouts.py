"""How tools name the parts of a graph, from `layouts.toml`, and what a reader of files returns."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.tables import Table

LAYOUTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("layouts.toml").read_text("utf-8"))
USUAL, ENDS = LAYOUTS["usual"], LAYOUTS["usual"]["ends"]
NODE_ROLES = ("id", "text", "label", "split", "site")
# Role -> column, several for the text; "" = there is none.
Roles = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class GraphFile:
    """A graph as its files hold it, before columns are chosen and rules applied.

    Attributes
    ----------
    kind : format and dialect, as in "GraphML of yEd"; printed, and stored in `import.json`
    files : every file that is read
    nodes, edges : the tables of each; what the format declares of their columns is in `Table.roles`
    facts : what was recognised, as in {"encoding": "utf-16", "delimiter": ";"}
    classes : classes that the file declares for its own column of labels, in any order
    directed : whether the format says that edges have a direction; None if it does not say
    by_place : whether the ends of edges are places in the table of nodes, from 0
    left_out : "nodes", "edges", "file" or "files" -> names of what is there and no column shows
    """

    kind: str
    files: tuple[Path, ...]
    nodes: tuple[Table, ...]
    edges: tuple[Table, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    directed: bool | None = None
    by_place: bool = False
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)


def declared(table: Table, roles: Roles) -> Table:
    """Return a table with the roles that fit its rows and name one of its columns.

    A role without a column, "", is kept.
    """
    present = {
        role: column
        for role, column in roles.items()
        if (role in NODE_ROLES) == (table.rows == "nodes")
        and (not isinstance(column, str) or column in ("", *table.names))
    }
    return replace(table, roles={**dict(table.roles), **present})


def layout_of(
    what: str, nodes: Sequence[str], others: Collection[str] = ()
) -> dict[str, Any] | None:
    """Return the layout of the tool that writes these names of nodes, and others.

    Parameters
    ----------
    what : "tables" or "graphml"
    """
    for layout in LAYOUTS[what]:
        begins = list(nodes[: len(layout.get("first", ()))]) == layout.get("first")
        is_marked = begins or {*layout["marks"]} <= {*nodes, *others}
        if is_marked and layout.get("needs") in (None, *nodes):
            return layout  # type: ignore[no-any-return]
    return None
