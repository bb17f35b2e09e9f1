"""Parquet files in batches of bounded size, whatever their metadata say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dance_flwr.data.graphs.limits import PORTION, Meter

_BATCH_BYTES, _BATCH_ROWS = 2 << 20, 1 << 11
_DICTIONARY_PAGE = 2
_HEADERS = {0: 5, 3: 8}  # kind of a data page -> field of its own header
_ENCODING = {0: 2, 3: 4}  # kind of a data page -> field of the encoding in that header
_DELTA_BYTE_ARRAY = 7
# Fields of the footer, and the type of strings of a fixed length.
_ROW_GROUPS, _COLUMNS, _COLUMN = 4, 1, 3
_TYPE, _VALUES, _DATA_OFFSET, _DICTIONARY_OFFSET = 1, 5, 9, 11
_FIXED_LENGTH = 7
_FOOTER = 64  # bytes in memory for a byte of the footer
_DAMAGED = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)


@dataclass
class _Pages:
    """What the page headers of one column of a row group say.

    Attributes
    ----------
    rows, sizes : values and uncompressed bytes of each data page
    dictionary : uncompressed bytes of the dictionary page; 0 = none
    longest : maximum bytes of a value where values continue earlier ones, else 0
    """

    rows: list[int]
    sizes: list[int]
    dictionary: int = 0
    longest: int = 0


def read_schema(file: Path) -> Any:
    """Return the Arrow schema of a Parquet file."""
    with pq.ParquetFile(file) as table:
        return table.schema_arrow


def batches(file: Path, columns: Sequence[str], meter: Meter) -> Iterator[Any]:
    """Yield record batches of a few MiB; the sizes of all pages are checked before the first."""
    # Without a bounded buffer, the column of a row group (perhaps the whole file) is read at once.
    options: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
    with (
        pq.ParquetFile(file, **options) as table,
        # As dictionaries: entries are measured before any row repeats them.
        pq.ParquetFile(file, read_dictionary=list(columns), **options) as probe,
    ):
        meta = table.metadata
        meter.rows(meta.num_rows, declared=True)
        groups = _measure(file, meta, columns, meter)
        size = sum(sum(pages.sizes) for group in groups for pages in group.values())
        # From declared sizes, which may lie; `_safe_rows` corrects them.
        usual = min(_BATCH_ROWS, max(1, meta.num_rows * _BATCH_BYTES // max(size, 1)))
        for number, group in enumerate(groups):
            safe = (_safe_rows(pages, probe, number, name) for name, pages in group.items())
            yield from table.iter_batches(
                batch_size=min(usual, *safe),
                row_groups=[number],
                columns=list(columns),
                use_threads=False,
            )


def _measure(
    file: Path, meta: Any, columns: Sequence[str], meter: Meter
) -> list[dict[str, _Pages]]:
    """Return the pages of each row group and column, from their headers alone."""
    places = {meta.schema.column(i).path: i for i in range(meta.num_columns)}
    groups, total = [], 0
    with file.open("rb") as stream:
        # Arrow's own objects of columns end the process where statistics are damaged.
        for row_group in _row_groups(stream, meter):
            group: dict[str, _Pages] = {}
            for name in columns:
                try:
                    chunk = row_group[_COLUMNS][places[name]][_COLUMN]
                    group[name] = _pages(stream, chunk)
                except _DAMAGED as error:
                    raise pa.ArrowInvalid(f"a damaged page header of {name!r}") from error
                if chunk[_TYPE] == _FIXED_LENGTH:
                    group[name].longest = max(0, meta.schema.column(places[name]).length)
                total += group[name].dictionary + sum(group[name].sizes)
                meter.memory(total, declared=True)
            groups.append(group)
    return groups


def _row_groups(stream: BinaryIO, meter: Meter) -> list[dict[int, Any]]:
    """Return the structures of the row groups, from the footer of a file."""
    try:
        stream.seek(-8, 2)  # its length and the mark of Parquet
        length = int.from_bytes(stream.read(4), "little")
        meter.memory(_FOOTER * length, declared=True)
        stream.seek(-8 - length, 2)
        groups: list[dict[int, Any]] = _structure(stream)[_ROW_GROUPS]
        return groups
    except (OSError, *_DAMAGED) as error:
        raise pa.ArrowInvalid("a damaged footer") from error


def _safe_rows(pages: _Pages, probe: Any, group: int, name: str) -> int:
    """Return how many rows can be decoded at once without passing `PORTION` by much."""
    longest = pages.longest
    if pages.dictionary > PORTION // _BATCH_ROWS:  # a short entry of a dictionary can be many rows
        first = next(probe.iter_batches(batch_size=1, row_groups=[group], columns=[name])).column(0)
        if pa.types.is_dictionary(first.type):
            longest = max(longest, pc.max(pc.binary_length(first.dictionary)).as_py() or 0)
    rows = min(_BATCH_ROWS, max(1, PORTION // max(longest, 1)))
    if sum(pages.sizes) <= PORTION:
        return rows
    sizes, counts = np.array(pages.sizes, np.int64), np.array(pages.rows, np.int64)
    ends, before = np.cumsum(counts), np.concatenate([[0], np.cumsum(sizes)])
    while rows > 1:  # the pages that so many rows touch, wherever they begin
        last = np.searchsorted(ends - counts, ends + rows - 1)
        if (before[last] - before[:-1]).max() - sizes.max() <= PORTION:
            break
        rows //= 2
    return rows


def _pages(stream: BinaryIO, chunk: dict[int, Any]) -> _Pages:
    """Walk over the page headers of a column as a reader would, without unpacking a page."""
    first = chunk.get(_DICTIONARY_OFFSET)
    stream.seek(min(first or chunk[_DATA_OFFSET], chunk[_DATA_OFFSET]))
    pages, seen = _Pages([], []), 0
    while seen < chunk[_VALUES]:
        header = _structure(stream)
        kind, unpacked, packed = header[1], header[2], header[3]
        # A negative size would lead back over the same pages.
        if min(unpacked, packed) < 0:
            raise ValueError
        if kind == _DICTIONARY_PAGE:
            pages.dictionary = max(pages.dictionary, unpacked)
        elif kind in _HEADERS:
            page_header = header[_HEADERS[kind]]
            pages.rows.append(page_header[1])
            pages.sizes.append(unpacked)
            seen += page_header[1]
            if page_header[_ENCODING[kind]] == _DELTA_BYTE_ARRAY:  # values continue the one before
                pages.longest = max(pages.longest, unpacked)
        stream.seek(packed, 1)
    return pages


def _structure(stream: BinaryIO) -> dict[int, Any]:
    """Read a structure in Thrift's compact protocol: field number -> value."""
    fields: dict[int, Any] = {}
    field = 0
    while byte := stream.read(1)[0]:
        # The first byte holds the step from the last field, or 0 where the full number follows.
        field = field + (byte >> 4) if byte >> 4 else _number(stream)
        fields[field] = _value(stream, byte & 15)
    return fields


def _value(stream: BinaryIO, kind: int) -> Any:
    # The types of the protocol that footers and page headers use; any other is damage.
    if kind in (1, 2):
        return kind == 1
    if kind == 3:
        return stream.read(1)[0]
    if kind in (4, 5, 6):
        return _number(stream)
    if kind == 8:  # bytes, which no caller needs
        return stream.seek(_varint(stream), 1)
    if kind == 9:
        size, inner = divmod(stream.read(1)[0], 16)
        size = _varint(stream) if size == 15 else size
        # A truth value in a list has a byte of its own.
        return [_value(stream, 3 if inner in (1, 2) else inner) for _ in range(size)]
    if kind == 12:
        return _structure(stream)
    raise ValueError


def _number(stream: BinaryIO) -> int:
    value = _varint(stream)
    return (value >> 1) ^ -(value & 1)


def _varint(stream: BinaryIO) -> int:
    value = 0
    # Ten bytes hold 64 bits; a longer number is damage.
    for shift in range(0, 70, 7):
        byte = stream.read(1)[0]
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise ValueError
