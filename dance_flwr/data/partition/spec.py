"""The specification of a partition, its result, and the nodes of a client."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

OUTSIDE = -1  # in an assignment: a node that no client holds

# Settings that change nothing at 0 and are stored only elsewhere, with their words in names of
# folders: partitions without them keep the names and manifests of versions that lack them.
REGIME = {
    "labels_per_class": "labels",
    "foreign_text_ratio": "foreign",
    "random_edge_ratio": "edges",
    "max_client_nodes": "sites",
}


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
    labels_per_class : training labels kept per class, over all clients; 0 keeps all
    foreign_text_ratio : share in [0, 1) of a node's chunks that belong to other nodes
    random_edge_ratio : random edges inside each client, as a share of its own edges, at least 0
    max_client_nodes : `by-column`: larger sites take no part; 0 = no limit
    """

    method: str
    clients: int
    seed: int
    resolution: float
    train_ratio: float
    val_ratio: float
    test_ratio: float
    alpha: float = 1.0
    labels_per_class: int = 0
    foreign_text_ratio: float = 0.0
    random_edge_ratio: float = 0.0
    max_client_nodes: int = 0

    def settings(self) -> dict[str, Any]:
        """Return all settings by name, as manifests store them; those of REGIME unless 0."""
        values = asdict(self)
        return {name: value for name, value in values.items() if value or name not in REGIME}

    def regime(self) -> str:
        """Return the settings of REGIME in a folder's name, such as `-labels5-edges0.25`, or ""."""
        values = asdict(self)
        return "".join(f"-{word}{values[name]:g}" for name, word in REGIME.items() if values[name])


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
    """Return the node indices of client `k`, ascending int64."""
    return np.flatnonzero(partition.assignment == k)
