"""Tables on disk, read in batches so that a large text column is never held twice."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dance_flwr.data.graphs import parquet
from dance_flwr.data.graphs.limits import PORTION, Meter, listed
from dance_flwr.errors import DataError

_PORTION_ROWS = 1 << 16
# Rows of these types may share one long value, so a small file decodes to any size.
_REPEATING = (pa.types.is_dictionary, pa.types.is_string_view, pa.types.is_binary_view)


class Table(ABC):
    """A table that is read in batches of strings; a subclass reads one format.

    Parameters
    ----------
    rows : what a row is, "nodes" or "edges", each with its own bound

    Attributes
    ----------
    names : of all columns, in the order of the file
    where : the file, for messages
    metadata : of the schema, if the format has one
    facts : what was recognised, such as the encoding

    Raises
    ------
    DataError : the file cannot be parsed or has too many columns; reading batches may raise it too
    """

    names: list[str]

    def __init__(self, file: Path, rows: str = "nodes") -> None:
        self.file, self.where, self._rows = file, str(file), rows
        self.metadata: dict[bytes, bytes] = {}
        self.facts: dict[str, str] = {}
        self._types: dict[str, Any] = {}
        meter = Meter(file, rows)
        with readable(file):
            self._open(meter)
        meter.columns(len(self.names))

    @abstractmethod
    def _open(self, meter: Meter) -> None:
        """Set `names` and, if the format has them, `metadata` and the types of the columns."""

    @abstractmethod
    def _record_batches(self, columns: list[str], meter: Meter) -> Iterator[Any]:
        """Yield Arrow record batches of these columns."""

    def batches(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield column name -> large_string array of a few MiB, in row order; null becomes "".

        Raises
        ------
        DataError : a column is missing or repeats, its values are neither strings nor numbers, or
            the table passes a bound
        """
        meter = Meter(self.file, self._rows)
        require(self.names, columns, self.where)
        for name in columns:
            if name in self._types:
                require_values(self._types[name], name, self.where, views=True)
        batches = self._record_batches(list(dict.fromkeys(columns)), meter)
        while True:
            # Around the reader only: errors of whoever takes the batches are not the file's.
            with readable(self.file):
                batch = next(batches, None)
            if batch is None:
                return
            for part in portions(batch):
                texts = {n: as_strings(part.column(n), n, self.where) for n in columns}
                yield counted(texts, meter)

    def read(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return column name -> one large_string array over all rows."""
        return join_batches(self.batches(columns), columns)


class ParquetTable(Table):
    """A Parquet file."""

    def _open(self, meter: Meter) -> None:
        schema = parquet.read_schema(self.file)
        self.names, self.metadata = list(schema.names), dict(schema.metadata or {})
        self._types = dict(zip(schema.names, schema.types, strict=True))

    def _record_batches(self, columns: list[str], meter: Meter) -> Iterator[Any]:
        return parquet.batches(self.file, columns, meter)


def join_batches(batches: Iterator[dict[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """Return column name -> one large_string array over all batches."""
    parts: dict[str, list[Any]] = {name: [] for name in columns}
    for batch in batches:
        for name in columns:
            parts[name].append(batch[name])
    return {name: join(arrays) for name, arrays in parts.items()}


def join(arrays: list[Any]) -> Any:
    """Concatenate arrays into one large_string array; no array gives an empty one."""
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.large_string())


def require(names: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Check that a table has each of these columns exactly once."""
    if lacking := [column for column in columns if list(names).count(column) != 1]:
        what = "one column" if len(lacking) == 1 else "one column each of"
        raise DataError(
            f"{where}: expected {what} {', '.join(map(repr, lacking))}, found "
            f"{listed(names) or 'no column'}; rename or add {'it' if len(lacking) == 1 else 'them'}"
        )


def require_values(kind: Any, column: str, where: str, *, views: bool = False) -> None:
    """Check, before any value is read, that an Arrow type is one of strings or of numbers.

    Parameters
    ----------
    views : whether views of strings are read, which can show one long string in many rows

    Raises
    ------
    DataError : the values are nested or encoded in a way that can repeat them without a bound
    """
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    while isinstance(values, pa.BaseExtensionType):
        values = values.storage_type
    if views and values is kind and pa.types.is_string_view(kind):
        return
    if pa.types.is_nested(values) or any(repeats(values) for repeats in _REPEATING):
        raise _unexpected(kind, column, where)


def portions(batch: Any) -> Iterator[Any]:
    """Yield a record batch in slices, short where a dictionary has long entries."""
    rows = _PORTION_ROWS
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            entries = pc.cast(column.dictionary, pa.large_string())
            longest = pc.max(pc.binary_length(entries)).as_py() or 0
            rows = min(rows, max(1, PORTION // max(longest, 1)))
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def counted(texts: dict[str, Any], meter: Meter) -> dict[str, Any]:
    """Return the columns of a batch after counting them."""
    meter.rows(max(map(len, texts.values()), default=0))
    for text in texts.values():
        meter.memory(text.nbytes)
        # Lengths in bytes are known; characters are counted only where these pass the bound.
        if (pc.max(pc.binary_length(text)).as_py() or 0) > meter.limits.characters:
            meter.characters(pc.max(pc.utf8_length(text)).as_py())
    return texts


def as_strings(values: Any, column: str, where: str) -> Any:
    """Return a column as a large_string array; null and NaN become "", 3.0 becomes "3"."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        values.validate(full=True)  # a file may declare any bytes as a string, and any offsets
    except pa.ArrowException as error:
        raise DataError(
            f"{where}: expected Unicode text in {column!r}, found other bytes; correct the file"
        ) from error
    try:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_floating(values.type):
            # Data frames turn a column with a missing integer into floats with NaN.
            values = pc.if_else(pc.is_nan(values), None, values)
        return pc.fill_null(pc.cast(values, pa.large_string()), "")
    except pa.ArrowException as error:
        raise _unexpected(values.type, column, where) from error


def _unexpected(kind: Any, column: str, where: str) -> DataError:
    advice = "keep one value per row" if pa.types.is_nested(kind) else "convert it"
    return DataError(
        f"{where}: expected strings or numbers in {column!r}, found {kind!s:.80}; {advice}"
    )


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Turn a reader's errors into one line that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file}: expected a readable {file.suffix[1:]} table, found: {reason}; "
            "correct the file"
        ) from error
