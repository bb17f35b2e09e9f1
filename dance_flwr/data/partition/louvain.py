"""`louvain`: communities packed into clients of balanced size, which keeps most edges."""

import math
import zlib

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.pack import Nodes, bfs_chunks, halve_until, pack, restrict
from dance_flwr.data.partition.spec import PartitionSpec
from dance_flwr.errors import DataError

_SLACK = 1.2  # a community may exceed the mean client size by this factor before it is split


def assign(graph: TextGraph, spec: PartitionSpec) -> NDArray[np.int64]:
    """Return each node's client ([n] int64): Louvain communities, the largest packed first.

    A community of more than L = max(1, floor(1.2 n / clients)) nodes is split first: by Louvain at
    a higher resolution, or else into chunks of its breadth-first order. Each piece goes into the
    client that is smallest at that point. Hence every client has a node, the largest and the
    smallest client differ by at most L nodes, and the largest has at most 2 n / clients nodes.

    Raises
    ------
    DataError : `resolution` is not a finite number above 0
    """
    n, clients, seed, resolution = graph.num_nodes, spec.clients, spec.seed, spec.resolution
    if not 0 < resolution < math.inf:
        raise DataError(
            f"partition resolution: expected a number above 0, found {resolution}; use 1.0"
        )
    limit = max(1, int(_SLACK * n / clients))
    adjacency = graph.adjacency()
    communities = groups(louvain_labels(adjacency, seed, resolution))
    finer = max(1.0, 2 * resolution)  # far below 1, doubling would change nothing
    pieces: list[Nodes] = []
    for nodes in communities:
        fits = len(nodes) <= limit
        pieces += [nodes] if fits else _split_down(nodes, adjacency, limit, seed, finer)
    return pack(halve_until(pieces, clients, adjacency), n, clients)


def louvain_labels(adjacency: sp.csr_matrix, seed: int, resolution: float) -> NDArray[np.int64]:
    """Return each node's Louvain community, [n] int64, for a symmetric adjacency matrix [n, n].

    The compiled loop runs on one thread and visits the nodes in an order drawn from `seed`.
    """
    # Why scikit-network (decision 6): the modularity of networkx in a 40th of its time, without
    # threads or global state.
    from sknetwork.clustering import Louvain

    if not adjacency.nnz:  # no total weight to divide by
        return np.arange(adjacency.shape[0], dtype=np.int64)
    # RandomState on MT19937 is the only stream that NumPy guarantees never to change.
    draws = np.random.RandomState(
        np.random.MT19937(np.random.SeedSequence([seed, zlib.crc32(b"louvain")]))
    )
    method = Louvain(
        resolution=resolution,
        modularity="newman",
        # Else the order of the rows would decide, which means nothing.
        shuffle_nodes=True,
        random_state=draws,
        sort_clusters=False,
        return_probs=False,
        return_aggregate=False,
    )
    return np.asarray(method.fit_predict(adjacency), np.int64)


def groups(labels: NDArray[np.int64]) -> list[Nodes]:
    """Return the nodes of each label, ascending int64, in the order of the labels."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def _split_down(
    nodes: Nodes, adjacency: sp.csr_matrix, limit: int, seed: int, resolution: float
) -> list[Nodes]:
    """Split `nodes` into pieces of at most `limit` nodes, along communities of their subgraph.

    `nodes` are row numbers of `adjacency`. Without communities, the pieces are chunks of the
    breadth-first order.
    """
    local = restrict(adjacency, nodes)
    # What has no communities at four times the resolution is cut in breadth-first order.
    for finer in (resolution, 2 * resolution):
        parts = groups(louvain_labels(local, seed, finer))
        # If most parts are single nodes, there is no finer structure, as in a clique.
        if 1 < len(parts) <= len(nodes) // 2:
            pieces: list[Nodes] = []
            for part in parts:
                fits = len(part) <= limit
                pieces += (
                    [nodes[part]]
                    if fits
                    else [nodes[piece] for piece in _split_down(part, local, limit, seed, finer)]
                )
            return pieces
    return bfs_chunks(nodes, local, limit)
