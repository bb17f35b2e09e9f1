"""Tables on disk, read in batches so that a large text column is never held twice."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dance_flwr.errors import DataError

BATCH_BYTES = 2 << 20
_CSV_BLOCK = 1 << 19  # Arrow reads 32 blocks ahead
_BLOCK_LIMIT = (1 << 31) - 1
_BOM = b"\xef\xbb\xbf"


class Table:
    """A `.parquet`, `.csv` or `.jsonl` table that is read in batches.

    CSV and JSON values are read as strings, so that an id `007` stays `007`.

    Raises
    ------
    DataError : the file cannot be parsed; reading batches may raise it too
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.metadata: dict[bytes, bytes] = {}
        with readable(file):
            if file.suffix == ".parquet":
                with pq.ParquetFile(file) as table:
                    schema = table.schema_arrow
                self.names, self.metadata = list(schema.names), dict(schema.metadata or {})
            elif file.suffix == ".jsonl":
                self.names = list(
                    dict.fromkeys(key for record in _json_records(file) for key in record)
                )
            else:
                self.names = _csv_header(file)

    def batches(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield column name -> large_string array of a few MiB, in row order; null becomes "".

        Raises
        ------
        DataError : a column is missing or repeats, or its values are neither strings nor numbers
        """
        require(self.names, columns, str(self.file))
        kinds = {".parquet": _parquet_batches, ".jsonl": _json_batches}
        batches = kinds.get(self.file.suffix, _csv_batches)(self.file, columns)
        while True:
            with readable(self.file):
                batch = next(batches, None)
            if batch is None:
                return
            yield {name: as_strings(batch.column(name), name, str(self.file)) for name in columns}

    def read(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return column name -> one large_string array over all rows."""
        return join_batches(self.batches(columns), columns)


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
    """Check that a table has each of these columns exactly once.

    Raises
    ------
    DataError : a column is missing or repeats
    """
    for column in columns:
        if list(names).count(column) != 1:
            listed = ", ".join(names) or "no column"
            raise DataError(
                f"{where}: expected one column {column!r}, found {listed}; rename or add it"
            )


def as_strings(values: Any, column: str, where: str) -> Any:
    """Return a column as a large_string array; null and NaN become "", 3.0 becomes "3".

    Raises
    ------
    DataError : the values are neither strings nor numbers, or the strings are not Unicode
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_floating(values.type):
            # Data frames turn a column with a missing integer into floats with NaN.
            values = pc.if_else(pc.is_nan(values), None, values)
        text = pc.fill_null(pc.cast(values, pa.large_string()), "")
    except pa.ArrowException as error:
        raise DataError(
            f"{where}: expected strings or numbers in {column!r}, found {values.type}; convert it"
        ) from error
    try:
        text.validate(full=True)  # a Parquet file may declare any bytes as a string
    except pa.ArrowException as error:
        raise DataError(
            f"{where}: expected Unicode text in {column!r}, found other bytes; correct the file"
        ) from error
    return text


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Turn a reader's errors into one line that names the file.

    Raises
    ------
    DataError : the file cannot be read
    """
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file}: expected a readable {file.suffix[1:]} table, found: {reason}; "
            "correct the file"
        ) from error


def _parquet_batches(file: Path, columns: Sequence[str]) -> Iterator[Any]:
    # Without a bounded buffer, the column of a row group (perhaps the whole file) is read at once.
    with pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as table:
        size = sum(
            table.metadata.row_group(i).total_byte_size
            for i in range(table.metadata.num_row_groups)
        )
        rows = max(1, table.metadata.num_rows * BATCH_BYTES // max(size, 1))
        # Few rows, as dictionary encoding can make each of them far longer than in the file.
        yield from table.iter_batches(
            batch_size=min(rows, 1 << 11), columns=list(columns), use_threads=False
        )


def _csv_options(block: int, columns: Sequence[str] | None) -> dict[str, Any]:
    convert = pa_csv.ConvertOptions(strings_can_be_null=False)
    if columns is not None:
        convert.include_columns = list(columns)
        convert.column_types = dict.fromkeys(columns, pa.string())
    return {
        "read_options": pa_csv.ReadOptions(block_size=block, use_threads=False),
        "parse_options": pa_csv.ParseOptions(newlines_in_values=True),  # inside quotes
        "convert_options": convert,
    }


def _csv_header(file: Path) -> list[str]:
    block = _CSV_BLOCK
    while True:
        try:
            with pa_csv.open_csv(file, **_csv_options(block, None)) as reader:
                return list(reader.schema.names)
        except pa.ArrowInvalid as error:
            block = _larger(block, file, error)


def _csv_batches(file: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the batches of a CSV file; a row longer than a block is read with larger blocks."""
    block, done = _CSV_BLOCK, 0
    while True:
        seen = 0
        try:
            with pa_csv.open_csv(file, **_csv_options(block, columns)) as reader:
                for batch in reader:
                    fresh = batch.slice(max(done - seen, 0))
                    seen += len(batch)
                    done = max(done, seen)
                    if len(fresh):
                        yield fresh
            return
        except pa.ArrowInvalid as error:
            block = _larger(block, file, error)


def _larger(block: int, file: Path, error: Exception) -> int:
    """Return the next block size to try, or raise the error if a larger block cannot help."""
    if "straddl" not in str(error) or block > min(file.stat().st_size, _BLOCK_LIMIT - 1):
        raise error
    return min(block * 8, _BLOCK_LIMIT)


def _json_records(file: Path) -> Iterator[dict[str, Any]]:
    """Yield one JSON object per line; blank lines are skipped.

    Raises
    ------
    DataError : a line is not a JSON object
    """
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            text = line.removeprefix(_BOM).strip() if number == 1 else line.strip()
            where = f"{file} line {number}: expected a JSON object"
            if not text:
                continue
            try:
                record = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}, found: {error}; correct the line") from error
            if not isinstance(record, dict):
                raise DataError(f"{where}, found {record!r:.40}; correct the line")
            yield record


def _json_batches(file: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield batches of string columns; a key that a line lacks is null.

    Arrow's own reader infers one type per column and turns an id such as `2020-01-01` into a date.
    """
    values: dict[str, list[str | None]] = {name: [] for name in columns}
    size = 0

    def batch() -> Any:
        return pa.table(
            {name: pa.array(column, pa.large_string()) for name, column in values.items()}
        )

    for record in _json_records(file):
        for name, column in values.items():
            value = to_string(record.get(name))
            column.append(value)
            size += 64 + len(value or "")
        if size > BATCH_BYTES:
            yield batch()
            values, size = {name: [] for name in columns}, 0
    if size:
        yield batch()


def to_string(value: Any) -> str | None:
    """Return a JSON value as a string; null and NaN become None, 3.0 becomes "3"."""
    if isinstance(value, float):
        value = None if value != value else int(value) if value.is_integer() else value
    return value if value is None or isinstance(value, str) else json.dumps(value)
