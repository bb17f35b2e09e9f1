"""`metis`: the least edges cut between clients of equal size, by METIS through `pymetis`."""

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.pack import fill_empty
from dance_flwr.data.partition.spec import PartitionSpec, check_clients
from dance_flwr.errors import DataError

_UNBALANCE = 30  # METIS counts in thousandths: a client may exceed the mean size by 3 %
_SEEDS = 2**31 - 1  # METIS keeps its seed in 32 signed bits


def assign(graph: TextGraph, spec: PartitionSpec) -> NDArray[np.int64]:
    """Return each node's client, [n] int64, for the settings of `spec`."""
    return metis_assignment(graph, spec.clients, spec.seed)


def metis_assignment(graph: TextGraph, clients: int, seed: int) -> NDArray[np.int64]:
    """Return each node's client ([n] int64) by METIS's k-way partitioning.

    METIS aims at sizes within 3 % of the mean, which it can miss on graphs of few nodes. A client
    that it leaves empty gets one node of the largest client.

    Raises
    ------
    DataError : `clients` is not in 1..n, or pymetis is not installed
    """
    check_clients(clients, graph.num_nodes)
    if clients == 1 or not len(graph.indices):  # METIS refuses a graph without edges
        return np.arange(graph.num_nodes, dtype=np.int64) % clients
    try:
        import pymetis
    except ImportError:
        raise DataError(
            "partition metis: expected the package pymetis, found none; "
            "pip install 'dance-flwr[metis]'"
        ) from None
    options = pymetis.Options(seed=seed % _SEEDS, ufactor=_UNBALANCE)
    adjacency = pymetis.CSRAdjacency(graph.indptr, graph.indices)
    _, parts = pymetis.part_graph(clients, adjacency, options=options, recursive=False)
    return fill_empty(np.asarray(parts, np.int64), clients)
