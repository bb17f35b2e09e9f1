"""Manifests of partitions: counts, hashes of node ids, and a hash of the manifest itself."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from dance_flwr.data.graphs.codes import SPLIT_NAMES, ids_digest
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.random_edges import random_edge_count
from dance_flwr.data.partition.registry import make_partition
from dance_flwr.data.partition.report import label_counts, report
from dance_flwr.data.partition.spec import OUTSIDE, REGIME, Partition, PartitionSpec, client_nodes
from dance_flwr.disk import write_text
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import commitment

MANIFEST_VERSION = 2
_FIELDS = (
    *("version", "dataset", "spec", "provenance", "num_nodes", "num_edges", "ratio_of_edges_kept"),
    *("class_names", "clients", "report", "sha256"),
)


def manifest(graph: TextGraph, partition: Partition) -> dict[str, Any]:
    """Return the manifest of a partition as a JSON object with a sha256 of its own content.

    Each client lists its nodes, the edges inside it, its nodes per class and per split, and the
    sha256 of its node ids, joined by newlines in ascending index order. Counts of nodes and edges
    are those of the data, also where some nodes are outside. `random_edges`, only in a partition
    that adds some, are those that a client has in addition. `site`, only in a partition by sites,
    is the name of the client's. `ratio_of_edges_kept` is the share of all edges that is inside a
    client, 1.0 for a graph without edges. `report` is the result of
    `dance_flwr.data.partition.report`.
    """
    figures = report(graph, partition)
    clients = partition.spec.clients
    classes = label_counts(graph, partition.assignment, clients)
    held = partition.assignment != OUTSIDE
    cells = partition.assignment[held] * len(SPLIT_NAMES) + partition.split[held]
    splits = np.bincount(cells, minlength=clients * len(SPLIT_NAMES)).reshape(clients, -1)
    content = {
        "version": MANIFEST_VERSION,
        "dataset": graph.name,
        "spec": partition.spec.settings(),
        "provenance": dict(graph.provenance),
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "ratio_of_edges_kept": figures["kept_edges_ratio"],
        "class_names": list(graph.class_names),
        "clients": [
            {
                "nodes": row["nodes"],
                "edges": row["edges"],
                "nodes_per_class": dict(zip(graph.class_names, classes[k].tolist(), strict=True)),
                "nodes_per_split": {
                    name or "none": int(splits[k, i]) for i, name in enumerate(SPLIT_NAMES)
                },
                "ids_sha256": ids_digest(graph.ids[client_nodes(partition, k)].tolist()),
                **_only_of_some(graph, partition, k, row),
            }
            for k, row in enumerate(figures["clients"])
        ],
        "report": figures,
    }
    return {**content, "sha256": commitment(content)}


def _only_of_some(
    graph: TextGraph, partition: Partition, k: int, row: dict[str, Any]
) -> dict[str, Any]:
    # Absent where there are none: earlier manifests keep their sha256.
    entries: dict[str, Any] = {}
    if ratio := partition.spec.random_edge_ratio:
        entries["random_edges"] = random_edge_count(row["nodes"], row["edges"], ratio)
    if partition.spec.method == "by-column" and graph.site is not None:
        entries["site"] = str(graph.site[client_nodes(partition, k)[0]])
    return entries


def reproduce(graph: TextGraph, content: dict[str, Any]) -> Partition:
    """Recompute the partition that a manifest describes and compare it with the manifest."""
    actual = (graph.num_nodes, graph.num_edges, list(graph.class_names))
    expected = (content["num_nodes"], content["num_edges"], content["class_names"])
    for what, one, other in zip(("nodes", "edges", "classes"), expected, actual, strict=True):
        if one != other:
            raise DataError(
                f"manifest of {content['dataset']!r}: expected {one} {what}, found {other}; "
                "use the data of the manifest"
            )
    names = {field.name for field in fields(PartitionSpec)}
    # Settings of REGIME are stored only where they are not 0.
    if not names - {*REGIME} <= {*content["spec"]} <= names:
        raise DataError(
            f"manifest spec: expected the keys {', '.join(sorted(names))}, found "
            f"{', '.join(sorted(content['spec']))}; create the manifest again"
        )
    partition = make_partition(graph, PartitionSpec(**content["spec"]))
    again = manifest(graph, partition)
    for k, (one, other) in enumerate(zip(content["clients"], again["clients"], strict=True)):
        # Not the whole manifest: the data may have another name or origin.
        for what in ("ids_sha256", "nodes_per_split"):
            if one[what] != other[what]:
                raise DataError(
                    f"client {k}: expected {what} {one[what]}, found {other[what]}; "
                    "use the data of the manifest and the library versions of constraints.txt"
                )
    return partition


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """Write a manifest as indented JSON with sorted keys, whole or not at all."""
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a manifest after checking its fields, its version and its own sha256."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"manifest {path}: expected a file, found none; create the partition first"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"manifest {path}: expected JSON, found: {error}; create the partition again"
        ) from error
    missing = [name for name in _FIELDS if not isinstance(content, dict) or name not in content]
    if missing:
        raise DataError(
            f"manifest {path}: expected the fields {', '.join(missing)}, found none; "
            "create the partition again"
        )
    if content["version"] != MANIFEST_VERSION:
        raise DataError(
            f"manifest {path}: expected version {MANIFEST_VERSION}, found {content['version']!r}; "
            "create the partition again"
        )
    digest = commitment({name: value for name, value in content.items() if name != "sha256"})
    if digest != content["sha256"]:
        raise DataError(
            f"manifest {path}: expected sha256 {content['sha256']}, found {digest}; it was altered"
        )
    return dict(content)
