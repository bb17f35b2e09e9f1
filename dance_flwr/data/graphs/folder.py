"""Graph folders as this project writes them: a node table and an edge table in Parquet.

`nodes.parquet` has the columns `id` and `text`, and optionally the others of `TextGraph.columns`:
`label`, `split` and `site`; `edges.parquet` has `source` and `target`, both node ids, and
optionally a `text` and a `weight` of each row: each text of an edge has a row, and its weight is
the sum over its rows. What others write is imported (`dance_flwr.data.imports`).
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dance_flwr.data.graphs.edges import EdgeTexts, check_weights, csr_rows, csr_weights, pair_codes
from dance_flwr.data.graphs.graph import SPLIT_NAMES, UNLABELLED, TextGraph, csr_from_pairs
from dance_flwr.data.graphs.tables import join, parquet_table
from dance_flwr.disk import atomic_path, create_folder
from dance_flwr.errors import DataError, counted
from dance_flwr.fingerprint import file_sha256

_ENDS = ("source", "target")
_TEXT, _WEIGHT = "text", "weight"  # optional columns of edges
_READ_ALWAYS = ("id", "text")
_EDGES = 1 << 20  # of a row group
NODES, EDGES = "nodes.parquet", "edges.parquet"
# In the Parquet metadata: it marks our own tables, and keeps classes without a node.
CLASSES_KEY = b"dance_flwr.class_names"


def is_ours(path: Path) -> bool:
    """Return whether a folder holds the two tables that this project writes."""
    nodes = path / NODES
    has_both = nodes.is_file() and (path / EDGES).is_file()
    return has_both and CLASSES_KEY in parquet_table(nodes).metadata


def read_folder(path: Path) -> TextGraph:
    """Return the undirected graph stored in a folder, unchanged.

    A missing label means unlabelled, and an empty site none: only the partitioner `by-column`
    needs one for every node. The graph takes the folder's name; its provenance lists each file's
    sha256. Rows in messages count from 1.

    Raises
    ------
    DataError : a table or a column is missing, a file cannot be parsed, an id is empty or repeats,
        a split value is unknown, an edge names an unknown node, or there is no node
    """
    if not path.is_dir():
        raise DataError(
            f"{path}: expected a folder with {NODES} and {EDGES}, found none; check the path"
        )
    # Resolved, as `.` has no name.
    hashes = {file: f"sha256:{file_sha256(path / file)}" for file in (NODES, EDGES)}
    graph = stored_graph(path, path.resolve().name, hashes)
    if empty := sum(not text.strip() for text in graph.texts):
        line = (
            f"{path / NODES}: {empty} of {len(graph.texts)} nodes have an empty text; they are kept"
        )
        warnings.warn(line, stacklevel=2)
    return graph


def stored_graph(path: Path, name: str, provenance: dict[str, str]) -> TextGraph:
    """Return the graph in the two tables of a folder, without self loops and duplicate edges.

    Weights of an edge that is listed several times are summed, and all its texts kept.
    """
    nodes, edges = parquet_table(path / NODES), parquet_table(path / EDGES, "edges")
    names = ["id", *(n for n in TextGraph.columns() if n in nodes.names and n not in _READ_ALWAYS)]
    parts: dict[str, list[Any]] = {name: [] for name in names}
    texts: list[str] = []
    for batch in nodes.batches([*names, "text"]):
        texts += batch["text"].to_pylist()  # batch by batch, so that the column is never held twice
        for column in names:
            parts[column].append(batch[column])
    columns = {column: join(arrays) for column, arrays in parts.items()}
    ids = check_ids(columns["id"], nodes.where)
    class_names = declared_classes(nodes.metadata, nodes.where)
    labels, split = np.full(len(ids), UNLABELLED), np.zeros(len(ids), np.uint8)
    if "label" in columns:
        class_names, labels = _labels(columns["label"], class_names)
    if "split" in columns:
        split = split_codes(columns["split"], name)
    named = edges.read([*_ENDS, *(n for n in (_TEXT, _WEIGHT) if n in edges.names)])
    where = edges.where, nodes.where
    source, target = (_rows_of(named[end], end, ids, where) for end in _ENDS)
    ends = source, target
    weights = _weights(named[_WEIGHT], edges.where) if _WEIGHT in named else None
    csr = csr_from_pairs(*ends, len(ids))
    return TextGraph(
        name=name,
        ids=np.array(ids.to_pylist(), dtype=np.str_),
        texts=texts,
        labels=labels,
        class_names=class_names,
        indptr=csr[0],
        indices=csr[1],
        split=split,
        provenance=provenance,
        weights=csr_weights(csr, *ends, weights),
        edge_texts=EdgeTexts.of(*ends, named[_TEXT].to_pylist()) if _TEXT in named else None,
        **{
            attribute: np.array(columns[column].to_pylist(), np.str_)
            for column, attribute in TextGraph.columns(plain=True).items()
            if column in columns
        },
    )


def write_folder(graph: TextGraph, path: Path) -> None:
    """Write `nodes.parquet` and `edges.parquet`, each undirected edge once, for `read_folder`.

    An edge with several texts has a row for each. Both files are complete before either is moved
    into place. The name and the provenance are not stored, as they follow from the folder.
    """
    create_folder(path)
    # A folder with two tables of nodes or of edges would be ambiguous.
    tables = [f.name for kind in ("nodes", "edges") for f in sorted(path.glob(f"{kind}.*"))]
    others = [name for name in tables if name not in (NODES, EDGES)]
    if others:
        raise DataError(f"{path}: expected no tables but Parquet, found {others[0]}; remove it")
    names = np.array([*graph.class_names, None], dtype=object)  # UNLABELLED = -1 selects the last
    splits = np.array([name or None for name in SPLIT_NAMES], dtype=object)
    written = graph.per_node() | {"labels": names[graph.labels], "split": splits[graph.split]}
    columns = {
        column: values if isinstance(values := written[attribute], list) else values.tolist()
        for column, attribute in graph.columns().items()
        if attribute in written
    }
    nodes = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))
    nodes = nodes.replace_schema_metadata({CLASSES_KEY: json.dumps(graph.class_names).encode()})
    ids = pa.array(graph.ids.tolist(), pa.string())
    with (
        atomic_path(path / NODES) as nodes_draft,
        atomic_path(path / EDGES) as edges_draft,
    ):
        pq.write_table(nodes, nodes_draft)
        if graph.weights is None and graph.edge_texts is None:
            source = csr_rows(graph.indptr)
            # The graph is symmetric, so the half above the diagonal is all of it.
            once = source < graph.indices
            write_edges(edges_draft, ids, source[once], graph.indices[once])
        else:
            pq.write_table(_attributed_table(graph, ids), edges_draft)


def write_edges(file: Path, ids: Any, source: NDArray[np.int64], target: NDArray[np.int64]) -> None:
    """Write edges by node id in row groups, from the rows of their ends."""
    ends = {"source": source, "target": target}
    with pq.ParquetWriter(file, pa.schema(dict.fromkeys(ends, pa.string()))) as writer:
        for start in range(0, len(source) or 1, _EDGES):
            part = slice(start, start + _EDGES)
            writer.write_table(
                pa.table({name: ids.take(pa.array(rows[part])) for name, rows in ends.items()})
            )


def _attributed_table(graph: TextGraph, ids: Any) -> Any:
    """Return the Arrow table of a graph's edges, with their weights and texts if any.

    Texts come first, in their order and one a row; then the edges without one. `stored_graph`
    gives the same weights and texts again.

    Parameters
    ----------
    ids : string array of the node ids
    """
    n, rows = graph.num_nodes, csr_rows(graph.indptr)
    once = rows < graph.indices
    low, high = rows[once], graph.indices[once]
    texts = graph.edge_texts or EdgeTexts(low[:0], low[:0], ())
    codes, listed = pair_codes(low, high, n), pair_codes(texts.source, texts.target, n)
    rest = ~np.isin(codes, listed)
    ends = {
        "source": np.concatenate([texts.source, low[rest]]),
        "target": np.concatenate([texts.target, high[rest]]),
    }
    columns = {name: ids.take(pa.array(rows)) for name, rows in ends.items()}
    if graph.edge_texts is not None:
        columns[_TEXT] = pa.array([*texts.texts, *[None] * int(rest.sum())], pa.string())
    if graph.weights is not None:
        weights = graph.weights[once]
        # An edge of several texts has its weight in the first row, so that the sum is its weight.
        pairs, first = np.unique(listed, return_index=True)
        order = np.argsort(codes, kind="stable")
        of_texts = np.zeros(len(listed), np.float32)
        of_texts[first] = weights[order[np.searchsorted(codes, pairs, sorter=order)]]
        columns[_WEIGHT] = pa.array(np.concatenate([of_texts, weights[rest]]), pa.float32())
    return pa.table(columns)


def _weights(values: Any, where: str) -> NDArray[np.float32]:
    """Return the weights of the rows of a table of edges, from strings."""
    try:
        weights = np.array(values.to_pylist(), np.float32)
    except ValueError as error:
        raise DataError(
            f"{where}: expected a number in every row of {_WEIGHT!r}, found {error}; correct "
            "it, or leave the column out"
        ) from None
    check_weights(weights, len(values), where)
    return weights


def check_ids(ids: Any, where: str) -> Any:
    """Return the ids after checking that there are some, none empty and none twice."""
    if len(ids) == 0:
        raise DataError(f"{where}: expected at least one node, found none; add rows")
    empty = pc.index(ids, "").as_py()
    if empty >= 0:
        raise DataError(
            f"{where} row {empty + 1}: expected a node id, found an empty one; fill it in, or give "
            "--nameless drop"
        )
    # With Arrow's hash table no Python string is made unless an id repeats.
    first = pc.index_in(ids, value_set=pc.unique(ids)).to_numpy()
    if first.max() + 1 < len(ids):
        row = int(np.setdiff1d(np.arange(len(ids)), np.unique(first, return_index=True)[1])[0])
        raise DataError(
            f"{where} row {row + 1}: expected unique ids, found {ids[row].as_py()!r} again"
            f"{_more(len(ids) - first.max() - 2)}; remove one, or give --duplicates merge or first"
        )
    return ids


def _more(rows: int) -> str:
    return f", and {counted(rows, 'more row')} of ids that are there before" if rows else ""


def declared_classes(metadata: Mapping[bytes, bytes], where: str) -> tuple[str, ...]:
    """Return the classes in the metadata of a Parquet table that this project wrote, else none."""
    try:
        names = json.loads(metadata.get(CLASSES_KEY, b"[]"))
        "".join(names).encode()  # half a character cannot be stored
    except (ValueError, TypeError, RecursionError):
        names = None
    if not isinstance(names, list):
        key = CLASSES_KEY.decode()
        raise DataError(
            f"{where}: expected a list of names in the metadata {key!r}, found something else; "
            "write the table again"
        )
    return tuple(names)


def _labels(labels: Any, declared: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the sorted class names and each node's index, `UNLABELLED` for an empty label."""
    # Sorted: the numbers of classes follow from the names, not from the order of the rows.
    names = tuple(sorted({*declared, *pc.unique(labels).to_pylist()} - {""}))
    codes = pc.index_in(labels, value_set=pa.array(names, pa.large_string()))
    return names, pc.fill_null(codes, UNLABELLED).to_numpy(zero_copy_only=False).astype(np.int64)


def split_codes(values: Any, where: str) -> NDArray[np.uint8]:
    """Return the code NO_SPLIT, TRAIN, VAL or TEST of each node, [n] uint8."""
    codes = pc.index_in(values, value_set=pa.array(SPLIT_NAMES, pa.large_string()))
    row = pc.index(pc.is_null(codes), True).as_py()
    if row >= 0:
        expected = ", ".join(SPLIT_NAMES[1:])
        raise DataError(
            f"{where} row {row + 1}: expected split {expected} or empty, "
            f"found {values[row].as_py()!r}; correct it"
        )
    split: NDArray[np.uint8] = codes.to_numpy().astype(np.uint8)
    return split


def _rows_of(values: Any, end: str, ids: Any, where: tuple[str, str]) -> NDArray[np.int64]:
    """Return the row of the node that each edge names at one end, [m] int64.

    Parameters
    ----------
    where : the tables of edges and of nodes, for messages
    """
    rows = pc.index_in(values, value_set=ids)
    row = pc.index(pc.is_null(rows), True).as_py()
    if row >= 0:
        raise DataError(
            f"{where[0]} row {row + 1}: expected a {end} id of {where[1]}, "
            f"found {values[row].as_py()!r}; correct the edge"
        )
    return rows.to_numpy().astype(np.int64)  # type: ignore[no-any-return]
