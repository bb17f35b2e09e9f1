"""Counts of graphs that institutions can add up before they decide to train together."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.errors import UserError

_BINS = 12
_CHARACTERS = 64  # upper end of the first bin of texts


@dataclass(frozen=True)
class GraphStats:
    """Sums over the nodes of one or more folders; nothing of a single node.

    Attributes
    ----------
    folders : how many are summed; nodes, edges : of all
    classes : labelled nodes by class
    degrees : nodes with 0, 1, 2-3, 4-7, .., 1024 and more neighbours; [12]
    characters : nodes whose text has fewer than 64, 64-127, 128-255, .., 65,536 and more
        characters; [12]
    """

    folders: int = 0
    nodes: int = 0
    edges: int = 0
    classes: Mapping[str, int] = field(default_factory=dict)
    degrees: Sequence[int] = (0,) * _BINS
    characters: Sequence[int] = (0,) * _BINS

    @classmethod
    def of(cls, folder: Path) -> "GraphStats":
        """Count the nodes of a graph's or a client's folder."""
        graph = read_folder(folder)
        degrees = np.diff(graph.indptr)
        sizes = np.bincount(graph.labels[graph.labels >= 0], minlength=len(graph.class_names))
        return cls(
            folders=1,
            nodes=graph.num_nodes,
            edges=int(degrees.sum()) // 2,
            classes=dict(zip(graph.class_names, sizes.tolist(), strict=True)),
            degrees=_by_bin(degrees),
            characters=_by_bin(np.array([len(text) for text in graph.texts]) // _CHARACTERS),
        )

    def __add__(self, other: "GraphStats") -> "GraphStats":
        names = dict.fromkeys((*self.classes, *other.classes))
        return GraphStats(
            self.folders + other.folders,
            self.nodes + other.nodes,
            self.edges + other.edges,
            {name: self.classes.get(name, 0) + other.classes.get(name, 0) for name in names},
            [a + b for a, b in zip(self.degrees, other.degrees, strict=True)],
            [a + b for a, b in zip(self.characters, other.characters, strict=True)],
        )

    @property
    def lines(self) -> list[str]:
        """Say what was counted, a line for each."""
        by_class = ", ".join(f"{name} {n:,}" for name, n in self.classes.items())
        return [
            f"folders     {self.folders:,}: {self.nodes:,} nodes, {self.edges:,} edges",
            f"classes     {by_class or 'none'}; {self.nodes - sum(self.classes.values()):,} nodes "
            "without a label",
            f"degrees     {_shown(self.degrees, 1)}",
            f"characters  {_shown(self.characters, _CHARACTERS)}",
        ]


def summed(sources: Iterable[Path]) -> GraphStats:
    """Return the sum over folders, partitions of client folders, and files of such sums.

    Raises
    ------
    UserError : one is none of these
    """
    total = GraphStats()
    for source in sources:
        if source.is_file():
            total += _read(source)
            continue
        for folder in sorted(source.glob("client-*")) or [source]:
            total += GraphStats.of(folder)
    return total


def _read(path: Path) -> GraphStats:
    try:
        stats = GraphStats(**json.loads(path.read_text("utf-8")))
        # A file comes from another institution.
        numbers = [stats.folders, stats.nodes, stats.edges, *stats.classes.values()]
        numbers += [*stats.degrees, *stats.characters]
        if {type(n) for n in numbers} != {int} or min(numbers) < 0:
            raise ValueError("counts that are no whole numbers")
        if (len(stats.degrees), len(stats.characters)) != (_BINS, _BINS):
            raise ValueError("histograms of another length")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: expected counts that `dance-flwr stats --out` wrote, found {error}"
        ) from None
    return stats


def _by_bin(values: NDArray[Any]) -> list[int]:
    """Count 0, 1, 2-3, 4-7, ..; the last bin has no end."""
    bins = [min(int(value).bit_length(), _BINS - 1) for value in values]
    return np.bincount(np.array(bins, np.int64), minlength=_BINS).tolist()  # type: ignore[no-any-return]


def _shown(counts: Sequence[int], unit: int) -> str:
    """Return "from 4: 12" of the bins that have nodes."""
    starts = [0, *(unit << place for place in range(_BINS - 1))]
    known = zip(starts, counts, strict=True)
    return ", ".join(f"from {start:,}: {count:,}" for start, count in known if count) or "no node"
