"""`Columns` of rows that a parser has read into memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from sys import getsizeof
from typing import Any

import numpy as np
import pyarrow as pa

from dance_flwr.data.graphs.limits import PORTION, Meter
from dance_flwr.data.graphs.tables import counted, require
from dance_flwr.errors import DataError

_ROWS = 4096  # of a batch
# Bytes in memory without the texts: of a place in a list, a row's attributes, and one of them.
_PLACE, _RECORD, _VALUE = 16, 256, 64
_NO_ATTRIBUTES: dict[str, Any] = {}  # of all rows without any, never written to


class MemoryColumns:
    """A table in memory whose columns are read as strings, in batches.

    A number that is whole has no decimal point, true and false are in lower case as in JSON, and
    null and NaN are missing.

    Parameters
    ----------
    where : the file, for messages
    rows : what a row is, "nodes" or "edges"; size : number of rows
    columns : name -> function that returns the values of a slice of rows
    """

    def __init__(
        self,
        where: Path | str,
        rows: str,
        size: int,
        columns: Mapping[str, Callable[[slice], Sequence[Any]]],
    ) -> None:
        self.where, self.names = str(where), list(columns)
        self._rows, self._size, self._columns = rows, size, columns
        Meter(where, rows).columns(len(columns))

    def batches(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield batches, see `source.Columns`."""
        require(self.names, columns, self.where)
        meter = Meter(self.where, self._rows)
        for start in range(0, self._size, _ROWS):
            rows = slice(start, min(start + _ROWS, self._size))
            strings = {
                name: [
                    as_string(value, name, self.where, f" in row {row} of the {self._rows}")
                    for row, value in enumerate(self._columns[name](rows), start + 1)
                ]
                for name in columns
            }
            yield from (counted(part, meter) for part in self._portions(strings, start))

    def _portions(self, strings: dict[str, list[str]], first: int) -> Iterator[dict[str, Any]]:
        """Yield the rows as arrays, few at once where texts are long.

        A list may hold one long text many times, which takes no memory before it is written.
        """
        lengths = [np.fromiter(map(len, values), np.int64) for values in strings.values()]
        ends = np.cumsum(sum(lengths))
        start = 0
        while start < len(ends):
            # A character has up to four bytes in UTF-8.
            full = np.searchsorted(ends, (ends[start - 1] if start else 0) + PORTION // 4)
            stop = max(start + 1, int(full))
            try:
                part = {n: pa.array(v[start:stop], pa.large_string()) for n, v in strings.items()}
            except UnicodeEncodeError as error:
                raise DataError(
                    f"{self.where}: expected Unicode text in {self._rows} {first + start + 1} to "
                    f"{first + min(stop, len(ends))}, found half a character ({error.reason}); "
                    "correct the text"
                ) from error
            yield part
            start = stop


def as_string(value: Any, column: str, where: str, place: str = "") -> str:
    """Return a value as a string; null and NaN become "", 3.0 "3", true and false as in JSON.

    Parameters
    ----------
    where, place : in front of a message and behind what it found

    Raises
    ------
    DataError : the value is a list or an object
    """
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if isinstance(value, list | tuple | dict):
        kind = "an object" if isinstance(value, dict) else "a list"
        raise DataError(
            f"{where}: expected one value in {column!r}, found {kind}{place}; name another column, "
            "or store one value per row"
        )
    if isinstance(value, bool):
        return str(value).lower()
    # Data frames turn integers into floats where a column has a gap.
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def rows_of(where: Path | str, **columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield batches of nodes that are in memory: name -> large_string array."""
    size = len(next(iter(columns.values())))
    values = {name: column.__getitem__ for name, column in columns.items()}
    return MemoryColumns(where, "nodes", size, values).batches(list(columns))


class Rows:
    """Nodes or edges in the order in which a parser meets them, counted as they come.

    Parameters
    ----------
    rows : what a row is, "nodes" or "edges"
    fixed : columns that every row has; those after the first `required` may stay empty

    Attributes
    ----------
    size : number of rows; attributes : names of the others, in order, with their defaults
    """

    def __init__(self, file: Path, rows: str, fixed: Sequence[str], required: int) -> None:
        self.meter, self.size = Meter(file, rows), 0
        self.attributes: dict[str, Any] = {}
        self._rows, self._required = rows, fixed[:required]
        self._fixed: dict[str, list[str]] = {name: [] for name in fixed}
        self._records: list[dict[str, Any]] = []

    def add(self, *fixed: str) -> int:
        """Store a row with these values of the fixed columns and return its number."""
        for column, value in zip(self._fixed.values(), fixed, strict=True):
            column.append(value)
        self._records.append(_NO_ATTRIBUTES)
        self.meter.rows(1)
        # An empty string is one object, whatever the number of rows that have it.
        self.meter.memory(_PLACE * (len(fixed) + 1) + sum(map(getsizeof, filter(None, fixed))))
        self.size += 1
        return self.size - 1

    def declare(self, name: str, default: Any = "") -> None:
        """Add an attribute; of several defaults the first that is not empty counts."""
        self.attributes[name] = self.attributes.get(name) or default
        self.meter.columns(len(self.attributes))

    def put(self, row: int, name: str, value: Any) -> None:
        """Store an attribute of a row; values of an attribute that repeats become a list."""
        if name not in self.attributes:
            self.declare(name)
        record = self._records[row]
        if record is _NO_ATTRIBUTES:
            record = self._records[row] = {}
            self.meter.memory(_RECORD)
        self.meter.memory(_VALUE + getsizeof(value))
        if name not in record:
            record[name] = value
        elif isinstance(record[name], list):
            record[name].append(value)
        else:
            record[name] = [record[name], value]

    def set_fixed(self, row: int, name: str, value: str) -> None:
        """Store a value of a fixed column."""
        self._fixed[name][row] = value
        self.meter.memory(getsizeof(value))

    def fixed(self, row: int, name: str) -> str:
        """Return a value of a fixed column."""
        return self._fixed[name][row]

    def name(self, fixed: str) -> str:
        """Return the column of a fixed name; with "@" in front if an attribute has this name."""
        while fixed in self.attributes:
            fixed = "@" + fixed
        return fixed

    def columns(self) -> MemoryColumns:
        """Return the table, without fixed columns that are empty in every row."""
        columns: dict[str, Callable[[slice], Sequence[Any]]] = {}
        for name, values in self._fixed.items():
            if name in self._required or any(values):
                columns[self.name(name)] = values.__getitem__
        for name, default in self.attributes.items():
            columns[name] = record_values(self._records, name, default)
        return MemoryColumns(self.meter.where, self._rows, self.size, columns)


def record_values(
    records: Sequence[Mapping[str, Any]], name: str, default: Any = None
) -> Callable[[slice], Sequence[Any]]:
    """Return the column of one key of records, for `MemoryColumns`."""
    return lambda rows: [record.get(name, default) for record in records[rows]]


def typed(text: str, kind: str) -> Any:
    """Return the value of an attribute with a declared type, as its file writes it.

    Only the ".0" of whole numbers is left out, so that a column of integers with a gap, which data
    frames turn into floats, has the same values in every format.

    Parameters
    ----------
    kind : type in GraphML or GEXF; of a list, the text becomes a list of one
    """
    kind = kind.lower()
    if kind.startswith("list"):
        return [text]
    if kind == "string":
        return text
    text = text.strip()
    if kind in ("float", "double", "real"):
        whole, _, rest = text.partition(".")
        if whole.lstrip("-").isdecimal() and rest and not rest.strip("0"):
            return whole
        return "" if text.lower() == "nan" else text
    return text.lower() if kind in ("boolean", "bool") else text
