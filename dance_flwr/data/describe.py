"""What a graph looks like: the numbers that `data show` prints and the faults that `data check`
finds.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.catalogue import CATALOGUE
from dance_flwr.data.fetch import check_files, downloads_folder
from dance_flwr.data.folder import file_sha256, read_folder
from dance_flwr.data.graph import SPLIT_NAMES, UNLABELLED, TextGraph, edge_homophily
from dance_flwr.data.imported import read_card

QUANTILES = (0, 25, 50, 75, 100)


@dataclass(frozen=True)
class Description:
    """A graph in numbers.

    Attributes
    ----------
    counts : what is counted -> how many
    homophily : share of edges between two labelled nodes that join the same class; NaN without such
        an edge
    degrees, lengths : quantiles 0, 25, 50, 75, 100 % and, last, the mean of node degrees and
        characters per text
    histogram : class -> nodes
    examples : (id, label, text) of the node of the least, the middle and the greatest text length
    """

    counts: dict[str, int]
    homophily: float
    degrees: list[float]
    lengths: list[float]
    histogram: dict[str, int]
    examples: list[tuple[str, str, str]]


def describe(graph: TextGraph) -> Description:
    """Return the numbers of a graph."""
    degrees = np.diff(graph.indptr)
    lengths = np.array([len(text) for text in graph.texts], np.int64)
    labels = np.bincount(graph.labels[graph.labels >= 0], minlength=len(graph.class_names))
    split = np.bincount(graph.split, minlength=len(SPLIT_NAMES))
    counts = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "edges both ways": len(graph.indices),
        "classes": len(graph.class_names),
        "unlabelled": int((graph.labels == UNLABELLED).sum()),
        "isolated nodes": int((degrees == 0).sum()),
        "empty texts": sum(not text.strip() for text in graph.texts),
        "characters": int(lengths.sum()),
        **{f"{name} nodes": int(split[i]) for i, name in enumerate(SPLIT_NAMES) if name},
    }
    order = np.argsort(lengths, kind="stable")
    chosen = (
        dict.fromkeys([int(order[i]) for i in (0, len(order) // 2, len(order) - 1)])
        if len(order)
        else {}
    )
    names = (*graph.class_names, "")  # -1 picks the last
    return Description(
        counts,
        labelled_homophily(graph),
        _spread(degrees),
        _spread(lengths),
        dict(zip(graph.class_names, labels.tolist(), strict=True)),
        [(str(graph.ids[i]), names[graph.labels[i]], graph.texts[i]) for i in chosen],
    )


def labelled_homophily(graph: TextGraph) -> float:
    """Return the edge homophily among labelled nodes; NaN where no edge joins two of them."""
    kept = graph.subgraph(np.flatnonzero(graph.labels != UNLABELLED), graph.name)
    return edge_homophily(kept) if kept.num_edges else float("nan")


def faults(folder: Path, name: str, root: Path) -> list[str]:
    """Return what is wrong with a stored graph; it is read in full.

    Raises
    ------
    DataError : it cannot be read at all
    """
    graph = read_folder(folder)
    card = read_card(folder)
    found = []
    counts = card.get("counts", {})
    now = {"nodes": graph.num_nodes, "edges": graph.num_edges, "classes": len(graph.class_names)}
    found += [
        f"{k}: the card says {counts[k]}, the tables hold {v}"
        for k, v in now.items()
        if counts.get(k, v) != v
    ]
    found += [
        f"{file}: not as it was stored"
        for file, sha in card.get("tables", {}).items()
        if _differs(folder, file, sha)
    ]
    if name in CATALOGUE and not card:
        found.append(f"{name}: no card.json, so the counts cannot be compared with the paper's")
    found += [
        f"{file}: not the file that was first fetched"
        for file in check_files(downloads_folder(root, name))
    ]
    if not (graph.labels >= 0).any():
        found.append("no node has a label")
    if not any(text.strip() for text in graph.texts):
        found.append("no node has a text")
    return found


def _differs(folder: Path, file: str, sha256: str) -> bool:
    return not (folder / file).is_file() or file_sha256(folder / file) != sha256


def _spread(values: NDArray[np.int64]) -> list[float]:
    if not len(values):
        return [0.0] * (len(QUANTILES) + 1)
    return [*map(float, np.percentile(values, QUANTILES)), float(values.mean())]
