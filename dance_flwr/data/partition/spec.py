"""The specification of a partition, its result, and the nodes of a client."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dance_flwr.errors import DataError

OUTSIDE = -1  # in an assignment: a node that no client holds


@dataclass(frozen=True)
class PartitionSpec:
    """Settings of a partition: the partitioner, its parameters and the shares of the split.

    Attributes
    ----------
    method : a name in `PARTITIONERS`
    clients : number of clients, 1..n
    seed : integer >= 0 for every random choice
    resolution : Louvain resolution, above 0; higher values give smaller communities
    train_ratio, val_ratio, test_ratio : shares of the labelled nodes; they sum to 1
    alpha : concentration of `label-dirichlet`, above 0; lower values give more label skew
    """

    method: str
    clients: int
    seed: int
    resolution: float
    train_ratio: float
    val_ratio: float
    test_ratio: float
    alpha: float = 1.0


@dataclass(frozen=True)
class Partition:
    """The result of partitioning a graph.

    Attributes
    ----------
    spec : settings of the partition
    assignment : [n] int64, client of each node, 0..clients-1, or OUTSIDE
    split : [n] uint8, NO_SPLIT, TRAIN, VAL or TEST of each node; NO_SPLIT of those outside
    """

    spec: PartitionSpec
    assignment: NDArray[np.int64]
    split: NDArray[np.uint8]


def client_nodes(partition: Partition, k: int) -> NDArray[np.int64]:
    """Return the node indices of client `k`, ascending int64.

    Raises
    ------
    DataError : there is no client `k`
    """
    if not 0 <= k < partition.spec.clients:
        raise DataError(f"client: expected a number in 0..{partition.spec.clients - 1}, found {k}")
    return np.flatnonzero(partition.assignment == k)


def check_clients(clients: int, nodes: int) -> None:
    """Check that every client can have a node.

    Raises
    ------
    DataError : `clients` is not in 1..nodes
    """
    if not 1 <= clients <= nodes:
        raise DataError(
            f"partition clients: expected 1..{nodes}, the number of nodes, found {clients}"
        )
