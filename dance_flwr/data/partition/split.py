"""Split the labelled nodes into training, validation and test nodes."""

import zlib

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, UNLABELLED, VAL, TextGraph
from dance_flwr.data.partition.spec import OUTSIDE
from dance_flwr.errors import DataError


def stratified_split(
    graph: TextGraph, assignment: NDArray[np.int64], ratios: tuple[float, float, float], seed: int
) -> NDArray[np.uint8]:
    """Return [n] uint8 splits by systematic sampling within each (client, class) cell.

    The labelled nodes of a cell are permuted and share one offset u in [0, 1). The i-th of m nodes
    lies at t = (i + u) / m and is TRAIN for t < train, VAL for t < train + val, else TEST. Counts
    are within one of the exact share, and equal to it in expectation even in a cell of one node.
    Unlabelled nodes and those that no client holds are NO_SPLIT.

    Raises
    ------
    DataError : a ratio is negative or the three do not sum to 1 (tolerance 1e-6)
    """
    train, val, test = ratios
    # Three decimal shares rarely sum to exactly 1.
    if not (min(ratios) >= 0 and abs(sum(ratios) - 1) <= 1e-6):
        raise DataError(
            f"split ratios: expected three numbers >= 0 that sum to 1, found {train}, {val}, {test}"
        )
    split = np.full(graph.num_nodes, NO_SPLIT, np.uint8)
    nodes = np.flatnonzero((graph.labels != UNLABELLED) & (assignment != OUTSIDE))
    if not len(nodes):
        return split
    generator = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(b"split")]))
    client, label = assignment[nodes], graph.labels[nodes]
    # A random key within a cell permutes it.
    order = np.lexsort((generator.random(len(nodes)), label, client))
    cells = client[order] * len(graph.class_names) + label[order]
    _, start, cell, size = np.unique(
        cells, return_index=True, return_inverse=True, return_counts=True
    )
    offset = generator.random(len(start))
    t = (np.arange(len(nodes)) - start[cell] + offset[cell]) / size[cell]
    # Without a test share the last bound is open: rounding in train + val must not add a test node.
    bound = train + val if test > 0 else np.inf
    split[nodes[order]] = np.where(t < train, TRAIN, np.where(t < bound, VAL, TEST))
    return split


def resolve_split(
    graph: TextGraph, assignment: NDArray[np.int64], ratios: tuple[float, float, float], seed: int
) -> NDArray[np.uint8]:
    """Return the graph's own split if it has one, else that of `stratified_split`."""
    if graph.split.any():
        return np.where(assignment == OUTSIDE, np.uint8(NO_SPLIT), graph.split)
    return stratified_split(graph, assignment, ratios, seed)


def keep_labels(
    split: NDArray[np.uint8], labels: NDArray[np.int64], per_class: int, seed: int
) -> NDArray[np.uint8]:
    """Return the split with at most `per_class` training nodes of each class; the rest is NO_SPLIT.

    Each class keeps the nodes with its smallest random numbers, so those kept for one `per_class`
    are among those kept for a larger one. Validation and test nodes stay as they are. A class with
    fewer training nodes keeps all of them.

    Parameters
    ----------
    split : [n] uint8
    labels : [n] int64, or UNLABELLED
    per_class : training nodes per class in the whole graph; 0 returns `split` itself
    """
    if not per_class:
        return split
    generator = np.random.default_rng(
        np.random.SeedSequence([seed, zlib.crc32(b"labels-per-class")])
    )
    # A number for every node, so that a node keeps its number whatever the split is.
    draws = generator.random(len(split))
    nodes = np.flatnonzero((split == TRAIN) & (labels != UNLABELLED))
    order = nodes[np.lexsort((draws[nodes], labels[nodes]))]
    first = np.searchsorted(labels[order], labels[order])  # where the node's class begins
    reduced = np.where(split == TRAIN, np.uint8(NO_SPLIT), split)
    reduced[order[np.arange(len(order)) - first < per_class]] = TRAIN
    return reduced
