"""How tools name the parts of a graph, from `layouts.toml`, and what a reader of files returns."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.tables import Table

LAYOUTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("layouts.toml").read_text("utf-8"))
USUAL, ENDS = LAYOUTS["usual"], LAYOUTS["usual"]["ends"]
# Role -> column, several for the text; "" = there is none.
Roles = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class GraphFile:
    """A graph as its files hold it, before columns are chosen and rules applied.

    Attributes
    ----------
    kind : format and dialect, as in "GraphML of yEd"; printed, and stored in `import.json`
    files : every file that is read
    nodes, edges : the tables of each
    roles : what the format declares of their columns; for tables that have the column
    facts : what was recognised, as in {"encoding": "utf-16", "delimiter": ";"}
    classes : classes that the file declares for its own column of labels, in any order
    directed : whether the format says that edges have a direction; None if it does not say
    both_ways : whether the format lists an undirected edge, with its contents, in both directions
    by_place : whether the ends of edges are places in the table of nodes, from 0
    left_out : "nodes", "edges", "file" or "files" -> names of what is there and no column shows
    """

    kind: str
    files: tuple[Path, ...]
    nodes: tuple[Table, ...]
    edges: tuple[Table, ...]
    roles: Roles = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    directed: bool | None = None
    both_ways: bool = False
    by_place: bool = False
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)


def layout_of(what: str, nodes: Sequence[str], others: Sequence[str] = ()) -> dict[str, Any] | None:
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
