"""The evidence of a node over the rounds, where a run keeps the packs of several."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dance_flwr.evidence.pack import Packs
from dance_flwr.pages.drawing import Bar, bars


@dataclass(frozen=True)
class Appearance:
    """A pack of a node in one round.

    Attributes
    ----------
    round : of the pack; predicted, confidence : of its last stage
    neighbours, chunks : how many it selected, the node itself not counted
    kept : share of its weight that lies on chunks which the pack on the page selects too
    """

    round: int
    predicted: int
    confidence: float
    neighbours: int
    chunks: int
    kept: float


def appearances(files: Iterable[Path], packs: Packs) -> Mapping[int, Sequence[Appearance]]:
    """Return the packs of the same nodes in other rounds, by node, in the order of the files."""
    now = {
        int(node): packs.chunks[packs.chunk_ptr[row] : packs.chunk_ptr[row + 1]]
        for row, node in enumerate(packs.nodes)
    }
    found: dict[int, list[Appearance]] = {}
    for path in files:
        then = Packs.load(path)
        for row in np.flatnonzero(np.isin(then.nodes, packs.nodes)):
            node = int(then.nodes[row])
            own = slice(then.chunk_ptr[row], then.chunk_ptr[row + 1])
            near = slice(then.neighbour_ptr[row], then.neighbour_ptr[row + 1])
            weights = then.chunk_weights[own]
            same = np.isin(then.chunks[own], now[node])
            total = float(weights.sum())
            found.setdefault(node, []).append(
                Appearance(
                    round=then.round,
                    predicted=int(then.predicted[row]),
                    confidence=float(then.confidence[row]),
                    neighbours=int((then.neighbour_hops[near] > 0).sum()),
                    chunks=len(weights),
                    kept=float(weights[same].sum()) / total if total else 0.0,
                )
            )
    return found


def over_rounds(found: Sequence[Appearance], names: Sequence[str]) -> dict[str, Any] | None:
    """Return bars and table of a node's packs by round; None = no round kept one.

    Parameters
    ----------
    names : of the classes, safe to print
    """
    if not found:
        return None
    title = "Share of each round's evidence that the pack on this page selects too"
    drawn = [
        Bar(
            f"round {a.round}: {names[a.predicted]}",
            a.kept,
            f"{a.kept:.2f}, predicted with {a.confidence:.3f}",
            "round",
        )
        for a in found
    ]
    rows = [
        [
            *(str(a.round), names[a.predicted], f"{a.confidence:.4f}"),
            *(str(a.neighbours), str(a.chunks), f"{a.kept:.3f}"),
        ]
        for a in found
    ]
    return {
        "drawing": bars(f"{title}; the table below has the numbers", drawn, 1.0),
        "caption": title,
        "head": ["round", "predicted", "probability", "neighbours", "chunks", "same evidence"],
        "rows": rows,
    }
