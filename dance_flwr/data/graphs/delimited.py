"""CSV files and JSON lines in batches of bounded size, and JSON files whole."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from dance_flwr.data.graphs.limits import Meter
from dance_flwr.errors import DataError

_BATCH_BYTES = 2 << 20
# Arrow reads BLOCKS_AHEAD blocks in advance: together they are one PORTION.
_CSV_BLOCK = 1 << 19
# The sizes of Arrow's blocks are signed 32-bit numbers.
_BLOCK_LIMIT = (1 << 31) - 1
# A file without a line break would be one header as long as the file.
_HEADER_CHARACTERS = 1 << 20
_BOM = b"\xef\xbb\xbf"
_JSON_BLOCK = 1 << 20
_TIMES, _OBJECT = 3, 64  # bytes in memory per byte of the file, and per value


def csv_header(file: Path) -> list[str]:
    """Return the names of the columns of a CSV file.

    Read without Arrow, which needs kilobytes for each column it finds.
    """
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        text = io.StringIO(stream.read(_HEADER_CHARACTERS), newline="")
    try:
        names: list[str] = next((row for row in csv.reader(text) if row), [])
    except csv.Error as error:
        raise pa.ArrowInvalid(f"in the header: {error}") from error
    if not names:
        raise pa.ArrowInvalid("Empty CSV file")
    if text.tell() >= _HEADER_CHARACTERS:
        raise pa.ArrowInvalid(f"a header of more than {_HEADER_CHARACTERS:,} characters")
    return names


def csv_batches(file: Path, columns: Sequence[str], meter: Meter) -> Iterator[Any]:
    """Yield the batches of a CSV file; a row longer than a block is read with larger blocks.

    Raises
    ------
    DataError : a row is longer than the bound
    """
    block, done = _CSV_BLOCK, 0
    while True:
        seen = 0
        try:
            with pa_csv.open_csv(file, **_csv_options(block, columns)) as reader:
                for batch in reader:
                    # After a restart with larger blocks the rows that were yielded come again.
                    fresh = batch.slice(max(done - seen, 0))
                    seen += len(batch)
                    done = max(done, seen)
                    if len(fresh):
                        yield fresh
            return
        except pa.ArrowInvalid as error:
            block = _larger(block, file, meter, error)


def _csv_options(block: int, columns: Sequence[str]) -> dict[str, Any]:
    # Values stay the strings of the file: `NaN` is an id like any other, and `007` is not 7.
    convert = pa_csv.ConvertOptions(strings_can_be_null=False, include_columns=list(columns))
    convert.column_types = dict.fromkeys(columns, pa.string())
    return {
        "read_options": pa_csv.ReadOptions(block_size=block, use_threads=False),
        "parse_options": pa_csv.ParseOptions(newlines_in_values=True),  # inside quotes
        "convert_options": convert,
    }


def _larger(block: int, file: Path, meter: Meter, error: Exception) -> int:
    """Return the next block size to try, or raise the error if a larger block cannot help."""
    # Arrow says only in its message that a row straddles the end of a block.
    if "straddl" not in str(error) or block > min(file.stat().st_size, _BLOCK_LIMIT - 1):
        raise error
    longest = min(_BLOCK_LIMIT, max(_CSV_BLOCK, meter.limits.line))
    if block >= longest:
        meter.line(block + 1)
        raise error
    # Eightfold: few restarts, and a block is never much larger than its longest row.
    return min(block * 8, longest)


def json_names(file: Path, meter: Meter) -> list[str]:
    """Return the keys of all lines, in the order in which they first appear.

    Raises
    ------
    DataError : a line is not a JSON object or too long, or there are more keys than the bound
    """
    names: dict[str, None] = {}
    for record in _json_records(file, meter):
        names.update(dict.fromkeys(record))
        meter.columns(len(names))
    return list(names)


def _json_records(file: Path, meter: Meter) -> Iterator[dict[str, Any]]:
    """Yield one JSON object per line; blank lines are skipped."""
    # One byte more than allowed shows that a line is too long, before the rest is read.
    longest = meter.limits.line
    with file.open("rb") as stream:
        lines = iter(lambda: stream.readline(longest + 1), b"")
        for number, line in enumerate(lines, start=1):
            meter.line(len(line))
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


def json_batches(file: Path, columns: Sequence[str], meter: Meter) -> Iterator[Any]:
    """Yield batches of string columns; a key that a line lacks is null.

    Arrow's own reader infers one type per column and turns an id such as `2020-01-01` into a date.

    Raises
    ------
    DataError : a line is not a JSON object or too long
    """
    values: dict[str, list[str | None]] = {name: [] for name in columns}
    size = 0

    def batch() -> Any:
        return pa.record_batch(
            {name: pa.array(column, pa.large_string()) for name, column in values.items()}
        )

    for record in _json_records(file, meter):
        for name, column in values.items():
            value = to_string(record.get(name))
            column.append(value)
            # A Python string takes about 64 bytes beside its characters.
            size += 64 + len(value or "")
        if size > _BATCH_BYTES:
            yield batch()
            values, size = {name: [] for name in columns}, 0
    if size:
        yield batch()


def to_string(value: Any) -> str | None:
    """Return a JSON value as a string; null and NaN become None, 3.0 becomes "3"."""
    if isinstance(value, float):
        # Data frames turn integer ids into floats where a column has a gap.
        value = None if value != value else int(value) if value.is_integer() else value
    return value if value is None or isinstance(value, str) else json.dumps(value)


def read_json(file: Path, what: str, advice: str) -> Any:
    """Return the content of a JSON file after estimating, from its characters, what it will take.

    `[[],[],[]]` takes twenty times its length in memory, so the size of the file says too little.

    Parameters
    ----------
    what : what the file should be, for the message
    advice : what the user can do about a bad file, for the message

    Raises
    ------
    DataError : the file cannot be read, is not JSON, or would take more memory than the bound
    """
    meter = Meter(file)
    try:
        with file.open("rb") as stream:
            while block := stream.read(_JSON_BLOCK):
                # A value follows a comma or opens a container; marks in texts only raise the
                # estimate.
                values = sum(block.count(mark) for mark in (b",", b"[", b"{"))
                meter.memory(_TIMES * len(block) + _OBJECT * values)
        # Some editors begin a file with a byte-order mark, which JSON refuses.
        return json.loads(file.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{file}: expected {what}, found: {reason}; {advice}") from error


def read_object(file: Path, what: str, advice: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Parameters
    ----------
    what : what the file should be, for the message
    advice : what the user can do about a bad file, for the message

    Raises
    ------
    DataError : the file cannot be read, is not JSON, passes a bound, or holds another value than
        an object
    """
    content = read_json(file, what, advice)
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected {what}, found {type(content).__name__}; {advice}")
    return content
