"""Tables in text files of any encoding, compressed or not: CSV and its kin, and JSON lines."""

import codecs
import csv
import io
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.graphs.tables import Table, readable
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.records import (
    Record,
    fault,
    flat,
    is_packed,
    opened,
    parsed,
    record_table,
    suffix_of,
)
from dance_flwr.data.imports.roles import known_names
from dance_flwr.errors import DataError, counted
from dance_flwr.escaping import one_line

# Lists of edges as SNAP, LINQS and NetworkX write them: two columns, or three with a weight.
EDGE_LISTS = (".txt", ".cites", ".edges", ".edgelist")
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}
COMMENTS = ("#", "%")
_SAMPLE, _SAMPLE_ROWS = 1 << 20, 100  # characters and rows from which the delimiter is told
_BLOCK, _WIDE = 1 << 19, 200  # bytes that Arrow reads at once; columns of a wide table
_SHOWN = 40  # characters of a line in a message
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# What quotes mean, for Python's reader and for Arrow's. Who escapes them may double some, too.
_QUOTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "standard": ({}, {"newlines_in_values": True}),
    "backslash": ({"escapechar": "\\"}, {"newlines_in_values": True, "escape_char": "\\"}),
    "none": ({"quoting": csv.QUOTE_NONE}, {"newlines_in_values": False, "quote_char": False}),
}


class _Seen(NamedTuple):
    """What a meaning of quotes makes of a file."""

    fits: bool = True  # whether all rows have the right number of columns
    rows: int = 0
    spanning: int = 0  # rows over several lines
    first: int = 0  # line where the first of these begins
    longest: int = 0  # characters of the longest row
    broken: int = 0  # line with a quote that is neither at an end of its value nor escaped


class _TextFile:
    """A table in a text file: how it is written, told from the file as a whole.

    Parameters
    ----------
    comments : whether lines at the top of a list of edges that begin with a mark are skipped
    names : of the columns, if a file apart holds the header
    """

    def __init__(self, file: Path, options: Options, comments: bool, names: Sequence[str]) -> None:
        self.file = file
        self.encoding, longest = encoding_of(file, options.encoding)
        with text_of(file, self.encoding) as stream:
            head = stream.read(_SAMPLE)
        is_list, is_whole = suffix_of(file) in EDGE_LISTS, len(head) < _SAMPLE
        # Where every line begins with a mark, ids begin with it.
        comments = comments and not all(line.startswith(COMMENTS) for line in head.splitlines())
        self.skipped = 0
        while is_list and comments and head.startswith(COMMENTS):
            self.skipped, head = self.skipped + 1, head.partition("\n")[2]
        marks = "\t" if suffix_of(file) == ".tsv" else "".join(_DELIMITERS)[: 5 if is_list else 4]
        marks = options.delimiter or marks
        quotings = [options.quoting or "standard"]
        quotings += ["backslash"] if '\\"' in head and not options.quoting else []
        tried = [
            {mark: _sample(head, mark, is_whole, _QUOTINGS[how][0]) for mark in marks}
            for how in quotings
        ]
        told = (
            one for fits in (_is_even, _is_short) for one in tried if any(map(fits, one.values()))
        )
        samples = next(told, tried[0])
        self.mark = _delimiter(samples, file)
        rows = samples[self.mark]
        if not rows:
            raise fault(file, "a readable csv table", "an empty file", "add rows")
        # R names no column for the names of rows, which come first.
        self.is_short = options.header and not names and _is_short(rows)
        first = ["", *rows[0]] if self.is_short else rows[0]
        self.width = len(first)
        # Of a first row that is no header, as the user says, one value may be such a name, too.
        known = known_names(options)
        named = sum(name.strip().lower() in known for name in first)
        is_header = self.is_short or named > (not options.header)
        bare = is_list or (len(first) in (2, 3) and all(map(_is_number, first)))
        self.has_header = not names and (is_header or (options.header and not bare))
        self.names = list(names or (first if self.has_header else _names(first, file, is_list)))
        self.quoting, seen = options.quoting or "standard", _Seen()
        if self.quoting != "standard" or not self._has_even_lines():
            how = options.quoting
            self.quoting, seen = (how, self._read_as(how, strict=False)) if how else self._quoting()
        # Arrow refuses a row that is longer than a block; a character has up to four bytes.
        self.block_size = min(max(_BLOCK, 4 * longest, 4 * seen.longest), (1 << 31) - 1)
        facts = {
            "encoding": self.encoding.removesuffix("-sig"),
            "delimiter": _DELIMITERS.get(self.mark, self.mark),
            "header": "without a name for the first column" * self.is_short
            or "none" * (not self.has_header),
            "skipped": counted(self.skipped, "comment line") if self.skipped else "",
            "quoting": self.quoting if self.quoting != "standard" else "",
            "rows over several lines": f"{seen.spanning:,}" if seen.spanning else "",
        }
        self.facts = {what: value for what, value in facts.items() if value}

    def record_batches(self, columns: list[str]) -> Iterator[Any]:
        uneven: list[Any] = []

        def refuse(row: Any) -> str:
            uneven.append(row)
            return "error"

        style = _QUOTINGS[self.quoting][1]
        parse = pa_csv.ParseOptions(delimiter=self.mark, invalid_row_handler=refuse, **style)
        # By our names, since a header would be told from what Arrow reads first of it.
        read = pa_csv.ReadOptions(
            use_threads=False,
            block_size=self.block_size,
            skip_rows=self.skipped,
            column_names=self.names,
            skip_rows_after_names=int(self.has_header),
        )
        convert = pa_csv.ConvertOptions(strings_can_be_null=False, include_columns=columns)
        convert.column_types = dict.fromkeys(columns, pa.string())
        packing = "gzip" if is_packed(self.file) else None
        with pa.input_stream(str(self.file), compression=packing) as raw:
            if not self.encoding.startswith("utf-8"):
                raw = pa.transcoding_input_stream(raw, self.encoding, "utf-8")
            try:
                yield from pa_csv.open_csv(raw, read, parse, convert)
            except pa.ArrowInvalid:
                if uneven:
                    raise _uneven(self.file, uneven[0]) from None
                raise

    def _quoting(self) -> tuple[str, _Seen]:
        """Return what quotes mean, and what they make of the file.

        Two meanings that fit with different rows are an error; so is a stray quote if none fits.
        """
        standard = self._read_as("standard")
        with text_of(self.file, self.encoding) as lines:
            first = next(itertools.islice(lines, self.skipped, None)).rstrip("\r\n")
            has_escapes = any('\\"' in line for line in lines)
        if standard.fits and not (standard.spanning or has_escapes):
            return "standard", standard
        others = ("backslash", "none") if has_escapes else ("none", "backslash")
        every = {"standard": standard} | {how: self._read_as(how) for how in others}
        fitting = {how: seen for how, seen in every.items() if seen.fits}
        how, seen = next(iter(fitting.items()), ("standard", standard))
        if other := next((name for name in fitting if every[name].rows != seen.rows), ""):
            found = (
                f"that both fit: line {seen.first or every[other].first} begins a row over several "
                f"lines, and without it every row has {self.width} columns, too"
            )
            advice = (
                f"give --quoting {other} for {every[other].rows - self.has_header:,} rows, or "
                f"--quoting {how} for {seen.rows - self.has_header:,}"
            )
            what = "quotes that are either part of the values or around them"
            raise fault(self.file, what, found, advice)
        is_quoted = all(re.fullmatch('".*"', value) for value in first.split(self.mark))
        if (how == "none" and is_quoted) or (not fitting and standard.broken):
            what = "quotes that are doubled or escaped within quotes"
            advice = "correct them, or give --quoting standard" + ", or none" * (how == "none")
            raise fault(f"{self.file} line {standard.broken}", what, "others", advice)
        return how, seen

    def _has_even_lines(self) -> bool:
        """Return whether every line alone is a row, if quotes surround values, as in most files.

        Arrow's regular expressions take a twentieth of the time of Python's reader, but for many
        columns, which need too many states.
        """
        if self.width > _WIDE:
            return False
        mark = re.escape(self.mark)
        value = rf'(?:"(?:[^"\r\n]|"")*"|(?:[^"{mark}\r\n][^{mark}\r\n]*)?)'
        rows = f"^(?:(?:{mark.join([value] * self.width)})?\r?\n)*$"
        with text_of(self.file, self.encoding) as lines:
            for _ in range(self.skipped + self.is_short):
                lines.readline()
            while block := lines.read(_SAMPLE):
                block += lines.readline()
                block += "" if block.endswith("\n") else "\n"
                # Escapes, or a backslash at an end.
                if '\\"' in block or not pc.match_substring_regex(pa.scalar(block), rows).as_py():
                    return False
        return True

    def _read_as(self, how: str, *, strict: bool = True) -> _Seen:
        """Return what a meaning of the quotes makes of the file."""
        fits, rows, spanning, first, longest, before = True, 0, 0, 0, 0, 0
        with text_of(self.file, self.encoding) as lines:
            for _ in range(self.skipped):
                lines.readline()
            style = _QUOTINGS[how][0]
            reader = csv.reader(lines, delimiter=self.mark, strict=strict, **style)
            try:
                for row in reader:
                    if row:
                        rows += 1
                        fits = fits and len(row) == self.width - (self.is_short and rows == 1)
                        longest = max(longest, sum(map(len, row)))
                        if reader.line_num > before + 1:
                            spanning, first = spanning + 1, first or before + self.skipped + 1
                    before = reader.line_num
            except csv.Error:
                return _Seen(False, rows, spanning, first, longest, before + self.skipped + 1)
        return _Seen(fits, rows, spanning, first, longest)


def delimited(
    file: Path, options: Options, comments: bool = True, names: Sequence[str] = ()
) -> Table:
    """Return the table in a text file, its values as they stand there: `007` stays `007`.

    A list of edges need not have a header, nor a table that begins with two or three numbers: its
    columns are then `source`, `target` and, if the third is a number, `weight`. Parameters as of
    `_TextFile`.
    """
    text = _TextFile(file, options, comments, names)
    return Table(str(file), text.names, text.record_batches, facts=text.facts)


def json_lines(file: Path, options: Options) -> Table:
    """Return the table of one JSON object per line; blank lines are skipped.

    Arrow's own reader infers one type per column and turns an id such as `2020-01-01` into a date.
    """
    encoding, *_ = encoding_of(file, options.encoding)
    facts = {"encoding": encoding.removesuffix("-sig")}
    with readable(file):
        return record_table(file, "nodes", _records(file, encoding), facts=facts)


def _records(file: Path, encoding: str) -> Iterator[Record]:
    with text_of(file, encoding, "\n") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                try:
                    record = parsed(line)
                except (ValueError, RecursionError) as error:
                    record = error
                if not isinstance(record, dict):
                    found = record if isinstance(record, Exception) else f"{record!r:.40}"
                    raise fault(f"{file} line {number}", "a JSON object", found, "correct the line")
                yield flat(record)


def text_of(file: Path, encoding: str, newline: str | None = "") -> io.TextIOWrapper:
    """Return a stream of the text in a file, which may be packed."""
    return io.TextIOWrapper(opened(file), encoding, newline=newline)


def encoding_of(file: Path, asked: str) -> tuple[str, int]:
    """Return the encoding of a text file, and a bound of its longest line.

    The encoding is the one asked for, that of the byte-order mark, or UTF-8. The bound is in
    characters, and at most a quarter of a block of Arrow if no line is long.
    """
    with readable(file), opened(file) as stream:
        head = stream.read(1024)
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    if not asked and not marked and head.count(0) > len(head) // 4:
        found = "zeros between the characters, as in UTF-16 without a byte-order mark"
        raise fault(file, "text", found, "give --encoding utf-16-le")
    try:
        encoding = codecs.lookup(asked or marked or "utf-8").name
        "a".encode(encoding)  # a codec such as base64 is none of text
    except (LookupError, UnicodeError) as error:
        what = "an encoding such as latin-1"
        raise fault("--encoding", what, repr(asked), "correct it") from error
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding  # with or without the mark
    run = longest = 0  # run: characters since the last end of a line
    with readable(file), text_of(file, encoding) as text:
        try:
            while block := text.read(_BLOCK // 8):
                run += len(block)
                longest, run = max(longest, run), len(block) if "\n" in block else run
        except UnicodeDecodeError as error:
            raise _undecodable(file, encoding.removesuffix("-sig"), error) from None
    return encoding, longest


def _undecodable(file: Path, encoding: str, error: UnicodeDecodeError) -> DataError:
    """Return the error for a file of another encoding, with the first line that shows it."""
    where, shown = str(file), error.object[max(error.start - _SHOWN, 0) : error.end + _SHOWN]
    with opened(file) as stream:
        for number, line in enumerate(stream if encoding == "utf-8" else (), start=1):
            try:
                line.decode()
            except UnicodeDecodeError as of_line:
                where, start = f"{file} line {number}", max(of_line.start - _SHOWN, 0)
                shown = line[start : of_line.end + _SHOWN].rstrip(b"\r\n")
                break
    found = f"other bytes in '{shown.decode('ascii', 'backslashreplace')}'"
    other = ", or give its encoding, for example --encoding latin-1" * (encoding == "utf-8")
    return fault(where, encoding.upper(), found, f"save it as UTF-8{other}")


def _uneven(file: Path, row: Any) -> DataError:
    advice = "correct it, or give --delimiter or --quoting"
    if row.text.startswith(COMMENTS):
        advice = "remove it, as comments are skipped at the top of lists of edges alone"
    what = f"{counted(row.expected_columns, 'column')}, as in the first row"
    found = f"{row.actual_columns:,} in {one_line(row.text)[:_SHOWN]!r}"
    return fault(f"{file}{f' row {row.number}' if row.number else ''}", what, found, advice)


def _sample(text: str, mark: str, is_whole: bool, style: dict[str, Any]) -> list[list[str]]:
    """Return the first rows of a table; without the last if it may be cut."""
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, **style)
    rows = list(itertools.islice(filter(None, reader), _SAMPLE_ROWS + 1))
    return rows if is_whole or not 1 < len(rows) <= _SAMPLE_ROWS else rows[:-1]


def _delimiter(samples: dict[str, list[list[str]]], file: Path) -> str:
    """Return the delimiter that splits all rows into equally many columns, at least two."""
    even = [mark for mark, rows in samples.items() if _is_even(rows)]
    # Why (decision 28): a wrong guess reads other values than were written, and nothing shows it.
    if len(even) > 1:
        found = f"that {' and '.join(_DELIMITERS[mark] for mark in even)} both fit"
        raise fault(file, "one delimiter", found, f"name it, for example --delimiter '{even[0]}'")
    even = even or [mark for mark, rows in samples.items() if _is_short(rows)]
    # Uneven rows: Arrow names the first of them.
    return even[0] if even else max(samples, key=lambda mark: len([*samples[mark], []][0]))


def _is_even(rows: list[list[str]]) -> bool:
    """Return whether all rows have equally many columns, at least two."""
    return len({len(row) for row in rows}) == 1 and len(rows[0]) > 1


def _is_short(rows: list[list[str]]) -> bool:
    """Return whether all rows have one column more than the first."""
    widths = [len(row) for row in rows]
    return len(widths) > 1 and {width - 1 for width in widths[1:]} == {widths[0]}


def _names(row: list[str], file: Path, is_list: bool) -> list[str]:
    """Return the names of the columns of a table without a header."""
    if len(row) == 2 or (len(row) == 3 and _is_number(row[2])):
        return ["source", "target", "weight"][: len(row)]
    if not is_list:
        return [f"column {number}" for number in range(1, len(row) + 1)]
    what = "two columns, the ends of an edge, or a header that names the columns"
    raise fault(file, what, f"{len(row)} columns beginning with {listed(row)}", "add a header")


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return bool(repr(float(text)))
    return False
