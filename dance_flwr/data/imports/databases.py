"""Workbooks (.xlsx) and SQLite databases: every sheet or table is one of nodes or of edges."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.records import (
    Record,
    is_packed,
    optional,
    record_table,
    seekable,
    suffix_of,
)
from dance_flwr.errors import DataError, UserError


def sheets(file: Path) -> list[tuple[str, Callable[..., Table]]]:
    """Return the name of each table, and a function that opens it as "nodes" or "edges"."""
    rows = _rows_of_workbook if suffix_of(file) == ".xlsx" else _rows_of_database
    try:
        names = [name for name, _ in rows(file, None)]
    except UserError:
        raise
    except Exception as error:  # of a damaged file, from either library
        raise DataError(
            f"{file}: expected a readable {suffix_of(file)[1:]} file, found: {error!s:.160}; "
            "export it again"
        ) from error

    def open_(name: str, kind: str, **_: Any) -> Table:
        def records() -> Iterator[Record]:
            for _, lines in rows(file, name):
                header = next(lines, ())
                for line in lines:
                    if any(value is not None for value in line):
                        yield dict(zip(map(_text, header), line, strict=True))

        return record_table(f"{file}: {name}", kind, records)

    return [(name, partial(open_, name)) for name in names]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _rows_of_workbook(file: Path, wanted: str | None) -> Iterator[tuple[str, Iterator[Any]]]:
    """Yield the name and the rows, the header first, of the sheets or of one of them."""
    openpyxl = optional("openpyxl", file)
    with closing(openpyxl.load_workbook(seekable(file), read_only=True, data_only=True)) as book:
        for sheet in book.worksheets:
            if wanted in (None, sheet.title):
                yield sheet.title, sheet.iter_rows(values_only=True)


def _rows_of_database(file: Path, wanted: str | None) -> Iterator[tuple[str, Iterator[Any]]]:
    """Yield the name and the rows, the header first, of the tables or of one of them."""
    packed = is_packed(file)
    place = ":memory:" if packed else f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(place, uri=True)) as connection:
        if packed:
            connection.deserialize(seekable(file).read())
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        for (name,) in connection.execute(tables).fetchall():
            if wanted in (None, name) and not name.startswith("sqlite_"):
                quoted = name.replace('"', '""')
                yield name, _with_header(connection.execute(f'SELECT * FROM "{quoted}"'))


def _with_header(cursor: sqlite3.Cursor) -> Iterator[Any]:
    yield [column[0] for column in cursor.description]
    yield from cursor
