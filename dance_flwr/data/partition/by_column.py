"""`by-column`: the nodes' column `site` decides; each client is one of the largest sites."""

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.spec import OUTSIDE, PartitionSpec
from dance_flwr.errors import DataError


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
