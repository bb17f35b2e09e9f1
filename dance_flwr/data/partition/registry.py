"""Create the partition of a specification with the partitioner that it names."""

import math

import numpy as np

from dance_flwr.config.plugins import PARTITIONERS
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.spec import OUTSIDE, REGIME, Partition, PartitionSpec
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
    _check(spec, graph.num_nodes)
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


def _check(spec: PartitionSpec, nodes: int) -> None:
    # Fewer sites than clients are refused by `by-column`, which names the sites.
    if spec.method != "by-column" and not 1 <= spec.clients <= nodes:
        raise DataError(
            f"partition clients: expected 1..{nodes}, the number of nodes, found {spec.clients}"
        )
    if spec.seed < 0:
        raise DataError(f"partition seed: expected an integer >= 0, found {spec.seed}")
    values = spec.settings()
    for name in REGIME:
        value, share = values.get(name, 0), name == "foreign_text_ratio"
        if not 0 <= value < (1 if share else math.inf):
            raise DataError(
                f"partition {name}: expected a number >= 0{' and < 1' if share else ''}, "
                f"found {value}"
            )
