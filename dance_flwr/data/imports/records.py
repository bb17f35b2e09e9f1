"""Tables from parsed records, columns and JSON, and what all readers of files share."""

import codecs
import gzip
import io
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.layouts import ENDS, GraphFile, Roles
from dance_flwr.errors import DataError

Record = dict[str, Any]
_ROWS = 4096  # of a batch
# Objects in a record whose entries stand beside the others; those of other objects are `a.b`.
_PLAIN = ("properties", "metadata")
_LISTS = (list, tuple, set, np.ndarray)
_LABELS = "labels"  # of Neo4j and Memgraph, in a list
_KEYS = ("id", "_id", "id_", "node_id", "target", "name")  # of an object that stands for an id


def fault(
    where: object, expected: str, found: object, advice: str = "export it again"
) -> DataError:
    """Return the error for a file: what was expected, what was found, and what to do."""
    mark = ":" if isinstance(found, Exception) else ""
    return DataError(
        f"{where}: expected {expected}, found{mark} {' '.join(str(found).split())[:300]}; {advice}"
    )


def record_table(
    where: Path | str,
    rows: str,
    records: Iterable[Record],
    names: Iterable[str] = (),
    **more: Any,
) -> Table:
    """Return the table of records; columns are their keys in order of first appearance.

    Parameters
    ----------
    rows : "nodes" or "edges"
    records : read once
    names : columns that come first, with or without a value
    more : as of `Table`
    """
    every, number, stream = dict.fromkeys(names), 0, iter(records)
    parts: list[tuple[int, dict[str, Any]]] = []  # rows, and the columns of which they have some
    while batch := list(itertools.islice(stream, _ROWS)):
        columns = {name: None for record in batch for name in record}
        every |= columns
        number += len(batch)
        check(where, columns=len(every), **{rows: number})
        parts.append((len(batch), {n: _array([r.get(n) for r in batch]) for n in columns}))
    if rows == "edges" and not number:
        every = every or dict.fromkeys(ENDS[0])  # nothing names the ends

    def record_batches(columns: list[str]) -> Iterator[Any]:
        start, empty = 0, pa.scalar("", pa.large_string())
        for size, part in parts:
            of_part = {n: part.get(n, pa.repeat(empty, size)) for n in columns}
            yield _batch(where, rows, start, size, of_part)
            start += size

    return Table(str(where), list(every), record_batches, rows, **more)


def column_table(where: Path | str, rows: str, size: int, columns: Mapping[str, Any]) -> Table:
    """Return a table of columns in memory: lists, and arrays of NumPy."""

    def record_batches(names: list[str]) -> Iterator[Any]:
        for start in range(0, size, _ROWS):
            part = {n: _array(columns[n][start : start + _ROWS]) for n in names}
            yield _batch(where, rows, start, min(size - start, _ROWS), part)

    return Table(str(where), list(columns), record_batches, rows)


def network(
    kind: str,
    where: Path | str,
    nodes: list[Record],
    edges: list[Record],
    roles: Roles | None = None,
    **more: Any,
) -> GraphFile:
    """Return the graph of records in memory; `more` as of `GraphFile`."""
    files = more.pop("files", (Path(where),))
    of_nodes, of_edges = record_table(where, "nodes", nodes), record_table(where, "edges", edges)
    return GraphFile(kind, files, (of_nodes,), (of_edges,), roles or {}, **more)


def flat(record: Any) -> Any:
    """Return a record without objects in it: their entries become entries `a.b` of the record."""
    if not isinstance(record, dict):
        return record  # refused with the others
    entries = {name: value for name, value in record.items() if not isinstance(value, dict)}
    if isinstance(labels := entries.get(_LABELS), list):
        entries[_LABELS] = ";".join(map(str, labels))
    for name, value in record.items() if len(entries) < len(record) else ():
        if isinstance(value, dict):
            for key, inner in flat(value).items():
                is_plain = name in _PLAIN and key not in record
                entries[key if is_plain else f"{name}.{key}"] = inner
    return entries


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or the NA of pandas, whose comparison is NA, too."""
    return value is None or str(value != value) in ("True", "<NA>")


def as_string(value: Any) -> str:
    """Return a value as a string; a missing one becomes "", 3.0 "3", true and false as in JSON."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    # Data frames turn integers into floats where a column has a gap.
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _array(values: Any) -> Any:
    """Return values as an Arrow array of strings, or of lists of strings if one is a list.

    Values with half a character stay as they are, as nobody may need them.
    """
    if isinstance(values, np.ndarray) and values.dtype != object:
        return pa.array(values)
    with suppress(UnicodeEncodeError):
        if not any(isinstance(value, _LISTS) for value in values):
            return pa.array(list(map(as_string, values)), pa.large_string())
        lists = [v if isinstance(v, _LISTS) else [v] * bool(as_string(v)) for v in values]
        entries = [[_entry(one) for one in some if one is not None] for some in lists]
        return pa.array(entries, pa.list_(pa.large_string()))
    return values


def _entry(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get(id_key(value))
    return json.dumps(value) if isinstance(value, dict | list) else as_string(value)


def id_key(names: Iterable[str]) -> str | None:
    """Return the key of an object by which it stands for an id; None if there is none."""
    named = [name for name in names if name.lower().endswith("id")]
    return next((key for key in (*_KEYS, *named) if key in names), None)


def _batch(
    where: Path | str, rows: str, start: int, size: int, columns: Mapping[str, Any]
) -> pa.RecordBatch:
    if all(isinstance(values, pa.Array) for values in columns.values()):
        return pa.record_batch(dict(columns))
    place = f"Unicode text in {rows} {start + 1} to {start + size}"
    raise fault(where, place, "half a character", "correct the text")


def unused(name: str, names: Iterable[str]) -> str:
    """Return a name that is not among others, with "@" in front if needed."""
    while name in names:
        name = "@" + name
    return name


def is_packed(file: Path) -> bool:
    """Return whether a file is compressed as a whole, by its name."""
    return file.suffix.lower() == ".gz"


def suffix_of(file: Path) -> str:
    """Return the suffix that names the format, in lower case, without `.gz`."""
    return (file.with_suffix("") if is_packed(file) else file).suffix.lower()


def files_in(folder: Path) -> list[str]:
    """Return the paths of the files in a folder, sorted, without hidden ones."""
    paths = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return sorted(p.as_posix() for p in paths if not any(n.startswith(".") for n in p.parts))


def opened(file: Path) -> IO[bytes]:
    """Return a stream of the bytes of a file, which may be packed by gzip."""
    return gzip.open(file, "rb") if is_packed(file) else file.open("rb")  # type: ignore[return-value]


def seekable(file: Path) -> Any:
    """Return a file, or its bytes if it is packed, for readers that go back and forth."""
    if not is_packed(file):
        return file
    with opened(file) as stream:
        return io.BytesIO(stream.read())


def optional(package: str, file: Path) -> Any:
    """Return a package that only the format of this file needs."""
    try:
        return import_module(package)
    except ImportError as error:
        what = f"the package {package}, which reads {suffix_of(file)} files"
        raise fault(file, what, "none", "pip install 'dance-flwr[files]'") from error


def parsed(text: str | bytes) -> Any:
    """Return the value of JSON; an object that has a key twice is an error."""
    # Not strict: a control character in a string is what it is, if a tool wrote it so.
    return json.loads(text, object_pairs_hook=_object, strict=False)


def _object(pairs: list[tuple[str, Any]]) -> Record:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
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
        raise fault(file, what, error, advice) from error


def read_object(file: Path, what: str, advice: str) -> Record:
    """Return the JSON object in a file; parameters and errors as of `read_json`."""
    content = read_json(file, what, advice)
    if not isinstance(content, dict):
        raise fault(file, what, type(content).__name__, advice)
    return content
