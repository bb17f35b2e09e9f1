"""Graphs that libraries save: folders of `datasets`, and `.pt` files of torch-geometric."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from dance_flwr.data.graphs.graph import SPLIT_NAMES
from dance_flwr.data.graphs.limits import Meter, listed
from dance_flwr.data.graphs.tables import require
from dance_flwr.data.imports import pickles
from dance_flwr.data.imports.columns import MemoryColumns
from dance_flwr.data.imports.imported import Ends, ends_of
from dance_flwr.data.imports.node_arrays import integers, label_names, split_names
from dance_flwr.data.imports.saved_datasets import NEIGHBOUR_COLUMNS, SavedDataset, open_saved
from dance_flwr.data.imports.source import Columns, GraphFile
from dance_flwr.data.imports.tables import open_table
from dance_flwr.errors import DataError

_EDGE_FILES = ("edges.parquet", "edges.csv")


def read_saved_dataset(folder: Path, key: str = "") -> GraphFile:
    """Return the graph of a saved data set with an edge table or a column of neighbours.

    Ids are row numbers where there is no column `id`. The parts of the data set are its split. The
    classes are those of the column `label`, or of the only one that declares classes.

    Parameters
    ----------
    key : column of the ids that the neighbours are; empty for the usual one
    """
    source = open_saved(folder)
    key = key or ("id" if "id" in source.names else "")
    nodes = _SavedColumns(source, "" if key else _unused("row", source.names))
    roles = {"id": key or nodes.numbers}
    if "split" in nodes.names:
        roles["split"] = "split"
    declared = [name for name in ("label", *source.classes) if name in source.classes]
    if len(source.classes) == 1 or declared[:1] == ["label"]:
        roles["label"] = declared[0]
    files = tuple(file for _, file in source.parts)
    table = next((folder / name for name in _EDGE_FILES if (folder / name).is_file()), None)
    column = next((name for name in NEIGHBOUR_COLUMNS if name in source.names), "")
    edges: Columns
    if table:
        edges, files = open_table(table, rows="edges"), (*files, table)
    elif column:
        ends = source.neighbours(column, key)
        edges = MemoryColumns(
            folder, "edges", len(ends["source"]), {name: _taken(ends[name]) for name in ends}
        )
        roles |= {name: name for name in ends}
    else:
        raise DataError(
            f"{folder}: expected edges.parquet or edges.csv, or a column {NEIGHBOUR_COLUMNS[0]!r} "
            "with the ids of each node's neighbours, found neither; add one"
        )
    classes = tuple(source.classes.get(roles.get("label", ""), ()))
    return GraphFile("saved data set", files, nodes, edges, roles, classes=classes)


class _SavedColumns:
    """The rows of a saved data set, with their numbers and the names of their parts.

    Attributes
    ----------
    numbers : column of the row numbers; empty if there is none
    """

    def __init__(self, source: SavedDataset, numbers: str) -> None:
        self.where, self.numbers, self._source = str(source.folder), numbers, source
        has_parts = any(split for split, _ in source.parts) and "split" not in source.names
        self.names = [*filter(None, [numbers]), *source.names, *(["split"] if has_parts else [])]
        Meter(self.where).columns(len(self.names))

    def batches(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield batches, see `source.Columns`."""
        require(self.names, columns, self.where)
        start = 0
        for size, batch in self._stored([name for name in columns if name != self.numbers]):
            if self.numbers in columns:
                numbers = pa.array(map(str, range(start, start + size)), pa.large_string())
                batch = {**batch, self.numbers: numbers}
            start += size
            yield batch

    def _stored(self, columns: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number of rows and the columns of each batch."""
        if columns:
            yield from ((len(b[columns[0]]), b) for b in self._source.batches(columns))
            return
        meter = Meter(self.where)
        for _, batch in self._source.raw(self._source.names[:1], meter):
            meter.rows(len(batch))
            yield len(batch), {}


def read_pyg(file: Path, split_index: int = 0) -> GraphFile:
    """Return the graph in a PyG `Data` file with texts; ids are row numbers, masks are the split.

    Lists of strings and tensors of whole numbers with one entry per node are columns.
    """
    return pyg_data(pickles.as_mapping(pickles.load(file), file), (file,), split_index)


def pyg_data(data: Mapping[str, Any], files: tuple[Path, ...], split_index: int = 0) -> GraphFile:
    """Return the graph of a PyG `Data` object as a mapping, see `read_pyg`."""
    file, where = files[0], str(files[0])
    texts = next((key for key in (*pickles.TEXT_KEYS, *data) if _is_texts(key, data.get(key))), "")
    if not texts:
        raise DataError(
            f"{where}: expected node texts in {' or '.join(pickles.TEXT_KEYS)!r}, found "
            f"{listed(data)}; name the key with --text"
        )
    n = len(data[texts])
    Meter(file).rows(n, declared=True)
    columns: dict[str, Callable[[], Any]] = {_unused("row", data): lambda: range(n)}
    roles = {"id": next(iter(columns)), "text": texts, "source": "source", "target": "target"}
    label = next((key for key in ("y", "label") if data.get(key) is not None), "")
    classes = next(
        (tuple(map(str, data[k])) for k in pickles.LABEL_NAME_KEYS if data.get(k) is not None), ()
    )
    for key, value in data.items():
        if _is_texts(key, value) and len(value) == n:
            columns[key] = cache(lambda key=key: pickles.strings(data[key], f"{where}: {key!r}"))
        elif key == label:
            columns[key] = cache(lambda: _labels(data[label], label, classes, n, where))
            roles["label"] = key
        elif _is_numbers(key, value, n):
            columns[key] = cache(lambda key=key: integers(data[key], key, where))
    if label:
        columns[label]()  # before the edges: labels show best that texts are missing
    if any(data.get(f"{name}_mask") is not None for name in SPLIT_NAMES[1:]):
        roles["split"] = _unused("split", columns)
        columns[roles["split"]] = cache(lambda: split_names(data, n, split_index, where))
    return GraphFile(
        "PyG Data",
        files,
        MemoryColumns(file, "nodes", n, {key: _rows_of(values) for key, values in columns.items()}),
        _edges(data, n, file),
        roles,
        classes=classes if label else (),
    )


def _edges(data: Mapping[str, Any], num_nodes: int, file: Path) -> MemoryColumns:
    """Return the columns of `edge_index`, [2, m]."""
    source, target = _ends(data.get("edge_index"), num_nodes, str(file))
    columns = {"source": _rows_of(lambda: source), "target": _rows_of(lambda: target)}
    return MemoryColumns(file, "edges", len(source), columns)


def _ends(values: Any, num_nodes: int, where: str) -> Ends:
    """Return the two ends of each edge of an `edge_index`, [m] int64 each."""
    ends = integers(values, "edge_index", where)
    if tuple(values.shape) == (2, 1):  # one edge, and no column of two numbers
        ends = ends[:, None]
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise DataError(
            f"{where}: expected 'edge_index' of shape [2, m], found {list(ends.shape)}; "
            "transpose it"
        )
    Meter(where, "edges").rows(ends.shape[1])
    return ends_of(ends, num_nodes, where)


def _labels(values: Any, key: str, classes: Sequence[str], n: int, where: str) -> list[str]:
    return label_names(integers(values, key, where), list(classes), n, where)[0]


def _is_texts(key: str, value: Any) -> bool:
    """Whether a value is texts, or should be by its key."""
    if not isinstance(value, list | tuple) or key in pickles.LABEL_NAME_KEYS:
        return False
    strings = bool(value) and all(isinstance(entry, str | None) for entry in value)
    return strings or key in pickles.TEXT_KEYS


def _is_numbers(key: str, value: Any, n: int) -> bool:
    """Whether a value has one number per node; masks are the split, and float tensors features."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and not key.endswith("_mask")
        and tuple(value.shape) in ((n,), (n, 1))
        and not value.is_floating_point()
    )


def _rows_of(values: Callable[[], Any]) -> Callable[[slice], Sequence[Any]]:
    """Return a column that is made when it is read, for `MemoryColumns`."""
    return lambda rows: list(values()[rows])


def _taken(values: Any) -> Callable[[slice], Sequence[Any]]:
    """Return the rows of an Arrow array, for `MemoryColumns`."""
    return lambda rows: values[rows].to_pylist()


def _unused(name: str, names: Mapping[str, Any] | Sequence[str]) -> str:
    while name in names:
        name = "@" + name
    return name
