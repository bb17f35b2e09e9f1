"""Graphs on disk: a folder with a node table and an edge table, read and written with pyarrow.

`nodes.parquet`, `nodes.csv` or `nodes.jsonl` has the columns `id`, `text`, `label` and, if wanted,
`split` and `site`; `edges.parquet` or `edges.csv` has `source` and `target`, both node ids. Ids may
be integers or strings.
"""

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dance_flwr.data.graph import SPLIT_NAMES, UNLABELLED, TextGraph, csr_from_pairs
from dance_flwr.data.tables import Table, join
from dance_flwr.errors import DataError

NODE_FILES = ("nodes.parquet", "nodes.csv", "nodes.jsonl")
EDGE_FILES = ("edges.parquet", "edges.csv")
CLASSES_KEY = b"dance_flwr.class_names"  # in the Parquet metadata: a class without a node would be lost otherwise


def read_folder(path: Path) -> TextGraph:
    """Return the graph in a folder; edges are made undirected, self loops dropped, duplicates
    merged.

    An empty or missing label means unlabelled; a missing text counts as empty, is kept and warned
    about. The graph takes the folder's name; its provenance holds each file's sha256. Rows in
    messages count from 1, without the header.

    Raises
    ------
    DataError : the folder, a file or a column is missing, a file cannot be parsed, ids are empty or
        repeat, a split value is unknown, an edge names an unknown node, or there is no node
    """
    if not path.is_dir():
        raise DataError(
            f"dataset folder {str(path)!r} is missing; expected a folder with nodes.* and edges.*"
        )
    nodes_file, edges_file = find(path, NODE_FILES), find(path, EDGE_FILES)
    nodes = Table(nodes_file)
    where = str(nodes_file)
    names = ["id", "label", *(name for name in ("split", "site") if name in nodes.names)]
    parts: dict[str, list[Any]] = {name: [] for name in names}
    texts: list[str] = []
    for batch in nodes.batches([*names, "text"]):
        texts += batch["text"].to_pylist()  # a batch at a time: the column is never held twice
        for name in names:
            parts[name].append(batch[name])
    columns = {name: join(arrays) for name, arrays in parts.items()}
    ids = check_ids(columns["id"], where)
    _warn_of_empty(texts, where)
    class_names, labels = _labels(columns["label"], declared_classes(nodes.metadata))
    split = (
        split_codes(columns["split"], where) if "split" in columns else np.zeros(len(ids), np.uint8)
    )
    source, target = edge_ends(
        Table(edges_file).read(("source", "target")), ids, str(edges_file), where
    )
    indptr, indices = csr_from_pairs(source, target, len(ids))
    return TextGraph(
        name=path.resolve().name,
        ids=np.array(ids.to_pylist(), dtype=np.str_),
        texts=texts,
        labels=labels,
        class_names=class_names,
        indptr=indptr,
        indices=indices,
        split=split,
        provenance={file.name: f"sha256:{file_sha256(file)}" for file in (nodes_file, edges_file)},
        site=_sites(columns["site"], where) if "site" in columns else None,
    )


def folder_identity(path: Path) -> str:
    """Return the sha256 of the folder's two files: what `read_folder` would give, without reading
    it.
    """
    return "+".join(file_sha256(find(path, names)) for names in (NODE_FILES, EDGE_FILES))


def write_folder(graph: TextGraph, path: Path) -> None:
    """Write `nodes.parquet` and `edges.parquet`, each undirected edge once; `read_folder` gives the
    graph back.

    Each file is written under a temporary name and then moved into place, so none is ever half
    written. The name and the provenance are not stored: they follow from the folder.

    Raises
    ------
    DataError : the folder already holds a node or edge table in another format
    """
    path.mkdir(parents=True, exist_ok=True)
    rivals = [name for name in (*NODE_FILES[1:], *EDGE_FILES[1:]) if (path / name).exists()]
    if rivals:
        raise DataError(
            f"{path}: expected no other tables than Parquet to write to, found {rivals[0]}; remove it"
        )
    names = np.array([*graph.class_names, None], dtype=object)  # UNLABELLED = -1 picks the last
    splits = np.array([name or None for name in SPLIT_NAMES], dtype=object)
    columns = {"id": graph.ids.tolist(), "text": graph.texts}
    columns |= {"label": names[graph.labels].tolist(), "split": splits[graph.split].tolist()}
    if graph.site is not None:
        columns["site"] = graph.site.tolist()
    nodes = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))
    nodes = nodes.replace_schema_metadata({CLASSES_KEY: json.dumps(graph.class_names).encode()})
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    once = source < graph.indices
    ids = pa.array(graph.ids.tolist(), pa.string())
    edges = pa.table(
        {
            "source": ids.take(pa.array(source[once])),
            "target": ids.take(pa.array(graph.indices[once])),
        }
    )
    _write_atomically({path / NODE_FILES[0]: nodes, path / EDGE_FILES[0]: edges})


def _sites(values: Any, where: str) -> NDArray[np.str_]:
    """Return who holds each node, for the partitioner `by-column`."""
    empty = pc.index(values, "").as_py()
    if empty >= 0:
        raise DataError(
            f"{where} row {empty + 1}: expected a site in every row or no such column; fill it in"
        )
    return np.array(values.to_pylist(), dtype=np.str_)


def _write_atomically(tables: dict[Path, Any]) -> None:
    """Write every Parquet table beside its place, then move all of them there."""
    temporary = {file: file.with_name(f".{file.name}.{os.getpid()}.tmp") for file in tables}
    try:
        for file, table in tables.items():
            pq.write_table(table, temporary[file])
        for file, ready in temporary.items():
            ready.replace(file)
    finally:
        for ready in temporary.values():
            ready.unlink(missing_ok=True)


def find(folder: Path, names: tuple[str, ...]) -> Path:
    """Return the one file of these names that the folder holds."""
    found = [name for name in names if (folder / name).is_file()]
    if len(found) == 1:
        return folder / found[0]
    advice = f"{folder}: expected one of {', '.join(names)}"
    if not found:
        raise DataError(f"{advice}, found none; add one")
    raise DataError(f"{advice}, found {' and '.join(found)}; keep only one")


def check_ids(ids: Any, where: str) -> Any:
    """Return the ids after checking that there is one, that none is empty and that none repeats."""
    if len(ids) == 0:
        raise DataError(f"{where}: expected at least one node, found none; add rows")
    empty = pc.index(ids, "").as_py()
    if empty >= 0:
        raise DataError(
            f"{where} row {empty + 1}: expected a node id, found an empty one; fill it in"
        )
    first = pc.index_in(ids, value_set=pc.unique(ids)).to_numpy()
    if first.max() + 1 < len(ids):
        row = int(np.setdiff1d(np.arange(len(ids)), np.unique(first, return_index=True)[1])[0])
        raise DataError(
            f"{where} row {row + 1}: expected unique ids, found {ids[row].as_py()!r} again; remove one"
        )
    return ids


def _warn_of_empty(texts: list[str], where: str) -> None:
    """Count the empty texts in one warning."""
    empty = sum(not text.strip() for text in texts)
    if empty:
        warnings.warn(
            f"{where}: {empty} of {len(texts)} nodes have an empty text; they are kept",
            stacklevel=3,
        )


def declared_classes(metadata: dict[bytes, bytes]) -> tuple[str, ...]:
    """Return the classes that a Parquet table of this project declares; none for any other table."""
    return tuple(json.loads(metadata.get(CLASSES_KEY, b"[]")))


def _labels(labels: Any, declared: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the sorted class names and each node's index into them, `UNLABELLED` for an empty
    label.
    """
    names = tuple(sorted({*declared, *pc.unique(labels).to_pylist()} - {""}))
    found = pc.index_in(labels, value_set=pa.array(names, pa.large_string()))
    return names, pc.fill_null(found, UNLABELLED).to_numpy(zero_copy_only=False).astype(np.int64)


def split_codes(values: Any, where: str) -> NDArray[np.uint8]:
    """Return NO_SPLIT, TRAIN, VAL or TEST of each node."""
    found = pc.index_in(values, value_set=pa.array(SPLIT_NAMES, pa.large_string()))
    row = pc.index(pc.is_null(found), True).as_py()
    if row >= 0:
        expected = ", ".join(SPLIT_NAMES[1:])
        raise DataError(
            f"{where} row {row + 1}: expected split {expected} or empty, found {values[row].as_py()!r}"
        )
    split: NDArray[np.uint8] = found.to_numpy().astype(np.uint8)
    return split


def edge_ends(
    columns: dict[str, Any], ids: Any, where: str, nodes: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of `ids` that the two columns of an edge table name, [m] int64 each.

    Raises
    ------
    DataError : an edge names an id that is not there
    """
    ends = []
    for column, values in columns.items():
        found = pc.index_in(values, value_set=ids)
        row = pc.index(pc.is_null(found), True).as_py()
        if row >= 0:
            unknown = values[row].as_py()
            raise DataError(
                f"{where} row {row + 1}: expected a {column} id of {nodes}, found {unknown!r}; mend the edge"
            )
        ends.append(found.to_numpy().astype(np.int64))
    return ends[0], ends[1]


def file_sha256(file: Path) -> str:
    """Return the sha256 hex of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
