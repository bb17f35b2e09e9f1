"""Partitions: which client holds which node, the split, and a manifest that verifies both."""

from dance_flwr.data.partition.manifest import manifest, read_manifest, reproduce, write_manifest
from dance_flwr.data.partition.registry import make_partition
from dance_flwr.data.partition.report import report
from dance_flwr.data.partition.spec import OUTSIDE, Partition, PartitionSpec, client_nodes
from dance_flwr.data.partition.split import resolve_split, stratified_split

__all__ = [
    "OUTSIDE",
    "Partition",
    "PartitionSpec",
    "client_nodes",
    "make_partition",
    "manifest",
    "read_manifest",
    "report",
    "reproduce",
    "resolve_split",
    "stratified_split",
    "write_manifest",
]
