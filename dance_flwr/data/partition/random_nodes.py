"""`random`: nodes assigned to clients at random, with equal sizes."""

import zlib

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.spec import PartitionSpec, check_clients


def assign(graph: TextGraph, spec: PartitionSpec) -> NDArray[np.int64]:
    """Return each node's client, [n] int64, for the settings of `spec`."""
    return random_assignment(graph, spec.clients, spec.seed)


def random_assignment(graph: TextGraph, clients: int, seed: int) -> NDArray[np.int64]:
    """Return each node's client ([n] int64), drawn at random; sizes are equal to within one.

    Raises
    ------
    DataError : `clients` is not in 1..n
    """
    check_clients(clients, graph.num_nodes)
    generator = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(b"assignment")]))
    return generator.permutation(np.arange(graph.num_nodes, dtype=np.int64) % clients)
