"""Partitions: which client holds which node, the split, and a manifest that verifies both."""

from dance_flwr.data.partition.by_column import column_assignment
from dance_flwr.data.partition.louvain import louvain_assignment
from dance_flwr.data.partition.manifest import (
    MANIFEST_VERSION,
    manifest,
    read_manifest,
    reproduce,
    write_manifest,
)
from dance_flwr.data.partition.partitioners import (
    dirichlet_assignment,
    metis_assignment,
    random_assignment,
)
from dance_flwr.data.partition.registry import make_partition
from dance_flwr.data.partition.report import report
from dance_flwr.data.partition.spec import OUTSIDE, Partition, PartitionSpec, client_nodes
from dance_flwr.data.partition.split import resolve_split, stratified_split

__all__ = [
    "MANIFEST_VERSION",
    "OUTSIDE",
    "Partition",
    "PartitionSpec",
    "client_nodes",
    "column_assignment",
    "dirichlet_assignment",
    "louvain_assignment",
    "make_partition",
    "manifest",
    "metis_assignment",
    "random_assignment",
    "read_manifest",
    "report",
    "reproduce",
    "resolve_split",
    "stratified_split",
    "write_manifest",
]
