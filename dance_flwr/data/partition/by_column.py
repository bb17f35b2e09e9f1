"""`by-column`: one client per distinct value of the nodes' column `site`."""

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.spec import PartitionSpec
from dance_flwr.errors import DataError


def assign(graph: TextGraph, spec: PartitionSpec) -> NDArray[np.int64]:
    """Return each node's client, [n] int64, for the settings of `spec`."""
    return column_assignment(graph, spec.clients)


def column_assignment(graph: TextGraph, clients: int) -> NDArray[np.int64]:
    """Return each node's client ([n] int64): the rank of its site among the sorted sites.

    Raises
    ------
    DataError : the graph has no sites, a site is empty, or the number of sites is not `clients`
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
    sites, assignment = np.unique(graph.site, return_inverse=True)
    if len(sites) != clients:
        raise DataError(
            f"partition by-column: expected as many clients as sites, {len(sites)}, "
            f"found {clients}; set clients to {len(sites)}"
        )
    return assignment.astype(np.int64)
