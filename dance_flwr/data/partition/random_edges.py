"""Random edges inside a client: a graph whose neighbours are partly noise."""

import zlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.edges import csr_weights
from dance_flwr.data.graphs.graph import TextGraph, csr_from_pairs


def random_edge_count(nodes: int, edges: int, ratio: float) -> int:
    """Return min(round(ratio * edges), pairs of distinct nodes without an edge).

    Parameters
    ----------
    nodes, edges : of one client; every undirected edge counts once
    ratio : added edges as a share of `edges`, at least 0
    """
    return min(round(ratio * edges), nodes * (nodes - 1) // 2 - edges)


def with_random_edges(graph: TextGraph, ratio: float, seed: int, client: int) -> TextGraph:
    """Return `graph` with `random_edge_count` new edges between pairs drawn uniformly.

    The pairs are drawn without replacement among those of distinct nodes that have no edge. The
    draw depends on the seed, the client and the client's own edges only. A new edge has no text; in
    a graph with weights it has that of one of the client's edges, drawn uniformly.

    Parameters
    ----------
    graph : the client's subgraph
    ratio : added edges as a share of the graph's own; 0 returns `graph` itself
    """
    count = random_edge_count(graph.num_nodes, graph.num_edges, ratio)
    if not count:
        return graph
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    once = source < graph.indices
    low, high = source[once], graph.indices[once]
    taken = np.sort(_code(low, high))
    free = graph.num_nodes * (graph.num_nodes - 1) // 2 - len(taken)
    generator = np.random.default_rng(
        np.random.SeedSequence([seed, zlib.crc32(b"random-edges"), client])
    )
    # Ranks among the free pairs: drawing until a pair is free would not end on a complete graph.
    rank = generator.choice(free, count, replace=False, shuffle=False)
    # Before the i-th taken pair lie taken[i] - i free ones: a rank skips the pairs that it passes.
    passed = np.searchsorted(taken - np.arange(len(taken)), rank, side="right")
    new_low, new_high = _pair(rank + passed)
    ends = np.concatenate([low, new_low]), np.concatenate([high, new_high])
    indptr, indices = csr_from_pairs(*ends, graph.num_nodes)
    weights = graph.weights
    if weights is not None:
        # Drawn last: the edges are those of the same graph without weights. Of the real ones: no
        # weight tells which edges are random.
        present = weights[once]
        each = np.concatenate([present, generator.choice(present, count)])
        weights = csr_weights((indptr, indices), *ends, each)
    return replace(graph, indptr=indptr, indices=indices, weights=weights)


def _code(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each pair low < high in the order (0,1), (0,2), (1,2), (0,3), ..."""
    return high * (high - 1) // 2 + low


def _pair(code: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    high = ((1 + np.sqrt(1 + 8 * code.astype(np.float64))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > code  # the root is off by less than one
    high += high * (high + 1) // 2 <= code
    return code - high * (high - 1) // 2, high
