"""Tables on disk, read in batches, so that a large text column is never held twice."""

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

    CSV and JSON values arrive as strings, so that an id `007` stays `007`.

    Raises
    ------
    DataError : the file cannot be parsed; later, while batches are read, too
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.metadata: dict[bytes, bytes] = {}
        with readable(file):
            if file.suffix == ".parquet":
                with pq.ParquetFile(file) as found:
                    schema = found.schema_arrow
                self.names, self.metadata = list(schema.names), dict(schema.metadata or {})
            elif file.suffix == ".jsonl":
                self.names = list(
                    dict.fromkeys(key for record in _json_records(file) for key in record)
                )
            else:
                self.names = _csv_header(file)

    def batches(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield column name -> Arrow array of at most a few MiB, in the order of the rows; null is
        "".

        Raises
        ------
        DataError : a column is missing or twice there, or its values are no strings or numbers
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
        """Return column name -> one Arrow array over all rows."""
        return joined(self.batches(columns), columns)


def joined(batches: Iterator[dict[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """Return column name -> one large_string array over all batches."""
    parts: dict[str, list[Any]] = {name: [] for name in columns}
    for batch in batches:
        for name in columns:
            parts[name].append(batch[name])
    return {name: join(arrays) for name, arrays in parts.items()}


def join(arrays: list[Any]) -> Any:
    """Return the arrays as one large_string array, empty where there is none."""
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.large_string())


def require(names: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Refuse a table that does not have each of these columns exactly once."""
    for column in columns:
        if list(names).count(column) != 1:
            found = ", ".join(names) or "no column"
            raise DataError(
                f"{where}: expected one column {column!r}, found {found}; rename or add it"
            )


def as_strings(values: Any, column: str, where: str) -> Any:
    """Return a column as a large_string array; null and NaN become the empty string, 3.0 becomes 3.

    Raises
    ------
    DataError : the values are neither strings nor numbers, or the strings are no Unicode
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_floating(values.type):
            values = pc.if_else(
                pc.is_nan(values), None, values
            )  # what data frames make of a missing integer
        text = pc.fill_null(pc.cast(values, pa.large_string()), "")
    except pa.ArrowException as error:
        raise DataError(
            f"{where}: expected strings or numbers in {column!r}, found {values.type}; convert it"
        ) from error
    try:
        text.validate(full=True)  # a Parquet file may call any bytes a string
    except pa.ArrowException as error:
        raise DataError(
            f"{where}: expected Unicode text in {column!r}, found other bytes; mend the file"
        ) from error
    return text


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Turn what a reader raises into one line that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file}: expected a readable {file.suffix[1:]} table, found: {reason}; mend the file"
        ) from error


def _parquet_batches(file: Path, columns: Sequence[str]) -> Iterator[Any]:
    # a bounded buffer: without it a column of a row group, which may be the whole file, is read at
    # once
    with pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as found:
        size = sum(
            found.metadata.row_group(i).total_byte_size
            for i in range(found.metadata.num_row_groups)
        )
        rows = max(1, found.metadata.num_rows * BATCH_BYTES // max(size, 1))
        # few rows: a dictionary can make each of them far longer than it is in the file
        yield from found.iter_batches(
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
    """Yield the batches of a CSV file; where a row is longer than a block, go on with larger
    blocks.
    """
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
    """Return the next block size to try, or raise the error where no block size can mend it."""
    if "straddl" not in str(error) or block > min(file.stat().st_size, _BLOCK_LIMIT - 1):
        raise error
    return min(block * 8, _BLOCK_LIMIT)


def _json_records(file: Path) -> Iterator[dict[str, Any]]:
    """Yield one JSON object a line; blank lines are skipped."""
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            text = line.removeprefix(_BOM).strip() if number == 1 else line.strip()
            where = f"{file} line {number}: expected a JSON object"
            if not text:
                continue
            try:
                record = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}, found: {error}; mend the line") from error
            if not isinstance(record, dict):
                raise DataError(f"{where}, found {record!r:.40}; mend the line")
            yield record


def _json_batches(file: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield batches of string columns; a key absent from a line is null.

    Arrow's own reader guesses one type per column and turns an id such as `2020-01-01` into a time.
    """
    values: dict[str, list[str | None]] = {name: [] for name in columns}
    size = 0

    def batch() -> Any:
        return pa.table(
            {name: pa.array(column, pa.large_string()) for name, column in values.items()}
        )

    for record in _json_records(file):
        for name, column in values.items():
            value = plain(record.get(name))
            column.append(value)
            size += 64 + len(value or "")
        if size > BATCH_BYTES:
            yield batch()
            values, size = {name: [] for name in columns}, 0
    if size:
        yield batch()


def plain(value: Any) -> str | None:
    """Return a JSON value as a string; null stays null, NaN becomes null, 3.0 becomes 3."""
    if isinstance(value, float):
        value = None if value != value else int(value) if value.is_integer() else value
    return value if value is None or isinstance(value, str) else json.dumps(value)
