"""What `data show` prints of a graph, and compares of a stored one."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.catalogue import CATALOGUE, downloads_folder, imported_graphs
from dance_flwr.data.graphs.graph import SPLIT_NAMES, UNLABELLED, TextGraph, edge_homophily
from dance_flwr.data.imports.fetch import check_files
from dance_flwr.data.imports.importer import read_report
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import file_sha256

QUANTILES = (0, 25, 50, 75, 100)


@dataclass(frozen=True)
class Description:
    """Statistics of a graph.

    Attributes
    ----------
    counts : name of a count -> its value
    homophily : share of edges between two labelled nodes that connect the same class; NaN without
        such an edge
    degrees, lengths : 0, 25, 50, 75 and 100 % quantiles, then the mean, of node degrees and of
        characters per text
    histogram : class -> number of nodes
    examples : (id, label, text) of the nodes with the shortest, the median and the longest text
    """

    counts: dict[str, int]
    homophily: float
    degrees: list[float]
    lengths: list[float]
    histogram: dict[str, int]
    examples: list[tuple[str, str, str]]


def describe(graph: TextGraph) -> Description:
    """Return the statistics of a graph."""
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
    # Stable: the examples of a graph are the same on every machine.
    order = np.argsort(lengths, kind="stable")
    # In a graph of one or two nodes some of the three are the same.
    chosen = dict.fromkeys(order[[0, len(order) // 2, -1]].tolist())
    names = (*graph.class_names, "")  # UNLABELLED = -1 selects the last entry
    labelled = graph.subgraph(np.flatnonzero(graph.labels != UNLABELLED), graph.name)
    return Description(
        counts,
        edge_homophily(labelled) if labelled.num_edges else float("nan"),
        _spread(degrees),
        _spread(lengths),
        dict(zip(graph.class_names, labels.tolist(), strict=True)),
        [(str(graph.ids[i]), names[graph.labels[i]], graph.texts[i]) for i in chosen],
    )


def check_stored(graph: TextGraph, name: str, root: Path) -> None:
    """Compare a graph with what is recorded of it; nothing is of a folder or a built-in graph.

    Raises
    ------
    DataError : the graph is not as it was stored
    """
    if (folder := imported_graphs(root).get(name)) is None:
        return
    report = read_report(folder)
    counts = report.get("counts", {})
    actual = {"nodes": graph.num_nodes, "edges": graph.num_edges, "classes": len(graph.class_names)}
    faults = [
        f"the report says {counts[what]} {what}, the tables hold {value}"
        for what, value in actual.items()
        if counts.get(what, value) != value
    ]
    faults += [
        f"{file}: not as it was stored"
        for file, sha256 in report.get("tables", {}).items()
        if not (folder / file).is_file() or file_sha256(folder / file) != sha256
    ]
    # Without a report the graph was not imported, so its counts were never compared.
    if name in CATALOGUE and not report:
        faults.append("no import.json, so the counts cannot be compared with the paper's")
    fetched = check_files(downloads_folder(root, name))
    faults += [f"{file}: not the file that was first fetched" for file in fetched]
    if faults:
        advice = f"remove {folder} and fetch or import it again"
        raise DataError(f"{name}: {'; '.join(faults)}; {advice}")
    if name in CATALOGUE:
        CATALOGUE[name].check(counts)


def _spread(values: NDArray[np.int64]) -> list[float]:
    return [*map(float, np.percentile(values, QUANTILES)), float(values.mean())]
