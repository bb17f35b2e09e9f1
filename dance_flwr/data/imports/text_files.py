"""Text files of any encoding, compressed or not, as a stream of UTF-8."""

import codecs
import gzip
import io
import zlib
from pathlib import Path
from typing import IO

from dance_flwr.data.graphs.limits import UNPACKED_FLOOR, UNPACKED_RATIO, Meter
from dance_flwr.errors import DataError

_BLOCK = 1 << 18
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SHOWN = 40  # bytes of a line that cannot be decoded


def suffix_of(file: Path) -> str:
    """Return the suffix that names the format, in lower case, without `.gz`."""
    return (file.with_suffix("") if file.suffix.lower() == ".gz" else file).suffix.lower()


def max_size(file: Path) -> int:
    """Return a bound of the bytes in UTF-8 that a text file can hold."""
    size = file.stat().st_size
    # A byte of Latin-1 can become two bytes, two bytes of UTF-16 three.
    is_packed = file.suffix.lower() == ".gz"
    return max(UNPACKED_FLOOR, UNPACKED_RATIO * size) if is_packed else 2 * size


def encoding_of(file: Path, encoding: str = "") -> str:
    """Return the encoding of a text file: the one asked for, that of its byte-order mark, or UTF-8.

    Raises
    ------
    DataError : there is no such encoding, or the file has many zeros and no byte-order mark
    """
    with _raw(file) as stream:
        head = _read(stream, file, 1024)
    mark = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    if encoding:
        try:
            name = codecs.lookup(encoding).name
            "a".encode(encoding)  # a codec such as base64 is none of text
        except (LookupError, UnicodeError) as error:
            raise DataError(
                f"--encoding: expected an encoding such as latin-1, found {encoding!r}; correct it"
            ) from error
        return "utf-8-sig" if name == "utf-8" else name
    if not mark and head.count(0) > len(head) // 4:
        raise DataError(
            f"{file}: expected text, found zeros between the characters, as in UTF-16 without a "
            "byte-order mark; give --encoding utf-16-le"
        )
    return mark or "utf-8"


def open_text(file: Path, encoding: str) -> io.BufferedReader:
    """Open a text file as a stream of UTF-8, without a byte-order mark.

    Parameters
    ----------
    encoding : of the file, as `encoding_of` returns it

    Raises
    ------
    DataError : on reading: bytes are not in this encoding (the message shows the line), or a
        compressed file unpacks to more than the bound
    """
    # Buffered: Arrow takes what one read returns for a whole block.
    return io.BufferedReader(_Utf8Stream(file, encoding), 1 << 16)


class _Utf8Stream(io.RawIOBase):
    """The content of a text file in UTF-8, see `open_text`."""

    def __init__(self, file: Path, encoding: str) -> None:
        self._file, self._encoding, self._lines = file, encoding, 1
        self._raw = _raw(file)
        is_packed = file.suffix.lower() == ".gz"
        self._unpacked = Meter(file, stored=file.stat().st_size) if is_packed else None
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._pending = memoryview(b"")
        self._is_done = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._raw.close()
        super().close()

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        while not self._pending and not self._is_done:
            self._pending = memoryview(self._next())
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def _next(self) -> bytes:
        """Return the next block in UTF-8; empty where a character is not complete."""
        block = _read(self._raw, self._file, _BLOCK)
        if self._unpacked:
            self._unpacked.memory(len(block))
        self._is_done = not block
        try:
            text = self._decoder.decode(block, final=self._is_done)
        except UnicodeDecodeError as error:
            raise self._undecodable(error) from None
        self._lines += text.count("\n")
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{self._file}: expected {self._encoding}, found half a character "
                f"({error.reason}); correct the text"
            ) from None

    def _undecodable(self, error: UnicodeDecodeError) -> DataError:
        before = error.object[: error.start].decode(self._encoding, "replace")
        line = self._lines + before.count("\n")
        start = max(error.object.rfind(b"\n", 0, error.start) + 1, error.start - _SHOWN)
        shown = error.object[start : error.end + _SHOWN].split(b"\n")[0].rstrip(b"\r")
        encoding = self._encoding.removesuffix("-sig")
        remedy = "save it as UTF-8"
        if encoding == "utf-8":
            remedy += ", or give its encoding, for example --encoding latin-1"
        return DataError(
            f"{self._file} line {line}: expected {encoding.upper()}, found other bytes in "
            f"'{shown.decode('ascii', 'backslashreplace')}'; {remedy}"
        )


def _read(stream: IO[bytes], file: Path, size: int) -> bytes:
    try:
        return stream.read(size)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{file}: expected a complete gzip file, found: {error}; copy it again"
        ) from error


def _raw(file: Path) -> IO[bytes]:
    """Open a file, through gzip if its name ends in `.gz`."""
    return gzip.open(file, "rb") if file.suffix.lower() == ".gz" else file.open("rb")  # type: ignore[return-value]
