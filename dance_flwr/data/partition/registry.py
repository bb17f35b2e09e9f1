"""From a specification to a partition, by the partitioner that it names."""

import numpy as np

from dance_flwr.config.plugins import PARTITIONERS
from dance_flwr.data.graph import TextGraph
from dance_flwr.data.partition.spec import Partition, PartitionSpec
from dance_flwr.data.partition.split import resolve_split
from dance_flwr.errors import DataError


def make_partition(graph: TextGraph, spec: PartitionSpec) -> Partition:
    """Return the partition that `spec` describes; the same graph and spec give the same partition.

    Raises
    ------
    UserError : there is no such partitioner
    DataError : negative seed, settings that the partitioner or the split refuses, or a partitioner
        that leaves a client empty
    """
    assign = PARTITIONERS.get(spec.method)
    if spec.seed < 0:
        raise DataError(f"partition seed: expected an integer >= 0, found {spec.seed}")
    assignment = assign(graph, spec)
    sizes = np.bincount(assignment, minlength=spec.clients)
    if len(sizes) != spec.clients or not sizes.all():
        held = int((sizes > 0).sum())
        raise DataError(
            f"partition {spec.method}: expected {spec.clients} clients with nodes, found {held}; ask fewer"
        )
    ratios = (spec.train_ratio, spec.val_ratio, spec.test_ratio)
    return Partition(spec, assignment, resolve_split(graph, assignment, ratios, spec.seed))
