"""Graphs on disk: a folder with a node table and an edge table, read and written with pyarrow.

`nodes.parquet`, `nodes.csv` or `nodes.jsonl` has the columns `id`, `text`, `label` and, if wanted, `split`;
`edges.parquet` or `edges.csv` has `source` and `target`, both node ids. Ids may be integers or strings.
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
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dance_flwr.errors import DataError
from dance_flwr.graph import SPLIT_NAMES, UNLABELLED, TextGraph, csr_from_pairs

NODE_FILES = ("nodes.parquet", "nodes.csv", "nodes.jsonl")
EDGE_FILES = ("edges.parquet", "edges.csv")
_CLASSES_KEY = b"dance_flwr.class_names"  # in the Parquet metadata: a class without a node would be lost otherwise
_BOM = b"\xef\xbb\xbf"


def read_folder(path: Path) -> TextGraph:
    """Return the graph in a folder; edges are made undirected, self loops dropped, duplicates merged.

    An empty or missing label means unlabelled; a missing text counts as empty, is kept and warned about. The graph
    takes the folder's name; its provenance holds each file's sha256. Rows in messages count from 1, without the
    header.

    Raises
    ------
    DataError : the folder, a file or a column is missing, a file cannot be parsed, ids are empty or repeat, a
        split value is unknown, an edge names an unknown node, or there is no node
    """
    if not path.is_dir():
        raise DataError(f"dataset folder {str(path)!r} is missing; expected a folder with nodes.* and edges.*")
    nodes_file, edges_file = _find(path, NODE_FILES), _find(path, EDGE_FILES)
    nodes = _read_table(nodes_file)
    where = str(nodes_file)
    ids = _node_ids(_strings(nodes, "id", where), where)
    texts = _texts(_strings(nodes, "text", where), where)
    class_names, labels = _labels(_strings(nodes, "label", where), nodes.schema.metadata)
    if "split" in nodes.column_names:
        split = _splits(_strings(nodes, "split", where), where)
    else:
        split = np.zeros(len(ids), np.uint8)
    indptr, indices = _edges(edges_file, ids, where)
    return TextGraph(
        name=path.resolve().name,
        ids=np.array(ids.to_pylist(), dtype=np.str_),
        texts=texts,
        labels=labels,
        class_names=class_names,
        indptr=indptr,
        indices=indices,
        split=split,
        provenance={file.name: f"sha256:{_sha256(file)}" for file in (nodes_file, edges_file)},
    )


def folder_identity(path: Path) -> str:
    """Return the sha256 of the folder's two files: what `read_folder` would give, without reading it."""
    return "+".join(_sha256(_find(path, names)) for names in (NODE_FILES, EDGE_FILES))


def write_folder(graph: TextGraph, path: Path) -> None:
    """Write `nodes.parquet` and `edges.parquet`, each undirected edge once; `read_folder` gives the graph back.

    Each file is written under a temporary name and then moved into place, so none is ever half written. The name
    and the provenance are not stored: they follow from the folder.

    Raises
    ------
    DataError : the folder already holds a node or edge table in another format
    """
    path.mkdir(parents=True, exist_ok=True)
    rivals = [name for name in (*NODE_FILES[1:], *EDGE_FILES[1:]) if (path / name).exists()]
    if rivals:
        raise DataError(f"{path}: expected no other tables than Parquet to write to, found {rivals[0]}; remove it")
    names = np.array([*graph.class_names, None], dtype=object)  # UNLABELLED = -1 picks the last
    splits = np.array([name or None for name in SPLIT_NAMES], dtype=object)
    columns = {"id": graph.ids.tolist(), "text": graph.texts}
    columns |= {"label": names[graph.labels].tolist(), "split": splits[graph.split].tolist()}
    nodes = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))
    nodes = nodes.replace_schema_metadata({_CLASSES_KEY: json.dumps(graph.class_names).encode()})
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    once = source < graph.indices
    ids = pa.array(graph.ids.tolist(), pa.string())
    edges = pa.table({"source": ids.take(pa.array(source[once])), "target": ids.take(pa.array(graph.indices[once]))})
    _write_atomically({path / NODE_FILES[0]: nodes, path / EDGE_FILES[0]: edges})


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


def _find(folder: Path, names: tuple[str, ...]) -> Path:
    """Return the one file of these names that the folder holds."""
    found = [name for name in names if (folder / name).is_file()]
    if len(found) == 1:
        return folder / found[0]
    advice = f"{folder}: expected one of {', '.join(names)}"
    if not found:
        raise DataError(f"{advice}, found none; add one")
    raise DataError(f"{advice}, found {' and '.join(found)}; keep only one")


def _read_table(file: Path) -> Any:
    """Return the file's table; CSV and JSON values arrive as strings, so that an id `007` stays `007`."""
    try:
        if file.suffix == ".parquet":
            return pq.read_table(file, partitioning=None)
        data = file.read_bytes().removeprefix(_BOM)
        if file.suffix == ".jsonl":
            return _read_jsonl(data, file)
        return _read_csv(data)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file}: expected a readable {file.suffix[1:]} table, found: {reason}; mend the file"
        ) from error


def _read_csv(data: bytes) -> Any:
    """Return the table of a CSV text with a header; quoted values may hold newlines and commas."""
    # The whole file is one block: a value longer than a block would be refused.
    read = pa_csv.ReadOptions(block_size=min(max(len(data), 1 << 20), (1 << 31) - 1))
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    types = dict.fromkeys(("id", "text", "label", "split", "source", "target"), pa.string())
    convert = pa_csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    return pa_csv.read_csv(pa.BufferReader(data), read_options=read, parse_options=parse, convert_options=convert)


def _read_jsonl(data: bytes, file: Path) -> Any:
    """Return the table of one JSON object a line; a key absent from a line is null, one absent from all is no column.

    Arrow's own reader guesses one type per column and turns an id such as `2020-01-01` into a time.
    """
    records = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{file} line {number}: expected a JSON object, found: {error}; mend the line") from error
        if not isinstance(record, dict):
            raise DataError(f"{file} line {number}: expected a JSON object, found {record!r:.40}; mend the line")
        records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: [_plain(record.get(name)) for record in records] for name in names}
    return pa.table(columns, schema=pa.schema([(name, pa.string()) for name in names]))


def _plain(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _strings(table: Any, column: str, where: str) -> Any:
    """Return a column as one Arrow string array; null becomes the empty string."""
    if table.column_names.count(column) != 1:
        found = ", ".join(table.column_names) or "no column"
        raise DataError(f"{where}: expected one column {column!r}, found {found}; rename or add it")
    try:
        values = pc.cast(table.column(column), pa.large_string())
    except pa.ArrowException as error:
        kind = table.schema.field(column).type
        raise DataError(f"{where}: expected strings or numbers in {column!r}, found {kind}; convert it") from error
    merged = pc.fill_null(values, "").combine_chunks()
    return pa.concat_arrays(merged.chunks) if isinstance(merged, pa.ChunkedArray) else merged


def _node_ids(ids: Any, where: str) -> Any:
    """Return the ids after checking that there is one, that none is empty and that none repeats."""
    if len(ids) == 0:
        raise DataError(f"{where}: expected at least one node, found none; add rows")
    empty = pc.index(ids, "").as_py()
    if empty >= 0:
        raise DataError(f"{where} row {empty + 1}: expected a node id, found an empty one; fill it in")
    first = pc.index_in(ids, value_set=pc.unique(ids)).to_numpy()
    if first.max() + 1 < len(ids):
        row = int(np.setdiff1d(np.arange(len(ids)), np.unique(first, return_index=True)[1])[0])
        raise DataError(f"{where} row {row + 1}: expected unique ids, found {ids[row].as_py()!r} again; remove one")
    return ids


def _texts(texts: Any, where: str) -> list[str]:
    """Return the texts as a list; empty ones are counted in one warning."""
    values: list[str] = texts.to_pylist()
    empty = sum(not text.strip() for text in values)
    if empty:
        warnings.warn(f"{where}: {empty} of {len(values)} nodes have an empty text; they are kept", stacklevel=3)
    return values


def _labels(labels: Any, metadata: dict[bytes, bytes] | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the sorted class names and each node's index into them, `UNLABELLED` for an empty label."""
    declared = json.loads((metadata or {}).get(_CLASSES_KEY, b"[]"))
    names = tuple(sorted({*declared, *pc.unique(labels).to_pylist()} - {""}))
    found = pc.index_in(labels, value_set=pa.array(names, pa.large_string()))
    return names, pc.fill_null(found, UNLABELLED).to_numpy(zero_copy_only=False).astype(np.int64)


def _splits(values: Any, where: str) -> NDArray[np.uint8]:
    """Return NO_SPLIT, TRAIN, VAL or TEST of each node."""
    found = pc.index_in(values, value_set=pa.array(SPLIT_NAMES, pa.large_string()))
    row = pc.index(pc.is_null(found), True).as_py()
    if row >= 0:
        expected = ", ".join(SPLIT_NAMES[1:])
        raise DataError(f"{where} row {row + 1}: expected split {expected} or empty, found {values[row].as_py()!r}")
    split: NDArray[np.uint8] = found.to_numpy().astype(np.uint8)
    return split


def _edges(file: Path, ids: Any, nodes: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the CSR neighbour lists (indptr, indices) of the edge table over these node ids."""
    table = _read_table(file)
    ends = []
    for column in ("source", "target"):
        values = _strings(table, column, str(file))
        found = pc.index_in(values, value_set=ids)
        row = pc.index(pc.is_null(found), True).as_py()
        if row >= 0:
            unknown = values[row].as_py()
            raise DataError(
                f"{file} row {row + 1}: expected a {column} id of {nodes}, found {unknown!r}; mend the edge"
            )
        ends.append(found.to_numpy().astype(np.int64))
    return csr_from_pairs(ends[0], ends[1], len(ids))


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
