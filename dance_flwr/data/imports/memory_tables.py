"""Tables of rows that a parser has read into memory."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.graphs.tables import Table
from dance_flwr.errors import DataError

_ROWS = 4096  # of a batch


def memory_table(where: Path | str, rows: str, size: int, columns: Mapping[str, Any]) -> Table:
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
            stop = min(start + _ROWS, size)
            try:
                yield pa.record_batch({n: array(n, values[n][start:stop], start) for n in names})
            except UnicodeEncodeError as error:
                raise DataError(
                    f"{where}: expected Unicode text in {rows} {start + 1} to {stop}, found "
                    f"half a character ({error.reason}); correct the text"
                ) from error

    def array(name: str, values: Any, start: int) -> Any:
        if isinstance(values, np.ndarray):
            return pa.array(values)
        strings = [
            as_string(value, name, str(where), f" in row {row} of the {rows}")
            for row, value in enumerate(values, start + 1)
        ]
        return pa.array(strings, pa.large_string())

    return Table(str(where), list(columns), record_batches, rows)


def record_table(where: Path | str, rows: str, records: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of records, whose columns are their keys as they first appear."""
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(record))
        check(where, columns=len(names))
    columns = {name: values_of(records, name) for name in names}
    return memory_table(where, rows, len(records), columns)


def values_of(
    records: Sequence[Mapping[str, Any]], key: str, default: Any = None
) -> Callable[[], list[Any]]:
    """Return the column of one key of records, for `memory_table`."""
    return lambda: [record.get(key, default) for record in records]


def ids_in(text: str) -> list[str]:
    """Return the ids in a string, between semicolons, commas or bars, quotes and brackets aside."""
    return [i for part in re.split("[;,|]", text) if (i := part.strip(" \t\r\n'\"[]"))]


def as_string(value: Any, column: str, where: str, place: str = "") -> str:
    """Return a value as a string; null and NaN become "", 3.0 "3", true and false as in JSON.

    Parameters
    ----------
    where, place : start of a message, and what follows the value that it found

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
