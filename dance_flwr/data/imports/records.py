"""Tables from parsed records, columns and JSON."""

import codecs
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.layouts import ENDS, GraphFile, declared
from dance_flwr.errors import DataError

Record = dict[str, Any]
_ROWS = 4096  # of a batch
# Objects in a record whose entries stand beside the others; those of other objects are `a.b`.
_PLAIN = ("properties", "metadata")
_LABELS = "labels"  # of Neo4j and Memgraph, in a list
_KEYS = ("id", "_id", "id_", "node_id", "target", "name")  # of an object that stands for an id


def column_table(where: Path | str, rows: str, size: int, columns: Mapping[str, Any]) -> Table:
    """Return a table of columns in memory.

    Parameters
    ----------
    rows : "nodes" or "edges"
    size : number of rows
    columns : name -> values, or a function that returns them when the column is read
    """
    check(where, **{rows: size})

    def record_batches(names: list[str]) -> Iterator[Any]:
        values = {n: v() if callable(v := columns[n]) else v for n in names}
        for start in range(0, size, _ROWS):
            part = {n: values[n][start : start + _ROWS] for n in names}
            yield _batch(where, rows, start, min(size - start, _ROWS), part)

    return Table(str(where), list(columns), record_batches, rows)


def record_table(
    where: Path | str, rows: str, records: Callable[[], Iterable[Record]], **more: Any
) -> Table:
    """Return the table of records; columns are their keys in order of first appearance.

    Parameters
    ----------
    records : returns all records, from the first; called once, and once for every reading
    more : as of `Table`
    """
    names: dict[str, None] = {}
    number = 0
    for number, record in enumerate(records(), 1):
        names.update(dict.fromkeys(record))
        check(where, columns=len(names), **{rows: number})
    if rows == "edges" and not number:
        names = dict.fromkeys(ENDS[0])  # nothing names the ends

    def record_batches(columns: list[str]) -> Iterator[Any]:
        stream, start = iter(records()), 0
        while batch := list(itertools.islice(stream, _ROWS)):
            part = {n: [record.get(n) for record in batch] for n in columns}
            yield _batch(where, rows, start, len(batch), part)
            start += len(batch)

    return Table(str(where), list(names), record_batches, rows, **more)


def network(
    kind: str,
    where: Path | str,
    nodes: list[Record],
    edges: list[Record],
    roles: Mapping[str, str | Sequence[str]],
    **more: Any,
) -> GraphFile:
    """Return the graph of records in memory; `more` as of `GraphFile`."""
    of_nodes = declared(record_table(where, "nodes", lambda: nodes), roles)
    of_edges = declared(record_table(where, "edges", lambda: edges), roles)
    return GraphFile(
        kind, **{"files": (Path(where),), **more}, nodes=(of_nodes,), edges=(of_edges,)
    )


def flat(record: Any) -> Any:
    """Return a record without objects in it: their entries become entries `a.b` of the record."""
    if not isinstance(record, dict):
        return record  # refused with the others
    entries = {name: value for name, value in record.items() if not isinstance(value, dict)}
    if isinstance(labels := entries.get(_LABELS), list):
        entries[_LABELS] = ";".join(map(str, labels))
    if len(entries) == len(record):
        return entries
    for name, value in record.items():
        if isinstance(value, dict):
            for key, inner in flat(value).items():
                is_plain = name in _PLAIN and key not in record
                entries[key if is_plain else f"{name}.{key}"] = inner
    return entries


def as_string(value: Any, column: str, where: str) -> str:
    """Return a value as a string; null and NaN become "", 3.0 "3", true and false as in JSON."""
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if isinstance(value, dict):
        raise DataError(
            f"{where}: expected one value in {column!r}, found an object; name another column, "
            "or store one value per row"
        )
    if isinstance(value, bool):
        return str(value).lower()
    # Data frames turn integers into floats where a column has a gap.
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _array(values: Any, column: str, where: str) -> Any:
    """Return values as an Arrow array of strings, or of lists of strings if one is a list."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return pa.array(values)
    if not any(isinstance(value, list | tuple | set) for value in values):
        return pa.array([as_string(v, column, where) for v in values], pa.large_string())
    lists = [
        [_entry(one, column, where) for one in value if one is not None]
        if isinstance(value, list | tuple | set)
        else [text for one in [value] if (text := as_string(one, column, where))]
        for value in values
    ]
    return pa.array(lists, pa.list_(pa.large_string()))


def _entry(value: Any, column: str, where: str) -> str:
    if isinstance(value, dict):
        value = value.get(id_key(value))
    return json.dumps(value) if isinstance(value, list) else as_string(value, column, where)


def id_key(names: Iterable[str]) -> str | None:
    """Return the key of an object by which it stands for an id; None if there is none."""
    named = [name for name in names if name.lower().endswith("id")]
    return next((key for key in (*_KEYS, *named) if key in names), None)


def _batch(
    where: Path | str, rows: str, start: int, size: int, columns: Mapping[str, Any]
) -> pa.RecordBatch:
    try:
        return pa.record_batch({n: _array(values, n, str(where)) for n, values in columns.items()})
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: expected Unicode text in {rows} {start + 1} to {start + size}, found "
            f"half a character ({error.reason}); correct the text"
        ) from error


def unused(name: str, names: Iterable[str]) -> str:
    """Return a name that is not among others, with "@" in front if needed."""
    while name in names:
        name = "@" + name
    return name


def suffix_of(file: Path) -> str:
    """Return the suffix that names the format, in lower case, without `.gz`."""
    return (file.with_suffix("") if is_packed(file) else file).suffix.lower()


def files_in(folder: Path) -> list[str]:
    """Return the paths of the files in a folder, sorted, without hidden ones."""
    paths = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return sorted(p.as_posix() for p in paths if not any(n.startswith(".") for n in p.parts))


def is_packed(file: Path) -> bool:
    """Return whether a file is compressed as a whole, by its name."""
    return file.suffix.lower() == ".gz"


def opened(file: Path) -> IO[bytes]:
    """Return a stream of the bytes of a file, which may be packed by gzip."""
    return gzip.open(file, "rb") if is_packed(file) else file.open("rb")  # type: ignore[return-value]


def seekable(file: Path) -> Any:
    """Return a file, or its bytes if it is packed, for readers that go back and forth."""
    if not is_packed(file):
        return file
    with unpacked(file), opened(file) as stream:
        return io.BytesIO(stream.read())


def optional(package: str, file: Path) -> Any:
    """Return a package that only the format of this file needs."""
    try:
        return import_module(package)
    except ImportError as error:
        raise DataError(
            f"{file}: expected the package {package}, which reads {suffix_of(file)} files, found "
            "none; pip install 'dance-flwr[files]'"
        ) from error


@contextmanager
def unpacked(file: Path) -> Iterator[None]:
    """Turn the errors of a damaged gzip file into one line."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{file}: expected a complete gzip file, found: {error}; copy it again"
        ) from error


def parsed(text: str | bytes) -> Any:
    """Return the value of JSON; an object that has a key twice is an error."""
    # Not strict: a control character in a string is what it is, if a tool wrote it so.
    return json.loads(text, object_pairs_hook=_object, strict=False)


def _object(pairs: list[tuple[str, Any]]) -> Record:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is there twice in an object")
    return entries


def read_json(file: Path, what: str, advice: str) -> Any:
    """Return the content of a JSON file, which may be packed.

    Parameters
    ----------
    what : what the file should be, for the message
    advice : what the user can do about a bad file, for the message

    Raises
    ------
    DataError : the file cannot be read, or is not JSON
    """
    try:
        with opened(file) as stream:
            # Some editors begin a file with a byte-order mark, which JSON refuses.
            return parsed(stream.read().removeprefix(codecs.BOM_UTF8))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{file}: expected {what}, found: {reason}; {advice}") from error


def read_object(file: Path, what: str, advice: str) -> Record:
    """Return the JSON object in a file; parameters and errors as of `read_json`."""
    content = read_json(file, what, advice)
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected {what}, found {type(content).__name__}; {advice}")
    return content
