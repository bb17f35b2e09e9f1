"""Index of a text bank: the rows of each text's chunks; append-only, repaired after a crash."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from dance_flwr.data.text.chunking import Chunks
from dance_flwr.disk import append_to
from dance_flwr.errors import DataError

DATA, INDEX = "embeddings.f16", "index.jsonl"


class BankIndex:
    """Index of a bank, one JSON line per text, read incrementally.

    Parameters
    ----------
    folder : folder of the bank
    dim : length of an embedding

    Attributes
    ----------
    entries : text key -> "row" (first row), "tokens" and "spans" of its chunks, and "cut" (whether
        its end is omitted)
    rows : number of rows of all entries
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self._path, self._data, self._row_bytes = folder / INDEX, folder / DATA, 2 * dim
        self._forget()

    def _forget(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.rows = self._offset = 0

    def read(self) -> None:
        """Read the lines added since the last call, without an incomplete last line."""
        size = self._path.stat().st_size if self._path.is_file() else 0
        if size < self._offset:  # the bank was removed
            self._forget()
        if size > self._offset:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                lines = file.read().splitlines(keepends=True)
            for number, line in enumerate(lines):
                if not self._add(line):
                    # A killed process may leave half of the last line, which `repair` cuts off.
                    if number < len(lines) - 1:
                        raise self._damaged(
                            f"line {len(self.entries) + 1} of {INDEX} is not an entry"
                        )
                    break
        held = self._data.stat().st_size if self._data.is_file() else 0
        if held < self.rows * self._row_bytes:
            raise self._damaged(f"{DATA} has {held} bytes, not {self.rows * self._row_bytes}")

    def _add(self, line: bytes) -> bool:
        try:
            entry = json.loads(line)
            good = (
                line.endswith(b"\n")
                and entry["row"] == self.rows
                and isinstance(entry["cut"], bool)
            )
            good = good and len(entry["spans"]) == len(entry["tokens"]) > 0
            if good:
                self.entries[entry.pop("text")] = entry
        except (ValueError, KeyError, TypeError):
            return False
        if good:
            self.rows += len(entry["tokens"])
            self._offset += len(line)
        return bool(good)

    def repair(self) -> None:
        """Truncate the files after the last complete entry; the caller must hold the lock."""
        self.read()
        for path, size in ((self._path, self._offset), (self._data, self.rows * self._row_bytes)):
            if path.is_file() and path.stat().st_size > size:
                os.truncate(path, size)

    def _damaged(self, found: str) -> DataError:
        return DataError(
            f"text bank {self._path.parent}: expected an undamaged bank, found that {found}; "
            "remove the folder to encode again"
        )


def text_key(text: str) -> str:
    """Return the key of a text: the sha256 hex of its UTF-8 bytes."""
    # A text may hold half a character, which strict UTF-8 refuses.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def index_line(key: str, row: int, chunks: Chunks, text: int) -> bytes:
    """Return the index line of text number `text` of `chunks`; `row` is its first row."""
    rows = slice(chunks.ptr[text], chunks.ptr[text + 1])
    entry = {
        "text": key,
        "row": row,
        "tokens": chunks.tokens[rows].tolist(),
        "spans": chunks.spans[rows].tolist(),
        "cut": bool(chunks.truncated[text]),
    }
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    """Append bytes to a file and flush them to the device; the caller must hold the lock."""
    with append_to(path) as file:
        file.write(data)
        file.flush()
        # A line of the index must not be on the disk before the rows that it names.
        os.fsync(file.fileno())
