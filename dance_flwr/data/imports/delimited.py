"""Tables in text files, read in batches of bounded size."""

import csv
import io
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from dance_flwr.data.graphs.limits import Meter, listed
from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.text_files import encoding_of, max_size, open_text, suffix_of
from dance_flwr.errors import DataError

# Arrow reads BLOCKS_AHEAD blocks in advance: together they are one PORTION.
_CSV_BLOCK = 1 << 19
# The sizes of Arrow's blocks are signed 32-bit numbers.
_BLOCK_LIMIT = (1 << 31) - 1
# A file without a line break would be one header as long as the file.
_HEADER_CHARACTERS = 1 << 20
_DELIMITERS = (",", ";", "\t", "|")
DELIMITER_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}
# Lists of edges as SNAP, LINQS and networkx write them: two columns, or three with a weight.
EDGE_LISTS = (".txt", ".cites", ".edges", ".edgelist")
_COMMENTS = ("#", "%")
_SAMPLE_ROWS = 100
_RELEASE_SECONDS = 5.0


class CsvTable(Table):
    """A table in a text file, its values as they stand there: `007` stays `007`, `NaN` is a string.

    A file whose suffix is in `EDGE_LISTS` need not have a header: then its columns are `source`,
    `target` and, if there are three and the third is a number, `weight`.

    Parameters
    ----------
    encoding, delimiter : empty to detect them
    known : names in lower case that make the first row of a list of edges a header

    Attributes
    ----------
    facts : encoding, delimiter, and whether there is a header
    """

    def __init__(
        self,
        file: Path,
        rows: str = "nodes",
        *,
        encoding: str = "",
        delimiter: str = "",
        known: Iterable[str] = (),
    ) -> None:
        self._encoding, self._delimiter, self._known = encoding, delimiter, set(known)
        self._skipped = 0
        super().__init__(file, rows)

    def _open(self, meter: Meter) -> None:
        """Detect encoding, delimiter and header; Arrow would need kilobytes for each column."""
        self._encoding = encoding_of(self.file, self._encoding)
        with open_text(self.file, self._encoding) as stream:
            head = stream.read(_HEADER_CHARACTERS)
            is_whole = not stream.read(1)
        # The sample may end inside a character.
        text = head.decode(errors="ignore")
        is_list = suffix_of(self.file) in EDGE_LISTS
        if is_list:
            self._skipped, text = _without_comments(text)
        delimiters = self._candidates(is_list)
        samples = {mark: _sample(text, mark, is_whole) for mark in delimiters}
        self._delimiter = _detect(samples, self.file)
        rows = samples[self._delimiter]
        if not rows:
            raise pa.ArrowInvalid("Empty CSV file")
        if sum(map(len, rows[0])) + len(rows[0]) >= _HEADER_CHARACTERS:
            raise pa.ArrowInvalid(f"a header of more than {_HEADER_CHARACTERS:,} characters")
        self._has_header = not is_list or any(name.lower() in self._known for name in rows[0])
        self.names = rows[0] if self._has_header else _edge_columns(rows[0], self.file)
        self.facts = {
            "encoding": self._encoding.removesuffix("-sig"),
            "delimiter": DELIMITER_NAMES.get(self._delimiter, self._delimiter),
        }
        self.facts |= {} if self._has_header else {"header": "none"}

    def _candidates(self, is_list: bool) -> tuple[str, ...]:
        if self._delimiter:
            return (self._delimiter,)
        if suffix_of(self.file) == ".tsv":
            return ("\t",)
        return (*_DELIMITERS, " ") if is_list else _DELIMITERS

    def _record_batches(self, columns: list[str], meter: Meter) -> Iterator[Any]:
        """Yield the batches; a row longer than a block is read with larger blocks."""
        block, done = _CSV_BLOCK, 0
        while True:
            seen = 0
            try:
                options = self._options(block, columns)
                for batch in _parsed(open_text(self.file, self._encoding), **options):
                    # After a restart with larger blocks the rows that were yielded come again.
                    fresh = batch.slice(max(done - seen, 0))
                    seen += len(batch)
                    done = max(done, seen)
                    if len(fresh):
                        yield fresh
                return
            except pa.ArrowInvalid as error:
                block = _larger(block, self.file, meter, error)

    def _options(self, block: int, columns: Sequence[str]) -> dict[str, Any]:
        convert = pa_csv.ConvertOptions(strings_can_be_null=False, include_columns=list(columns))
        convert.column_types = dict.fromkeys(columns, pa.string())
        read = pa_csv.ReadOptions(block_size=block, use_threads=False, skip_rows=self._skipped)
        if not self._has_header:
            read.column_names = self.names
        # Line ends inside quotes belong to the value.
        parse = pa_csv.ParseOptions(newlines_in_values=True, delimiter=self._delimiter)
        return {"read_options": read, "parse_options": parse, "convert_options": convert}


def _parsed(stream: io.BufferedReader | None, **options: Any) -> Iterator[Any]:
    """Yield the batches of a stream; at the end Arrow no longer holds it, and it is closed."""
    released = threading.Event()
    weakref.finalize(stream, released.set)
    reader = None
    try:
        reader = pa_csv.open_csv(stream, **options)
        yield from reader
    finally:
        stream = reader = None
        # Arrow reads on a thread of its own. One that drops the last reference while the
        # interpreter ends aborts the process.
        released.wait(_RELEASE_SECONDS)


def _without_comments(text: str) -> tuple[int, str]:
    """Return the number of comment lines at the start, and the text after them."""
    count = start = 0
    while text.startswith(_COMMENTS, start):
        count, start = count + 1, text.find("\n", start) + 1 or len(text)
    return count, text[start:]


def _sample(text: str, delimiter: str, is_whole: bool) -> list[list[str]]:
    """Return the first rows of a table, split at this delimiter.

    Parameters
    ----------
    is_whole : whether the text is all of the file; if not, its last row may be cut
    """
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if row:
                rows.append(row)
            if len(rows) > _SAMPLE_ROWS:
                return rows
    except csv.Error as error:
        if not rows:
            raise pa.ArrowInvalid(f"in the header: {error}") from error
        return rows
    return rows if is_whole or len(rows) < 2 else rows[:-1]


def _detect(samples: dict[str, list[list[str]]], file: Path) -> str:
    """Return the delimiter that splits all rows into equally many columns, at least two."""
    widths = {mark: [len(row) for row in rows] for mark, rows in samples.items()}
    even = [mark for mark, width in widths.items() if len(set(width)) == 1 and width[0] > 1]
    # Why (decision 28): a wrong guess reads other values than were written, and nothing shows it.
    if len(even) > 1:
        marks = " and ".join(DELIMITER_NAMES[mark] for mark in even)
        raise DataError(
            f"{file}: expected one delimiter, found that {marks} both fit; name it, for example "
            f"--delimiter '{even[0]}'"
        )
    # Uneven rows: Arrow names the first of them.
    return even[0] if even else max(widths, key=lambda mark: widths[mark][:1] or [0])


def _edge_columns(row: list[str], file: Path) -> list[str]:
    """Return the names of the columns of a list of edges without a header."""
    if len(row) == 2 or (len(row) == 3 and _is_number(row[2])):
        return ["source", "target", "weight"][: len(row)]
    raise DataError(
        f"{file}: expected two columns, the ends of an edge, or a header that names the columns, "
        f"found {len(row)} columns beginning with {listed(row)}; add a header"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _larger(block: int, file: Path, meter: Meter, error: Exception) -> int:
    """Return the next block size to try, or raise the error if a larger block cannot help."""
    # Arrow says only in its message that a row straddles the end of a block.
    if "straddl" not in str(error) or block > min(max_size(file), _BLOCK_LIMIT - 1):
        raise error
    longest = min(_BLOCK_LIMIT, max(_CSV_BLOCK, meter.limits.line))
    if block >= longest:
        meter.line(block + 1)
        raise error
    # Eightfold: few restarts, and a block is never much larger than its longest row.
    return min(block * 8, longest)
