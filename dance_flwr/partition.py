"""Partitions: which client holds which node, the train/val/test split, and a manifest that proves both."""

import hashlib
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, connected_components

from dance_flwr.errors import DataError
from dance_flwr.graph import NO_SPLIT, SPLIT_NAMES, TEST, TRAIN, UNLABELLED, VAL, TextGraph, ids_digest

MANIFEST_VERSION = 1
_SLACK = 1.2  # a community may exceed the mean client size by this factor before it is split
_FIELDS = (
    *("version", "dataset", "spec", "provenance", "num_nodes", "num_edges", "ratio_of_edges_kept"),
    *("class_names", "clients", "sha256"),
)


@dataclass(frozen=True)
class PartitionSpec:
    """How to divide a graph: a partitioner's name, its settings and the three shares of the split."""

    method: str
    clients: int
    seed: int
    resolution: float
    train_ratio: float
    val_ratio: float
    test_ratio: float


@dataclass(frozen=True)
class Partition:
    """A divided graph.

    Attributes
    ----------
    spec : what was asked for
    assignment : [n] int64, client of each node, 0..clients-1
    split : [n] uint8, NO_SPLIT, TRAIN, VAL or TEST of each node
    """

    spec: PartitionSpec
    assignment: NDArray[np.int64]
    split: NDArray[np.uint8]


def louvain_assignment(graph: TextGraph, clients: int, seed: int, resolution: float) -> NDArray[np.int64]:
    """Return each node's client ([n] int64): Louvain communities, packed largest first into the smallest client.

    A community above L = max(1, floor(1.2 n / clients)) nodes is split first: by Louvain inside it at a
    higher resolution, or else into chunks of its breadth-first order. Hence every client has a node, the largest
    and the smallest differ by at most L, and the largest has at most 2 n / clients nodes.

    Raises
    ------
    DataError : `clients` is not in 1..n, or the resolution is not above 0
    """
    n = graph.num_nodes
    _check_clients(clients, n)
    if not resolution > 0:
        raise DataError(f"partition resolution: expected a number above 0, found {resolution}; use 1.0")
    limit = max(1, int(_SLACK * n / clients))
    communities = _louvain(graph, np.arange(n), seed, resolution)
    finer = max(1.0, 2 * resolution)  # far below 1, doubling would change nothing
    pieces = [piece for part in communities for piece in _split_down(graph, part, limit, seed, finer)]
    while len(pieces) < clients:  # halves, as each client must get at least one piece
        largest = pieces.pop(max(range(len(pieces)), key=lambda k: len(pieces[k])))
        pieces += _bfs_chunks(graph, largest, -(-len(largest) // 2))
    pieces.sort(key=lambda piece: (-len(piece), piece.min()))
    sizes = np.zeros(clients, np.int64)
    assignment = np.empty(n, np.int64)
    for piece in pieces:
        client = int(sizes.argmin())
        assignment[piece] = client
        sizes[client] += len(piece)
    return assignment


def random_assignment(graph: TextGraph, clients: int, seed: int, resolution: float = 1.0) -> NDArray[np.int64]:
    """Return each node's client ([n] int64) drawn at random, sizes equal to within one; `resolution` is unused.

    Raises
    ------
    DataError : `clients` is not in 1..n
    """
    _check_clients(clients, graph.num_nodes)
    generator = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(b"assignment")]))
    return generator.permutation(np.arange(graph.num_nodes, dtype=np.int64) % clients)


PARTITIONERS: dict[str, Callable[[TextGraph, int, int, float], NDArray[np.int64]]] = {
    "louvain": louvain_assignment,
    "random": random_assignment,
}


def stratified_split(
    graph: TextGraph, assignment: NDArray[np.int64], ratios: tuple[float, float, float], seed: int
) -> NDArray[np.uint8]:
    """Return [n] uint8 splits by systematic sampling within each (client, class) cell of the labelled nodes.

    A cell is permuted and gets one offset u in [0, 1); its i-th node of m lies at t = (i + u) / m and is TRAIN for
    t < train, VAL for t < train + val, else TEST. Counts are within one of the exact share, and in expectation
    equal to it even in a cell of one node. Unlabelled nodes get NO_SPLIT.

    Raises
    ------
    DataError : a ratio is negative or the three do not sum to 1 (tolerance 1e-6)
    """
    train, val, test = ratios
    if not (min(ratios) >= 0 and abs(sum(ratios) - 1) <= 1e-6):
        raise DataError(f"split ratios: expected three numbers >= 0 that sum to 1, found {train}, {val}, {test}")
    split = np.full(graph.num_nodes, NO_SPLIT, np.uint8)
    nodes = np.flatnonzero(graph.labels != UNLABELLED)
    if not len(nodes):
        return split
    generator = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(b"split")]))
    client, label = assignment[nodes], graph.labels[nodes]
    order = np.lexsort((generator.random(len(nodes)), label, client))
    cells = client[order] * len(graph.class_names) + label[order]
    _, start, cell, size = np.unique(cells, return_index=True, return_inverse=True, return_counts=True)
    offset = generator.random(len(start))
    t = (np.arange(len(nodes)) - start[cell] + offset[cell]) / size[cell]
    # With no test share the last bound is open: rounding in train + val must not make a test node.
    bound = train + val if test > 0 else np.inf
    split[nodes[order]] = np.where(t < train, TRAIN, np.where(t < bound, VAL, TEST))
    return split


def resolve_split(
    graph: TextGraph, assignment: NDArray[np.int64], ratios: tuple[float, float, float], seed: int
) -> NDArray[np.uint8]:
    """Return the graph's own split where it has one, otherwise `stratified_split` (which see for errors)."""
    if graph.split.any():
        return graph.split.copy()
    return stratified_split(graph, assignment, ratios, seed)


def make_partition(graph: TextGraph, spec: PartitionSpec) -> Partition:
    """Return the partition that `spec` describes; the same graph and spec give the same partition.

    Raises
    ------
    DataError : unknown method, negative seed, or settings that the partitioner or the split refuses
    """
    if spec.method not in PARTITIONERS:
        choices = ", ".join(sorted(PARTITIONERS))
        raise DataError(f"partition method: expected one of {choices}, found {spec.method!r}")
    if spec.seed < 0:
        raise DataError(f"partition seed: expected an integer >= 0, found {spec.seed}")
    assignment = PARTITIONERS[spec.method](graph, spec.clients, spec.seed, spec.resolution)
    ratios = (spec.train_ratio, spec.val_ratio, spec.test_ratio)
    return Partition(spec, assignment, resolve_split(graph, assignment, ratios, spec.seed))


def client_nodes(partition: Partition, k: int) -> NDArray[np.int64]:
    """Return the node indices of client `k`, ascending int64.

    Raises
    ------
    DataError : there is no client `k`
    """
    if not 0 <= k < partition.spec.clients:
        raise DataError(f"client: expected a number in 0..{partition.spec.clients - 1}, found {k}")
    return np.flatnonzero(partition.assignment == k)


def manifest(graph: TextGraph, partition: Partition) -> dict[str, Any]:
    """Return a JSON-able account of a partition with a sha256 over its own content.

    Each client lists its nodes, the edges inside it, its nodes per class and per split, and the sha256 of its node
    ids, joined by newlines in ascending index order. `ratio_of_edges_kept` is the share of edges that lie
    inside a client, 1.0 for a graph without edges.
    """
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    owner = partition.assignment[source]
    inside = owner == partition.assignment[graph.indices]
    edges = np.bincount(owner[inside], minlength=partition.spec.clients) // 2  # both directions are stored
    content = {
        "version": MANIFEST_VERSION,
        "dataset": graph.name,
        "spec": asdict(partition.spec),
        "provenance": dict(graph.provenance),
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "ratio_of_edges_kept": float(inside.mean()) if len(inside) else 1.0,
        "class_names": list(graph.class_names),
        "clients": [_account(graph, partition, k, int(edges[k])) for k in range(partition.spec.clients)],
    }
    return {**content, "sha256": _digest(content)}


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """Write a manifest as indented JSON, under a temporary name first, so that it is never half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a manifest after checking its fields, its version and its own sha256.

    Raises
    ------
    DataError : the file is missing, is no manifest of this version, lacks a field or was altered
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"manifest {path}: expected a file, found none; make the partition first") from None
    except (OSError, ValueError) as error:
        raise DataError(f"manifest {path}: expected JSON, found: {error}; make the partition again") from error
    missing = [name for name in _FIELDS if not isinstance(content, dict) or name not in content]
    if missing:
        raise DataError(f"manifest {path}: expected the fields {', '.join(missing)}, found none; make it again")
    if content["version"] != MANIFEST_VERSION:
        raise DataError(f"manifest {path}: expected version {MANIFEST_VERSION}, found {content['version']!r}")
    found = _digest({name: value for name, value in content.items() if name != "sha256"})
    if found != content["sha256"]:
        raise DataError(f"manifest {path}: expected sha256 {content['sha256']}, found {found}; it was altered")
    return dict(content)


def _account(graph: TextGraph, partition: Partition, k: int, edges: int) -> dict[str, Any]:
    """Return client `k`'s part of the manifest."""
    nodes = client_nodes(partition, k)
    labels, splits = graph.labels[nodes], partition.split[nodes]
    per_class = np.bincount(labels[labels != UNLABELLED], minlength=len(graph.class_names))
    per_split = np.bincount(splits, minlength=len(SPLIT_NAMES))
    return {
        "nodes": len(nodes),
        "edges": edges,
        "nodes_per_class": {name: int(count) for name, count in zip(graph.class_names, per_class, strict=True)},
        "nodes_per_split": {SPLIT_NAMES[part] or "none": int(per_split[part]) for part in range(len(SPLIT_NAMES))},
        "ids_sha256": ids_digest(graph.ids[nodes].tolist()),
    }


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_clients(clients: int, nodes: int) -> None:
    if not 1 <= clients <= nodes:
        raise DataError(f"partition clients: expected 1..{nodes}, the number of nodes, found {clients}")


def _split_down(
    graph: TextGraph, nodes: NDArray[np.int64], limit: int, seed: int, resolution: float
) -> list[NDArray[np.int64]]:
    """Return `nodes` cut into pieces of at most `limit`, along communities of the subgraph where it has any."""
    if len(nodes) <= limit:
        return [nodes]
    for finer in (resolution, 2 * resolution):
        parts = _louvain(graph, nodes, seed, finer)
        # Mostly single nodes means that there is no finer structure, as in a clique.
        if 1 < len(parts) <= len(nodes) // 2:
            return [piece for part in parts for piece in _split_down(graph, part, limit, seed, finer)]
    return _bfs_chunks(graph, nodes, limit)


def _louvain(graph: TextGraph, nodes: NDArray[np.int64], seed: int, resolution: float) -> list[NDArray[np.int64]]:
    """Return the Louvain communities of the subgraph on `nodes` (ascending), each as ascending indices."""
    inside = sp.triu(graph.adjacency()[nodes][:, nodes], k=1).tocoo()
    network = nx.Graph()
    network.add_nodes_from(range(len(nodes)))
    network.add_edges_from(zip(inside.row.tolist(), inside.col.tolist(), strict=True))
    communities = nx.community.louvain_communities(network, resolution=resolution, seed=seed)
    return [nodes[np.sort(np.fromiter(community, np.int64))] for community in communities]


def _bfs_chunks(graph: TextGraph, nodes: NDArray[np.int64], limit: int) -> list[NDArray[np.int64]]:
    """Cut the breadth-first order of the subgraph on `nodes` into the fewest chunks of at most `limit`, near equal."""
    inside = graph.adjacency()[nodes][:, nodes]
    _, component = connected_components(inside, directed=False)
    starts = np.unique(component, return_index=True)[1]
    orders = [breadth_first_order(inside, start, directed=False, return_predecessors=False) for start in starts]
    chunks = np.array_split(np.concatenate(orders), -(-len(nodes) // limit))
    return [nodes[np.sort(chunk)] for chunk in chunks]
