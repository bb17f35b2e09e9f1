"""What a reader of a format returns: a table of nodes and a table of edges, nothing decided yet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class Columns(Protocol):
    """A table whose columns are read as strings, in batches.

    Attributes
    ----------
    names : of all columns, in the order of the file
    where : the file, for messages
    """

    names: list[str]
    where: str

    def batches(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield column name -> large_string array, in row order; a missing value is "".

        Raises
        ------
        DataError : a column is missing, or a value is a list or an object
        """
        ...


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
    """

    kind: str
    files: tuple[Path, ...]
    nodes: Columns
    edges: Columns
    roles: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    directed: bool | None = None
