"""Create the partition of a specification with the partitioner that it names."""

import numpy as np

from dance_flwr.config.plugins import PARTITIONERS
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.spec import OUTSIDE, Partition, PartitionSpec, check_regime
from dance_flwr.data.partition.split import keep_labels, resolve_split
from dance_flwr.errors import DataError


def make_partition(graph: TextGraph, spec: PartitionSpec) -> Partition:
    """Return the partition that `spec` describes; it depends on the graph and `spec` only.

    Raises
    ------
    UserError : there is no such partitioner
    DataError : the seed is negative, a setting is invalid, or the partitioner leaves a client empty
    """
    assign = PARTITIONERS.get(spec.method)
    if spec.seed < 0:
        raise DataError(f"partition seed: expected an integer >= 0, found {spec.seed}")
    check_regime(spec)
    assignment = assign(graph, spec)
    # A plug-in may leave a client empty, which nothing behind it expects.
    sizes = np.bincount(assignment[assignment != OUTSIDE], minlength=spec.clients)
    if len(sizes) != spec.clients or not sizes.all():
        held = int((sizes > 0).sum())
        raise DataError(
            f"partition {spec.method}: expected {spec.clients} clients with nodes, found {held}; "
            "set fewer clients"
        )
    ratios = (spec.train_ratio, spec.val_ratio, spec.test_ratio)
    split = resolve_split(graph, assignment, ratios, spec.seed)
    return Partition(
        spec, assignment, keep_labels(split, graph.labels, spec.labels_per_class, spec.seed)
    )
