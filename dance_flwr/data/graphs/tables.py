"""Tables on disk, read in batches of strings so that a large text column is never held twice."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dance_flwr.data.graphs.limits import check, exceeded, limits, listed
from dance_flwr.errors import TOO_MANY, DataError

_ROWS = {"nodes": 1 << 10, "edges": 1 << 16}  # of a batch of Parquet


@dataclass(frozen=True)
class Table:
    """A table whose columns are read as strings.

    Attributes
    ----------
    where : the file, for messages
    names : of all columns, in the order of the file
    record_batches : takes names of columns and yields Arrow record batches of them
    rows : what a row is, "nodes" or "edges", each with its own bound
    metadata : of the schema, if the format has one
    facts : what was recognised, such as the encoding

    Raises
    ------
    DataError : there are too many columns
    """

    where: str
    names: list[str]
    record_batches: Callable[[list[str]], Iterator[Any]]
    rows: str = "nodes"
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self.where, columns=len(self.names))

    def batches(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield column name -> large_string array, in row order; null becomes "".

        Raises
        ------
        DataError : a column is missing or repeats, its values are neither strings nor numbers, the
            file is damaged, or the table exceeds a bound
        """
        require(self.names, columns, self.where)
        rows = memory = 0
        with readable(self.where):
            batches = self.record_batches(list(dict.fromkeys(columns)))
        while True:
            # Around the reader only: errors of whoever takes the batches are not the file's.
            with readable(self.where):
                batch = next(batches, None)
            if batch is None:
                return
            texts = {n: as_strings(batch.column(n), n, self.where, rows) for n in columns}
            rows += len(batch)
            check(self.where, **{self.rows: rows})
            memory += sum(text.nbytes for text in texts.values())
            check(self.where, memory=memory)
            for text in texts.values():
                # Lengths in bytes are known; characters are counted only where these exceed.
                if (pc.max(pc.binary_length(text)).as_py() or 0) > limits().characters:
                    check(self.where, characters=pc.max(pc.utf8_length(text)).as_py())
            yield texts

    def read(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return column name -> one large_string array over all rows."""
        batches = list(self.batches(columns))
        return {name: join([batch[name] for batch in batches]) for name in columns}


def parquet_table(file: Any, rows: str = "nodes", where: str = "") -> Table:
    """Return the table in a Parquet file.

    Parameters
    ----------
    file : path, or a stream
    where : name of the file, for messages; empty for its path
    """
    where = where or str(file)
    with readable(where), pq.ParquetFile(file) as table:
        schema = table.schema_arrow

    def record_batches(columns: list[str]) -> Iterator[Any]:
        # Without a bounded buffer, the column of a row group (perhaps the whole file) is read at
        # once.
        with pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as table:
            yield from table.iter_batches(_ROWS[rows], columns=columns, use_threads=False)

    return Table(where, list(schema.names), record_batches, rows, dict(schema.metadata or {}))


def derived(
    table: Table,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    needs: Sequence[str] = (),
    **more: Any,
) -> Table:
    """Return a table made of the batches of another one.

    Parameters
    ----------
    change : takes the arrays of a batch by column, as they are stored, and returns those of the new
    needs : columns that it needs beside those that are asked for
    more : other attributes of the new table
    """

    def record_batches(columns: list[str]) -> Iterator[Any]:
        read = [*(name for name in columns if name in table.names), *needs]
        for batch in table.record_batches(list(dict.fromkeys(read))):
            arrays = change(dict(zip(batch.schema.names, batch.columns, strict=True)))
            yield pa.record_batch({name: arrays[name] for name in columns})

    return replace(table, record_batches=record_batches, **more)


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


def as_strings(values: Any, column: str, where: str, before: int = 0) -> Any:
    """Return a column as a large_string array; null and NaN become "", 3.0 becomes "3".

    Parameters
    ----------
    before : number of rows before these, for messages
    """
    try:
        values.validate(full=True)  # a file may declare any bytes as a string, and any offsets
    except pa.ArrowException as error:
        raise DataError(
            f"{where}: expected Unicode text in {column!r}, found other bytes; correct the file"
        ) from error
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        raise DataError(
            f"{where}: expected one value in {column!r}, found a list in row "
            f"{before + int(lengths.argmax()) + 1}; name another column, or store one value per row"
        )
    try:
        if pa.types.is_dictionary(kind):
            values = values.dictionary_decode()
        if pa.types.is_floating(values.type):
            # Data frames turn a column with a missing integer into floats with NaN.
            values = pc.if_else(pc.is_nan(values), None, values)
        strings = pc.cast(values, pa.large_string())
        # Arrow imports pandas to make a scalar of "".
        return pc.fill_null(strings, "") if strings.null_count else strings
    except MemoryError:
        raise
    except pa.ArrowException as error:
        advice = "keep one value per row" if pa.types.is_nested(kind) else "convert it"
        raise DataError(
            f"{where}: expected strings or numbers in {column!r}, found {kind!s:.80}; {advice}"
        ) from error


@contextmanager
def readable(file: Path | str) -> Iterator[None]:
    """Turn a reader's errors into one line that names the file."""
    try:
        yield
    except MemoryError as error:
        raise exceeded(file, "memory") from error
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
        if getattr(error, "errno", None) in TOO_MANY:
            raise  # no fault of the file
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file}: expected a readable {Path(file).suffix[1:]} table, found: {reason:.300}; "
            "correct the file"
        ) from error
