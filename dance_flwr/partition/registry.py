"""Partitioners by name."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dance_flwr.errors import DataError
from dance_flwr.graph import TextGraph
from dance_flwr.partition.by_column import column_assignment
from dance_flwr.partition.label_dirichlet import dirichlet_assignment
from dance_flwr.partition.louvain import louvain_assignment
from dance_flwr.partition.metis import metis_assignment
from dance_flwr.partition.random_nodes import random_assignment
from dance_flwr.partition.spec import Partition, PartitionSpec
from dance_flwr.partition.split import resolve_split

Partitioner = Callable[[TextGraph, PartitionSpec], NDArray[np.int64]]

# name -> function of graph and spec that returns each node's client, [n] int64; add an entry to add a partitioner
PARTITIONERS: dict[str, Partitioner] = {
    "louvain": lambda graph, spec: louvain_assignment(graph, spec.clients, spec.seed, spec.resolution),
    "metis": lambda graph, spec: metis_assignment(graph, spec.clients, spec.seed),
    "label-dirichlet": lambda graph, spec: dirichlet_assignment(graph, spec.clients, spec.seed, spec.alpha),
    "random": lambda graph, spec: random_assignment(graph, spec.clients, spec.seed),
    "by-column": lambda graph, spec: column_assignment(graph, spec.clients),
}


def make_partition(graph: TextGraph, spec: PartitionSpec) -> Partition:
    """Return the partition that `spec` describes; the same graph and spec give the same partition.

    Raises
    ------
    DataError : unknown method, negative seed, settings that the partitioner or the split refuses, or a partitioner
        that leaves a client empty
    """
    if spec.method not in PARTITIONERS:
        choices = ", ".join(sorted(PARTITIONERS))
        raise DataError(f"partition method: expected one of {choices}, found {spec.method!r}")
    if spec.seed < 0:
        raise DataError(f"partition seed: expected an integer >= 0, found {spec.seed}")
    assignment = PARTITIONERS[spec.method](graph, spec)
    sizes = np.bincount(assignment, minlength=spec.clients)
    if len(sizes) != spec.clients or not sizes.all():
        held = int((sizes > 0).sum())
        raise DataError(f"partition {spec.method}: expected {spec.clients} clients with nodes, found {held}; ask fewer")
    ratios = (spec.train_ratio, spec.val_ratio, spec.test_ratio)
    return Partition(spec, assignment, resolve_split(graph, assignment, ratios, spec.seed))
