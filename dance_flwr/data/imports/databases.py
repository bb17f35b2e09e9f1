"""Workbooks (.xlsx) and SQLite databases: every sheet or table is one of nodes or of edges."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.records import (
    Record,
    fault,
    is_packed,
    optional,
    record_table,
    seekable,
    suffix_of,
)
from dance_flwr.errors import UserError

Sheet = tuple[str, Iterator[tuple[Any, ...]]]  # a name, and rows of which the first has names


def sheets(file: Path) -> list[tuple[str, Table]]:
    """Return the tables in a file by name."""
    read = _workbook if suffix_of(file) == ".xlsx" else _database
    try:
        return [
            (name, record_table(f"{file}: {name}", "nodes", _records(rows)))
            for name, rows in read(file)
        ]
    except UserError:
        raise
    except Exception as error:  # of a damaged file, from either library
        raise fault(file, f"a readable {suffix_of(file)[1:]} file", error) from error


def _records(rows: Iterator[tuple[Any, ...]]) -> Iterator[Record]:
    names = ["" if name is None else str(name) for name in next(rows, ())]
    for row in rows:
        if any(value is not None for value in row):
            yield dict(zip(names, row, strict=True))


def _workbook(file: Path) -> Iterator[Sheet]:
    openpyxl = optional("openpyxl", file)
    with closing(openpyxl.load_workbook(seekable(file), read_only=True, data_only=True)) as book:
        for sheet in book.worksheets:
            yield sheet.title, sheet.iter_rows(values_only=True)


def _database(file: Path) -> Iterator[Sheet]:
    place = ":memory:" if is_packed(file) else f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(place, uri=True)) as connection:
        if is_packed(file):
            connection.deserialize(seekable(file).read())
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        for (name,) in connection.execute(tables).fetchall():
            if not name.startswith("sqlite_"):
                rows = connection.execute('SELECT * FROM "{}"'.format(name.replace('"', '""')))
                yield name, _with_header(rows)


def _with_header(cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
    yield tuple(column[0] for column in cursor.description)
    yield from cursor
