"""Graph folders: a node table and an edge table, read and written with pyarrow.

`nodes.parquet`, `nodes.csv` or `nodes.jsonl` has the columns `id`, `text`, `label` and optionally
`split` and `site`; `edges.parquet` or `edges.csv` has `source` and `target`, both node ids. Ids may
be integers or strings. `edges.parquet` may have a `text` and a `weight` of each row
(`edge_attributes`).
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dance_flwr.data.graphs.edge_attributes import (
    attribute_columns,
    attributed_table,
    read_attributes,
)
from dance_flwr.data.graphs.graph import SPLIT_NAMES, UNLABELLED, TextGraph, csr_from_pairs
from dance_flwr.data.graphs.tables import Table, join
from dance_flwr.disk import atomic_path
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import file_sha256

NODE_FILES = ("nodes.parquet", "nodes.csv", "nodes.jsonl")
EDGE_FILES = ("edges.parquet", "edges.csv")
# In the Parquet metadata, which keeps classes without a node.
CLASSES_KEY = b"dance_flwr.class_names"


def read_folder(path: Path, *, labelled: bool = True) -> TextGraph:
    """Return the undirected graph in a folder, without self loops and duplicate edges.

    An empty or missing label means unlabelled, and an empty site none: only the partitioner
    `by-column` needs one for every node. A node without a text is kept, with a warning. The graph
    takes the folder's name; its provenance lists each file's sha256. Rows in messages count from 1,
    without the header.

    Parameters
    ----------
    labelled : whether a column of labels is required, as for training

    Raises
    ------
    DataError : the folder, a file or a column is missing, a file cannot be parsed, an id is empty
        or repeats, a split value is unknown, an edge names an unknown node, or there is no node
    """
    if not path.is_dir():
        raise DataError(
            f"dataset folder {str(path)!r} is missing; expected a folder with nodes.* and edges.*"
        )
    nodes_file, edges_file = find_table(path, NODE_FILES), find_table(path, EDGE_FILES)
    nodes = Table(nodes_file)
    where = str(nodes_file)
    optional = ("split", "site") if labelled else ("label", "split", "site")
    names = ["id", *(["label"] if labelled else []), *(n for n in optional if n in nodes.names)]
    parts: dict[str, list[Any]] = {name: [] for name in names}
    texts: list[str] = []
    for batch in nodes.batches([*names, "text"]):
        texts += batch["text"].to_pylist()  # batch by batch, so that the column is never held twice
        for name in names:
            parts[name].append(batch[name])
    columns = {name: join(arrays) for name, arrays in parts.items()}
    ids = check_ids(columns["id"], where)
    _warn_of_empty(texts, where)
    declared = declared_classes(nodes.metadata, where)
    class_names, labels = declared, np.full(len(ids), UNLABELLED)
    if "label" in columns:
        class_names, labels = _labels(columns["label"], declared)
    split = (
        split_codes(columns["split"], where) if "split" in columns else np.zeros(len(ids), np.uint8)
    )
    edges = Table(edges_file, "edges")
    named = edges.read(("source", "target", *attribute_columns(edges)))
    ends = {name: named.pop(name) for name in ("source", "target")}
    source, target = edge_ends(ends, ids, str(edges_file), where)
    csr = csr_from_pairs(source, target, len(ids))
    weights, edge_texts = read_attributes(named, (source, target), csr, str(edges_file))
    return TextGraph(
        # Resolved, as `.` has no name.
        name=path.resolve().name,
        ids=np.array(ids.to_pylist(), dtype=np.str_),
        texts=texts,
        labels=labels,
        class_names=class_names,
        indptr=csr[0],
        indices=csr[1],
        split=split,
        provenance={file.name: f"sha256:{file_sha256(file)}" for file in (nodes_file, edges_file)},
        site=np.array(columns["site"].to_pylist(), np.str_) if "site" in columns else None,
        weights=weights,
        edge_texts=edge_texts,
    )


def folder_identity(path: Path) -> str:
    """Return the sha256 hex of the folder's two files, which decide the result of `read_folder`."""
    return "+".join(file_sha256(find_table(path, names)) for names in (NODE_FILES, EDGE_FILES))


def write_folder(graph: TextGraph, path: Path) -> None:
    """Write `nodes.parquet` and `edges.parquet`, each undirected edge once, for `read_folder`.

    An edge with several texts has a row for each. Both files are complete before either is moved
    into place. The name and the provenance are not stored, as they follow from the folder.

    Raises
    ------
    DataError : the folder already holds a node or edge table in another format
    """
    path.mkdir(parents=True, exist_ok=True)
    # `read_folder` refuses a folder with two tables of nodes or of edges.
    others = [name for name in (*NODE_FILES[1:], *EDGE_FILES[1:]) if (path / name).exists()]
    if others:
        raise DataError(f"{path}: expected no tables but Parquet, found {others[0]}; remove it")
    names = np.array([*graph.class_names, None], dtype=object)  # UNLABELLED = -1 selects the last
    splits = np.array([name or None for name in SPLIT_NAMES], dtype=object)
    columns = {"id": graph.ids.tolist(), "text": graph.texts}
    columns |= {"label": names[graph.labels].tolist(), "split": splits[graph.split].tolist()}
    if graph.site is not None:
        columns["site"] = graph.site.tolist()
    nodes = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))
    nodes = nodes.replace_schema_metadata({CLASSES_KEY: json.dumps(graph.class_names).encode()})
    ids = pa.array(graph.ids.tolist(), pa.string())
    plain = graph.weights is None and graph.edge_texts is None
    edges = edge_table(ids, graph.indptr, graph.indices) if plain else attributed_table(graph, ids)
    with (
        atomic_path(path / NODE_FILES[0]) as nodes_draft,
        atomic_path(path / EDGE_FILES[0]) as edges_draft,
    ):
        pq.write_table(nodes, nodes_draft)
        pq.write_table(edges, edges_draft)


def edge_table(ids: Any, indptr: NDArray[np.int64], indices: NDArray[np.int64]) -> Any:
    """Return the Arrow table of an undirected graph's edges by node id, each edge once."""
    source = np.repeat(np.arange(len(ids)), np.diff(indptr))
    # The graph is symmetric, so the half above the diagonal is all of it.
    once = source < indices
    ends = {"source": source[once], "target": indices[once]}
    return pa.table({name: ids.take(pa.array(rows)) for name, rows in ends.items()})


def find_table(folder: Path, names: tuple[str, ...]) -> Path:
    """Return the only file in the folder that has one of these names.

    Raises
    ------
    DataError : there is no such file, or more than one
    """
    matches = [name for name in names if (folder / name).is_file()]
    if len(matches) == 1:
        return folder / matches[0]
    expected = f"{folder}: expected one of {', '.join(names)}"
    if not matches:
        raise DataError(f"{expected}, found none; add one")
    raise DataError(f"{expected}, found {' and '.join(matches)}; keep only one")


def check_ids(ids: Any, where: str) -> Any:
    """Return the ids after checking that there are any, that none is empty and that none repeats.

    Raises
    ------
    DataError : there is no id, or one is empty or repeats
    """
    if len(ids) == 0:
        raise DataError(f"{where}: expected at least one node, found none; add rows")
    empty = pc.index(ids, "").as_py()
    if empty >= 0:
        raise DataError(
            f"{where} row {empty + 1}: expected a node id, found an empty one; fill it in"
        )
    # With Arrow's hash table no Python string is made unless an id repeats.
    first = pc.index_in(ids, value_set=pc.unique(ids)).to_numpy()
    if first.max() + 1 < len(ids):
        row = int(np.setdiff1d(np.arange(len(ids)), np.unique(first, return_index=True)[1])[0])
        raise DataError(
            f"{where} row {row + 1}: expected unique ids, found {ids[row].as_py()!r} again; "
            "remove one"
        )
    return ids


def _warn_of_empty(texts: list[str], where: str) -> None:
    """Report the number of empty texts in one warning."""
    empty = sum(not text.strip() for text in texts)
    if empty:
        warnings.warn(
            f"{where}: {empty} of {len(texts)} nodes have an empty text; they are kept",
            stacklevel=3,
        )


def declared_classes(metadata: dict[bytes, bytes], where: str) -> tuple[str, ...]:
    """Return the classes in the metadata of a Parquet table that this project wrote, else none.

    Raises
    ------
    DataError : the metadata are no list of names
    """
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
    """Return the code NO_SPLIT, TRAIN, VAL or TEST of each node, [n] uint8.

    Raises
    ------
    DataError : a value is not the name of a split
    """
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


def edge_ends(
    columns: dict[str, Any], ids: Any, where: str, nodes: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of `ids` that the two columns of an edge table name, [m] int64 each.

    Raises
    ------
    DataError : an edge names an unknown id
    """
    ends = []
    for column, values in columns.items():
        rows = pc.index_in(values, value_set=ids)
        row = pc.index(pc.is_null(rows), True).as_py()
        if row >= 0:
            unknown = values[row].as_py()
            raise DataError(
                f"{where} row {row + 1}: expected a {column} id of {nodes}, found {unknown!r}; "
                "correct the edge"
            )
        ends.append(rows.to_numpy().astype(np.int64))
    return ends[0], ends[1]
