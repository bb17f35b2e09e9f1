"""Figures of a partition: edges kept, modularity and label skew."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import UNLABELLED, TextGraph
from dance_flwr.data.partition.spec import OUTSIDE, Partition


def report(graph: TextGraph, partition: Partition) -> dict[str, Any]:
    """Return the figures of a partition as a JSON object.

    Every figure is computed from integers with a single division, so it is the same on every
    machine.

    Returns
    -------
    kept_edges, kept_edges_ratio : undirected edges inside a client, and their share of all edges
        (1.0 without edges)
    modularity : of the clients as communities at resolution 1, in -0.5..1; 0.0 without edges
    non_iid : mean over the clients of their `non_iid`, in 0..1, without clients that have no
        labelled node; 0.0 if no client has one. 0 means that every client has the label
        distribution of the whole graph, 1 would mean that they have no label in common
    clients : one entry per client: `nodes`, `edges` inside it, `unlabelled` nodes, `label_shares`
        (class -> share of its labelled nodes), `components` (connected components of its subgraph),
        and `non_iid`: the total variation distance 1/2 sum_c |p_k(c) - p(c)| between its label
        shares p_k and those of all labelled nodes p; None without a labelled node
    outside : only where some nodes have no client: their number `nodes`, and `edges`, the edges
        that end at one of them; modularity and label skew are those of the graph without them
    """
    clients = partition.spec.clients
    held = partition.assignment != OUTSIDE
    edges, components, modularity, lost = _structure(graph, partition.assignment, clients)
    counts = label_counts(graph, partition.assignment, clients)
    nodes = np.bincount(partition.assignment[held], minlength=clients)
    distances = total_variation(counts)
    known = [distance for distance in distances if distance is not None]
    inner_edges, absent = int(edges.sum()), int((~held).sum())
    return {
        "kept_edges": inner_edges,
        "kept_edges_ratio": inner_edges / graph.num_edges if graph.num_edges else 1.0,
        "modularity": modularity,
        "non_iid": math.fsum(known) / len(known) if known else 0.0,
        "clients": [
            {
                "nodes": int(nodes[k]),
                "edges": int(edges[k]),
                "unlabelled": int(nodes[k] - counts[k].sum()),
                "label_shares": _shares(graph.class_names, counts[k]),
                "components": int(components[k]),
                "non_iid": distances[k],
            }
            for k in range(clients)
        ],
    } | ({"outside": {"nodes": absent, "edges": lost}} if absent else {})


def label_counts(
    graph: TextGraph, assignment: NDArray[np.int64], clients: int
) -> NDArray[np.int64]:
    """Return the number of labelled nodes of each client and class, [clients, classes] int64."""
    classes = len(graph.class_names)
    labelled = (graph.labels != UNLABELLED) & (assignment != OUTSIDE)
    cells = assignment[labelled] * classes + graph.labels[labelled]
    return np.bincount(cells, minlength=clients * classes).reshape(clients, classes)


def total_variation(counts: NDArray[np.int64]) -> list[float | None]:
    """Return each row's total variation distance to the sum of all rows; None for a zero row.

    Distances lie in 0..1.

    Parameters
    ----------
    counts : [clients, classes] int64 labelled nodes
    """
    # Why total variation (decision 6): Jensen-Shannon needs logarithms, which differ between C
    # libraries.
    whole = [int(count) for count in counts.sum(axis=0)]
    total = sum(whole)
    distances: list[float | None] = []
    for row in counts.tolist():
        size = sum(row)
        # Python integers, as products of counts may exceed 64 bits; a single division rounds once.
        numerator = sum(
            abs(count * total - all_ * size) for count, all_ in zip(row, whole, strict=True)
        )
        distances.append(numerator / (2 * size * total) if size else None)
    return distances


def _shares(names: tuple[str, ...], counts: NDArray[np.int64]) -> dict[str, float]:
    total = int(counts.sum())
    return {
        name: int(count) / total if total else 0.0
        for name, count in zip(names, counts, strict=True)
    }


def _structure(
    graph: TextGraph, assignment: NDArray[np.int64], clients: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], float, int]:
    """Return inner edges and components of each client [clients], modularity, edges outside."""
    # Imported here, as most runs find their partition made.
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    n = graph.num_nodes
    owner = assignment.astype(np.int32)  # halves the memory of arrays with one entry per edge
    degree = np.diff(graph.indptr)
    source, target = np.repeat(owner, degree), owner[graph.indices]
    held = (source != OUTSIDE) & (target != OUTSIDE)
    stored, lost = int(held.sum()), len(held) - int(held.sum())  # both directions are stored
    inside = (source == target) & held
    inner = _by_row(inside, graph.indptr)
    indptr = np.concatenate([[0], np.cumsum(inner)])
    local = csr_matrix((np.ones(indptr[-1], np.int8), graph.indices[inside], indptr), shape=(n, n))
    _, component = connected_components(local, directed=False)
    first = np.unique(component, return_index=True)[1]
    first = first[assignment[first] != OUTSIDE]
    edges = _sums(inner, assignment, clients) // 2
    volume = _sums(_by_row(held, graph.indptr), assignment, clients).tolist()
    # Python integers: squares of volumes may exceed 64 bits.
    squares = sum(part * part for part in volume)
    modularity = (2 * int(edges.sum()) * stored - squares) / (stored * stored) if stored else 0.0
    return edges, np.bincount(assignment[first], minlength=clients), modularity, lost // 2


def _by_row(chosen: NDArray[np.bool_], indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    before = np.concatenate([[0], np.cumsum(chosen)])
    return np.diff(before[indptr])


def _sums(
    values: NDArray[np.int64], assignment: NDArray[np.int64], clients: int
) -> NDArray[np.int64]:
    """Return the sum of `values` [n] per client, [clients] int64; exact below 2^53."""
    held = assignment != OUTSIDE
    return np.bincount(assignment[held], values[held], minlength=clients).astype(np.int64)
