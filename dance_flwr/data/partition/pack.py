"""Pack pieces of a graph into clients of balanced size, none of them empty."""

import heapq

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, connected_components

Nodes = NDArray[np.int64]


def pack(pieces: list[Nodes], num_nodes: int, clients: int) -> NDArray[np.int64]:
    """Return each node's client ([n] int64): each piece goes into the smallest client so far.

    The largest pieces come first. Ties go to the piece with the smallest node and to the client
    with the smallest number. The largest and the smallest client differ by at most the size of the
    largest piece. With at least `clients` pieces, every client receives one.
    """
    pieces = sorted(pieces, key=lambda piece: (-len(piece), int(piece.min())))
    heap = [(0, client) for client in range(clients)]  # sorted, hence a heap
    assignment = np.empty(num_nodes, np.int64)
    for piece in pieces:
        size, client = heap[0]
        assignment[piece] = client
        heapq.heapreplace(heap, (size + len(piece), client))
    return assignment


def halve_until(pieces: list[Nodes], count: int, adjacency: sp.csr_matrix) -> list[Nodes]:
    """Halve the largest piece, in breadth-first order, until there are at least `count` pieces."""
    # The smallest node breaks ties, so that arrays are never compared.
    heap = [(-len(piece), int(piece.min()), piece) for piece in pieces]
    heapq.heapify(heap)
    while len(heap) < count:
        _, _, largest = heapq.heappop(heap)
        for half in bfs_chunks(largest, restrict(adjacency, largest), -(-len(largest) // 2)):
            heapq.heappush(heap, (-len(half), int(half.min()), half))
    return [piece for _, _, piece in heap]


def restrict(adjacency: sp.csr_matrix, nodes: Nodes) -> sp.csr_matrix:
    """Return the adjacency matrix [m, m] of the subgraph on `nodes` ([m] ascending row numbers)."""
    if len(nodes) == adjacency.shape[0]:
        return adjacency
    return adjacency[nodes][:, nodes]


def bfs_chunks(nodes: Nodes, adjacency: sp.csr_matrix, limit: int) -> list[Nodes]:
    """Cut the breadth-first order of `nodes` into the fewest chunks of at most `limit` nodes.

    The chunks have nearly equal sizes. `adjacency` [m, m] is that of the subgraph on `nodes` [m].
    Components follow each other in the order of their first nodes.
    """
    count, component = connected_components(adjacency, directed=False)
    # Without edges there is a walk per node, each of which would be found anew.
    if count == len(nodes):
        order = np.arange(len(nodes))
    else:
        starts = np.unique(component, return_index=True)[1]
        walks = [
            breadth_first_order(adjacency, start, directed=False, return_predecessors=False)
            for start in starts
        ]
        order = np.concatenate(walks)
    # Ascending, as `restrict` expects.
    return [nodes[np.sort(chunk)] for chunk in np.array_split(order, -(-len(nodes) // limit))]


def fill_empty(assignment: NDArray[np.int64], clients: int) -> NDArray[np.int64]:
    """Return `assignment` with no empty client: each takes the last node of the largest client.

    Requires at least `clients` nodes. Among clients of equal size, the lowest number gives first.
    """
    sizes = np.bincount(assignment, minlength=clients)
    empty = np.flatnonzero(sizes == 0)
    if not len(empty):
        return assignment
    filled = assignment.copy()
    order = np.argsort(assignment, kind="stable")  # each client's nodes together, ascending
    ends = np.cumsum(sizes)
    heap = [(-int(size), client) for client, size in enumerate(sizes) if size]
    heapq.heapify(heap)
    for client in empty:
        size, giver = heap[0]
        ends[giver] -= 1
        filled[order[ends[giver]]] = client
        heapq.heapreplace(heap, (size + 1, giver))
    return filled
