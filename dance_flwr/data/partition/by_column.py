"""`by-column`: the data say who holds what, in the nodes' column `site`."""

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graph import TextGraph
from dance_flwr.data.partition.spec import PartitionSpec
from dance_flwr.errors import DataError


def assign(graph: TextGraph, spec: PartitionSpec) -> NDArray[np.int64]:
    """Return each node's client, [n] int64, as `spec` asks."""
    return column_assignment(graph, spec.clients)


def column_assignment(graph: TextGraph, clients: int) -> NDArray[np.int64]:
    """Return each node's client ([n] int64): the rank of its `site` among the sorted distinct
    sites.

    Raises
    ------
    DataError : the graph has no sites, a node has an empty one, or their number is not `clients`
    """
    if graph.site is None:
        raise DataError(
            f"partition by-column: expected a column 'site' in the nodes of {graph.name!r}, found none"
        )
    empty = np.flatnonzero(graph.site == "")
    if len(empty):
        raise DataError(
            f"partition by-column: expected a site for every node, found none for {graph.ids[empty[0]]!s}"
        )
    sites, assignment = np.unique(graph.site, return_inverse=True)
    if len(sites) != clients:
        raise DataError(
            f"partition by-column: expected as many clients as sites, {len(sites)}, found {clients}; "
            f"set clients to {len(sites)}"
        )
    return assignment.astype(np.int64)
