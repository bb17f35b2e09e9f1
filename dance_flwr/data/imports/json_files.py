"""JSON lines in batches of bounded size, and JSON files whole."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from dance_flwr.data.graphs.limits import Meter
from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.columns import as_string
from dance_flwr.data.imports.text_files import encoding_of, open_text
from dance_flwr.errors import DataError

_BATCH_BYTES = 2 << 20
_JSON_BLOCK = 1 << 20
_TIMES, _OBJECT = 3, 64  # bytes in memory per byte of the file, and per value


class JsonLinesTable(Table):
    """One JSON object per line; blank lines are skipped. Numbers and truth values become strings.

    Arrow's own reader infers one type per column and turns an id such as `2020-01-01` into a date.

    Parameters
    ----------
    encoding : empty to detect it
    """

    def __init__(self, file: Path, rows: str = "nodes", *, encoding: str = "") -> None:
        self._encoding = encoding
        super().__init__(file, rows)

    def _open(self, meter: Meter) -> None:
        """Collect the keys of all lines, in the order in which they first appear."""
        self._encoding = encoding_of(self.file, self._encoding)
        self.facts = {"encoding": self._encoding.removesuffix("-sig")}
        names: dict[str, None] = {}
        for _, record in self._records(meter):
            names.update(dict.fromkeys(record))
            meter.columns(len(names))
        self.names = list(names)

    def _records(self, meter: Meter) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number of each line and its object."""
        # One byte more than allowed shows that a line is too long, before the rest is read.
        longest = meter.limits.line
        with open_text(self.file, self._encoding) as stream:
            lines = iter(lambda: stream.readline(longest + 1), b"")
            for number, line in enumerate(lines, start=1):
                meter.line(len(line))
                text = line.strip()
                if text:
                    yield number, self._record(text, number)

    def _record(self, text: bytes, number: int) -> dict[str, Any]:
        where = f"{self.file} line {number}: expected a JSON object"
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}, found: {error}; correct the line") from error
        if not isinstance(record, dict):
            raise DataError(f"{where}, found {record!r:.40}; correct the line")
        return record

    def _record_batches(self, columns: list[str], meter: Meter) -> Iterator[Any]:
        """Yield batches of string columns; a key that a line lacks is ""."""
        values: dict[str, list[str]] = {name: [] for name in columns}
        size = 0

        def batch() -> Any:
            return pa.record_batch(
                {name: pa.array(column, pa.large_string()) for name, column in values.items()}
            )

        for number, record in self._records(meter):
            for name, column in values.items():
                value = as_string(record.get(name), name, f"{self.file} line {number}")
                column.append(value)
                # A Python string takes about 64 bytes beside its characters.
                size += 64 + len(value)
            if size > _BATCH_BYTES:
                yield batch()
                values, size = {name: [] for name in columns}, 0
        if size:
            yield batch()


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
    """Return the JSON object in a file; parameters and errors as of `read_json`."""
    content = read_json(file, what, advice)
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected {what}, found {type(content).__name__}; {advice}")
    return content
