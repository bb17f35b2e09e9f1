"""Partitioners `random`, `label-dirichlet` and `metis`, each by the sizes and labels of clients."""

import math
import zlib
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import UNLABELLED, TextGraph
from dance_flwr.data.partition.pack import fill_empty
from dance_flwr.data.partition.spec import OUTSIDE, PartitionSpec
from dance_flwr.errors import DataError

_UNBALANCE = 30  # METIS counts in thousandths: a client may exceed the mean size by 3 %
_SEEDS = 2**31 - 1  # METIS keeps its seed in 32 signed bits


def assign_random(graph: TextGraph, spec: PartitionSpec) -> NDArray[np.int64]:
    """Return each node's client ([n] int64), drawn at random; sizes are equal to within one."""
    # A stream for each purpose: the split does not change with the partitioner.
    streams = np.random.SeedSequence([spec.seed, zlib.crc32(b"assignment")])
    generator = np.random.default_rng(streams)
    return generator.permutation(np.arange(graph.num_nodes, dtype=np.int64) % spec.clients)


def assign_by_labels(graph: TextGraph, spec: PartitionSpec) -> NDArray[np.int64]:
    """Return each node's client ([n] int64): shares of each class drawn from Dirichlet(alpha).

    Every class has its own draw, and a client's count of a class is within one of its share.
    Unlabelled nodes are distributed evenly. A client without any node receives one from the
    largest client.
    """
    clients, seed, alpha = spec.clients, spec.seed, spec.alpha
    if not 0 < alpha < math.inf:
        raise DataError(f"partition alpha: expected a number above 0, found {alpha}; use 1.0")
    generator = np.random.default_rng(
        np.random.SeedSequence([seed, zlib.crc32(b"label-dirichlet")])
    )
    assignment = np.empty(graph.num_nodes, np.int64)
    # Stable: every machine permutes the same order.
    order = np.argsort(graph.labels, kind="stable")
    starts = np.searchsorted(graph.labels[order], np.arange(UNLABELLED, len(graph.class_names) + 1))
    for label, (start, end) in enumerate(pairwise(starts), start=UNLABELLED):
        nodes = generator.permutation(order[start:end])
        even = label == UNLABELLED
        shares = (
            np.full(clients, 1 / clients) if even else generator.dirichlet(np.full(clients, alpha))
        )
        # A tiny alpha can underflow to zero shares; then one client receives the whole class.
        if not np.isfinite(shares).all() or shares.sum() < 0.5:
            shares = np.eye(clients)[generator.integers(clients)]
        # Rounding running sums keeps each count within one of its share.
        bounds = np.rint(np.cumsum(shares)[:-1] * len(nodes))
        assignment[nodes] = np.searchsorted(bounds, np.arange(len(nodes)), side="right")
    return fill_empty(assignment, clients)


def assign_by_metis(graph: TextGraph, spec: PartitionSpec) -> NDArray[np.int64]:
    """Return each node's client ([n] int64) by METIS's k-way partitioning.

    METIS aims at sizes within 3 % of the mean, which it can miss on graphs of few nodes. A client
    that it leaves empty gets one node of the largest client.
    """
    clients = spec.clients
    if clients == 1 or not len(graph.indices):  # METIS refuses a graph without edges
        return np.arange(graph.num_nodes, dtype=np.int64) % clients
    try:
        import pymetis
    except ImportError:
        raise DataError(
            "partition metis: expected the package pymetis, found none; "
            "pip install 'dance-flwr[metis]'"
        ) from None
    options = pymetis.Options(seed=spec.seed % _SEEDS, ufactor=_UNBALANCE)
    adjacency = pymetis.CSRAdjacency(graph.indptr, graph.indices)
    # Why not the default (decision 6): METIS draws from a generator of its own build, so clients
    # are the same on one platform only.
    _, parts = pymetis.part_graph(clients, adjacency, options=options, recursive=False)
    return fill_empty(np.asarray(parts, np.int64), clients)


def assign(graph: TextGraph, spec: PartitionSpec) -> NDArray[np.int64]:
    """Return each node's client, [n] int64; the `clients` largest sites take part.

    With `max_client_nodes` they are the largest among the sites of at most so many nodes. Of sites
    of equal size the first by name takes part; clients are numbered by the names of their sites. A
    node of another site is `OUTSIDE`: an institution that is not in the federation neither trains
    nor is tested, and no other institution holds its nodes.

    Raises
    ------
    DataError : the graph has no sites, a site is empty, or there are fewer sites than `clients`
    """
    if graph.site is None:
        raise DataError(
            f"partition by-column: expected a column 'site' in the nodes of {graph.name!r}, "
            "found none; add it"
        )
    empty = np.flatnonzero(graph.site == "")
    if len(empty):
        raise DataError(
            "partition by-column: expected a site for every node, "
            f"found none for {graph.ids[empty[0]]!s}; fill it in"
        )
    clients, max_nodes = spec.clients, spec.max_client_nodes
    sites, number, sizes = np.unique(graph.site, return_inverse=True, return_counts=True)
    small = np.flatnonzero(sizes <= max_nodes) if max_nodes else np.arange(len(sites))
    if not 1 <= clients <= len(small):
        which = f"sites of at most {max_nodes:,} nodes" if max_nodes else "sites"
        raise DataError(
            f"partition by-column: expected at most as many clients as {which}, {len(small)}, "
            f"found {clients}; set clients to {len(small)} or fewer"
        )
    # Stable: sites of equal size go by name. Sorted again: clients are numbered by name.
    largest = np.sort(small[np.argsort(-sizes[small], kind="stable")[:clients]])
    # Why not pooled (decision 6): a client of all other sites would be an institution that does not
    # exist.
    client = np.full(len(sites), OUTSIDE, np.int64)
    client[largest] = np.arange(clients)
    return client[number]
