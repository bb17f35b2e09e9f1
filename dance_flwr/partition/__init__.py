"""Partitions: which client holds which node, the train/val/test split, and a manifest that proves both."""

from dance_flwr.partition.by_column import column_assignment
from dance_flwr.partition.label_dirichlet import dirichlet_assignment
from dance_flwr.partition.louvain import louvain_assignment
from dance_flwr.partition.manifest import MANIFEST_VERSION, manifest, read_manifest, reproduce, write_manifest
from dance_flwr.partition.metis import metis_assignment
from dance_flwr.partition.random_nodes import random_assignment
from dance_flwr.partition.registry import PARTITIONERS, Partitioner, make_partition
from dance_flwr.partition.report import report
from dance_flwr.partition.spec import Partition, PartitionSpec, client_nodes
from dance_flwr.partition.split import resolve_split, stratified_split

__all__ = [
    "MANIFEST_VERSION",
    "PARTITIONERS",
    "Partition",
    "PartitionSpec",
    "Partitioner",
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
