"""Arrow and Feather files, whose buffers are measured before any is unpacked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from dance_flwr.data.graphs.limits import Meter
from dance_flwr.data.graphs.tables import Table

_MAGIC = b"ARROW1\0\0"
# Numbers of fields in Arrow's messages, which are flatbuffers.
_HEADER, _DICTIONARY_DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3


class ArrowTable(Table):
    """An Arrow IPC file or stream, as `pandas.to_feather` and Arrow write them."""

    def _open(self, meter: Meter) -> None:
        with _stream(self.file) as source, pa.ipc.open_stream(source) as reader:
            self.names = list(reader.schema.names)
            self.metadata = dict(reader.schema.metadata or {})
            self._types = dict(zip(reader.schema.names, reader.schema.types, strict=True))

    def _record_batches(self, columns: list[str], meter: Meter) -> Iterator[Any]:
        # Why (decision 28): pandas compresses Feather files, so they are measured, not refused.
        meter.memory(_unpacked_size(self.file), declared=True)
        with _stream(self.file) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                meter.rows(len(batch), declared=True)
                # Offsets in a foreign file may point anywhere.
                batch.validate(full=True)
                yield batch.select(columns)


@contextmanager
def _stream(file: Path) -> Iterator[Any]:
    """Open an Arrow file at its first message: a file is a stream between two marks."""
    with pa.OSFile(str(file)) as source:
        if source.read(len(_MAGIC)) != _MAGIC:
            source.seek(0)
        yield source


def is_compressed(file: Path) -> bool:
    """Return whether any buffer of a file is compressed."""
    return any(buffers for _, buffers in _bodies(file))


def _unpacked_size(file: Path) -> int:
    """Return the bytes that all buffers of a file declare to take, compressed or not."""
    total = 0
    for body, buffers in _bodies(file):
        total += body.size
        for offset, length in buffers:
            # Arrow itself refuses a buffer that lies outside.
            if length >= 8 and 0 <= offset <= body.size - 8:
                # A compressed buffer begins with its size; -1 says that it is not compressed.
                size = body.slice(offset, 8).to_pybytes()
                total += max(0, int.from_bytes(size, "little", signed=True))
    return total


def _bodies(file: Path) -> Iterator[tuple[Any, list[tuple[int, int]]]]:
    """Yield the body of each dictionary and record batch, and its compressed buffers."""
    with _stream(file) as source:
        for message in pa.ipc.MessageReader.open_stream(source):
            if message.type in ("dictionary", "record batch"):
                data = message.metadata.to_pybytes()
                yield message.body, list(_compressed_buffers(data, message.type))


def _compressed_buffers(data: bytes, kind: str) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each buffer of a message; nothing if it is not compressed.

    A table in a flatbuffer begins with the distance to the offsets of its fields, of which 0 means
    absent.
    """

    def number(place: int, size: int = 4, *, signed: bool = False) -> int:
        return int.from_bytes(data[place : place + size], "little", signed=signed)

    def field(table: int, index: int) -> int:
        offsets = table - number(table, signed=True)
        is_present = index * 2 + 4 < number(offsets, 2)
        offset = number(offsets + 4 + 2 * index, 2) if is_present else 0
        return table + offset if offset else 0

    header = field(number(0), _HEADER)
    header += number(header)
    if kind == "dictionary":
        header = field(header, _DICTIONARY_DATA)
        header += number(header)
    buffers = field(header, _BUFFERS)
    if not field(header, _COMPRESSION) or not buffers:
        return
    vector = buffers + number(buffers)
    for i in range(min(number(vector), len(data) // 16)):
        # A buffer is two numbers of eight bytes.
        place = vector + 4 + 16 * i
        yield number(place, 8, signed=True), number(place + 8, 8, signed=True)
