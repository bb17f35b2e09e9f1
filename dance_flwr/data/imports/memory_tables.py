"""Tables of rows that a parser has read into memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.graphs.tables import Table
from dance_flwr.errors import DataError

_ROWS = 4096  # of a batch


def memory_table(
    where: Path | str,
    rows: str,
    size: int,
    columns: Mapping[str, Callable[[slice], Any]],
) -> Table:
    """Return a table of `columns`: name -> function that returns the values of a slice of rows.

    A number that is whole has no decimal point, true and false are in lower case as in JSON, and
    null and NaN are missing.
    """
    check(where, **{rows: size})

    def array(name: str, part: slice) -> Any:
        values = columns[name](part)
        if isinstance(values, np.ndarray):
            return pa.array(values)
        places = (f" in row {row} of the {rows}" for row in range(part.start + 1, part.stop + 1))
        strings = [
            as_string(value, name, str(where), place)
            for value, place in zip(values, places, strict=True)
        ]
        return pa.array(strings, pa.large_string())

    def record_batches(names: list[str]) -> Iterator[Any]:
        for start in range(0, size, _ROWS):
            part = slice(start, min(start + _ROWS, size))
            try:
                yield pa.record_batch({name: array(name, part) for name in names})
            except UnicodeEncodeError as error:
                raise DataError(
                    f"{where}: expected Unicode text in {rows} {start + 1} to {part.stop}, found "
                    f"half a character ({error.reason}); correct the text"
                ) from error

    return Table(str(where), list(columns), record_batches, rows)


def record_table(where: Path | str, rows: str, records: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of records, whose columns are their keys as they first appear."""
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(record))
        check(where, columns=len(names))
    columns = {name: record_values(records, name) for name in names}
    return memory_table(where, rows, len(records), columns)


def record_values(
    records: Sequence[Mapping[str, Any]], key: str, default: Any = None
) -> Callable[[slice], Sequence[Any]]:
    """Return the column of one key of records, for `memory_table`."""
    return lambda rows: [record.get(key, default) for record in records[rows]]


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


class Rows:
    """Nodes or edges in the order in which a parser meets them.

    Attributes
    ----------
    records : one mapping per row; the format's own columns are under `own` names
    attributes : names of the others, in order, with their defaults
    """

    def __init__(self, file: Path, rows: str, own: Sequence[str], required: int) -> None:
        self.file, self.rows = file, rows
        self.records: list[dict[str, Any]] = []
        self.attributes: dict[str, Any] = {}
        self._own, self._required = own, own[:required]

    def add(self, **own: str) -> dict[str, Any]:
        """Store a row with these values of the format's own columns, and return it."""
        self.records.append({f"\0{name}": value for name, value in own.items() if value})
        check(self.file, **{self.rows: len(self.records)})
        return self.records[-1]

    def declare(self, name: str, default: Any = "") -> None:
        """Add an attribute; of several defaults the first that is not empty counts."""
        self.attributes[name] = self.attributes.get(name) or default
        check(self.file, columns=len(self.attributes))

    def put(self, record: dict[str, Any], name: str, value: Any) -> None:
        """Store an attribute of a row; values of an attribute that repeats become a list."""
        if name not in self.attributes:
            self.declare(name)
        if name not in record:
            record[name] = value
        elif isinstance(record[name], list):
            record[name].append(value)
        else:
            record[name] = [record[name], value]

    def name(self, own: str) -> str:
        """Return the name of an own column; with "@" in front if an attribute has this name."""
        while own in self.attributes:
            own = "@" + own
        return own

    def table(self) -> Table:
        """Return the table, without own columns that are empty in every row."""
        columns: dict[str, Callable[[slice], Sequence[Any]]] = {}
        for name in self._own:
            key = f"\0{name}"
            if name in self._required or any(key in record for record in self.records):
                columns[self.name(name)] = record_values(self.records, key, "")
        for name, default in self.attributes.items():
            columns[name] = record_values(self.records, name, default)
        return memory_table(self.file, self.rows, len(self.records), columns)


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
