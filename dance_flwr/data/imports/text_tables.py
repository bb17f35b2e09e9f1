"""Tables in text files of any encoding, compressed or not: CSV and its kin, and JSON lines."""

import codecs
import csv
import io
import itertools
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.csv as pa_csv

from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.graphs.tables import Table, readable
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.records import (
    Record,
    flat,
    is_packed,
    opened,
    parsed,
    record_table,
    suffix_of,
    unpacked,
)
from dance_flwr.errors import DataError, counted
from dance_flwr.escaping import one_line

# Lists of edges as SNAP, LINQS and NetworkX write them: two columns, or three with a weight.
EDGE_LISTS = (".txt", ".cites", ".edges", ".edgelist")
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}
COMMENTS = ("#", "%")
_SAMPLE, _SAMPLE_ROWS = 1 << 20, 100  # characters and rows from which the delimiter is told
_BLOCK = 1 << 19
_SHOWN = 40  # bytes of a line that cannot be decoded
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_QUOTINGS: dict[str, dict[str, Any]] = {  # of Python's reader
    "standard": {"strict": True},
    "backslash": {"strict": True, "doublequote": False, "escapechar": "\\"},
    "none": {"quoting": csv.QUOTE_NONE},
}
_BACKSLASH = {"double_quote": False, "escape_char": "\\"}  # for Arrow


def delimited(
    file: Path,
    options: Options,
    rows: str = "nodes",
    known: Collection[str] = (),
    comments: bool = True,
    names: Sequence[str] = (),
) -> Table:
    """Return the table in a text file, its values as they stand there: `007` stays `007`.

    A list of edges need not have a header, nor an edge table that begins with numbers alone: its
    columns are then `source`, `target` and, if there are three and the third is a number, `weight`.

    Parameters
    ----------
    known : names in lower case that make the first row a header
    comments : whether lines at the top that begin with a mark are skipped
    names : of the columns, if a file apart holds the header
    """
    encoding, quotes, longest = encoding_of(file, options.encoding)
    with text_of(file, encoding) as stream:
        head = stream.read(_SAMPLE)
    is_list, skipped, is_whole = suffix_of(file) in EDGE_LISTS, 0, len(head) < _SAMPLE
    # Where every line begins with a mark, ids begin with it.
    comments = comments and not all(line.startswith(COMMENTS) for line in head.splitlines())
    while is_list and comments and head.startswith(COMMENTS):
        skipped, head = skipped + 1, head.partition("\n")[2]
    marks = "\t" if suffix_of(file) == ".tsv" else "".join(_DELIMITERS)[: 5 if is_list else 4]
    plain = _QUOTINGS["none"] if options.quoting == "none" else {}
    samples = {m: _sample(head, m, is_whole, plain) for m in options.delimiter or marks}
    mark = _delimiter(samples, file)
    if not samples[mark]:
        raise DataError(f"{file}: expected a readable csv table, found: Empty CSV file; add rows")
    first = samples[mark][0]
    # R names no column for the names of rows, which come first.
    is_short = options.header and not names and _is_short([len(row) for row in samples[mark]])
    first = ["", *first] if is_short else first
    is_header = is_short or any(name.strip().lower() in known for name in first)
    bare = is_list or (rows == "edges" and len(first) in (2, 3) and all(map(_is_number, first)))
    has_header = not names and (is_header or (options.header and not bare))
    names = list(names or (first if has_header else _names(first, file, is_list)))
    read_as = partial(
        _read_as, partial(text_of, file, encoding), mark, len(first), skipped, is_short
    )
    quoting, seen = options.quoting or "standard", _Seen()
    if quotes and options.quoting:
        seen = read_as(quoting)
    elif quotes:
        counts = {"width": len(first), "header": int(has_header)}
        quoting, seen = _quoting(read_as, str(file), **counts, has_escapes=len(quotes) > 1)
    facts = {"encoding": encoding.removesuffix("-sig"), "delimiter": _DELIMITERS.get(mark, mark)}
    facts |= {} if has_header else {"header": "none"}
    facts |= {"header": "without a name for the first column"} if is_short else {}
    facts |= {"skipped": counted(skipped, "comment line")} if skipped else {}
    facts |= {"quoting": quoting} if quoting != "standard" else {}
    facts |= {"rows over several lines": f"{seen.spanning:,}"} if seen.spanning else {}
    style: dict[str, Any] = {"none": {"quote_char": False}, "backslash": _BACKSLASH}
    parse = pa_csv.ParseOptions(
        newlines_in_values=quoting != "none", delimiter=mark, **style.get(quoting, {})
    )
    uneven: list[Any] = []

    def refuse(row: Any) -> str:
        uneven.append(row)
        return "error"

    parse.invalid_row_handler = refuse
    # By our names, since a header would be told from what Arrow reads first of it.
    read = pa_csv.ReadOptions(use_threads=False, skip_rows=skipped, column_names=names)
    read.skip_rows_after_names = int(has_header)
    # Arrow refuses a row that is longer than a block; a character has up to four bytes.
    read.block_size = min(max(_BLOCK, 4 * longest, 4 * seen.longest), (1 << 31) - 1)

    def record_batches(columns: list[str]) -> Iterator[Any]:
        convert = pa_csv.ConvertOptions(strings_can_be_null=False, include_columns=columns)
        convert.column_types = dict.fromkeys(columns, pa.string())
        packing = "gzip" if is_packed(file) else None
        with pa.input_stream(str(file), compression=packing) as raw:
            if not encoding.startswith("utf-8"):
                raw = pa.transcoding_input_stream(raw, encoding, "utf-8")
            try:
                yield from pa_csv.open_csv(raw, read, parse, convert)
            except pa.ArrowInvalid:
                if uneven:
                    raise _uneven(file, uneven[0]) from None
                raise

    return Table(str(file), names, record_batches, rows, facts=facts)


def json_lines(file: Path, options: Options, rows: str = "nodes") -> Table:
    """Return the table of one JSON object per line; blank lines are skipped.

    Arrow's own reader infers one type per column and turns an id such as `2020-01-01` into a date.
    """
    encoding, *_ = encoding_of(file, options.encoding)
    facts = {"encoding": encoding.removesuffix("-sig")}
    with readable(file):
        return record_table(file, rows, lambda: _records(file, encoding), facts=facts)


def _records(file: Path, encoding: str) -> Iterator[Record]:
    with text_of(file, encoding, "\n") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            where = f"{file} line {number}: expected a JSON object"
            try:
                record = parsed(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}, found: {error}; correct the line") from error
            if not isinstance(record, dict):
                raise DataError(f"{where}, found {record!r:.40}; correct the line")
            yield flat(record)


def text_of(file: Path, encoding: str, newline: str = "") -> io.TextIOWrapper:
    """Return a stream of the text in a file, which may be packed."""
    return io.TextIOWrapper(opened(file), encoding, newline=newline)


def encoding_of(file: Path, asked: str) -> tuple[str, str, int]:
    """Return the encoding of a text file, its double quotes, and a bound of its longest line.

    The encoding is the one asked for, that of the byte-order mark, or UTF-8. The quotes are one
    character, two where a backslash stands before one, a backslash alone, or none. The bound is in
    characters, and 0 if no line is long.
    """
    with readable(file), unpacked(file), opened(file) as stream:
        head = stream.read(1024)
        marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
        if not asked and not marked and head.count(0) > len(head) // 4:
            raise DataError(
                f"{file}: expected text, found zeros between the characters, as in UTF-16 without "
                "a byte-order mark; give --encoding utf-16-le"
            )
        try:
            encoding = codecs.lookup(asked or marked or "utf-8").name
            "a".encode(encoding)  # a codec such as base64 is none of text
        except (LookupError, UnicodeError) as error:
            raise DataError(
                f"--encoding: expected an encoding such as latin-1, found {asked!r}; correct it"
            ) from error
        if asked:
            encoding = "utf-8-sig" if encoding == "utf-8" else encoding
        else:
            encoding = marked or encoding
        stream.seek(0)
        decoder, line, quotes, block = codecs.getincrementaldecoder(encoding)(), 1, "", b" "
        run = longest = 0  # characters since the last end of a line
        while block:
            block = stream.read(_SAMPLE)
            try:
                text = decoder.decode(block, final=not block)
                text.encode()
            except UnicodeDecodeError as error:
                raise _undecodable(file, encoding, line, error) from None
            except UnicodeEncodeError as error:
                raise DataError(
                    f"{file}: expected {encoding}, found half a character ({error.reason}); "
                    "correct the text"
                ) from None
            ends = text.count("\n")
            line, run = line + ends, run + len(text)
            longest, run = max(longest, run), len(text) if ends else run
            found = next((mark for mark in ('\\"', '"', "\\") if mark in text), "")
            quotes = max(quotes, found, key=len)
    return encoding, quotes, longest if longest > 2 * _SAMPLE else 0


def _uneven(file: Path, row: Any) -> DataError:
    place = f" row {row.number}" if row.number else ""
    advice = "correct it, or give --delimiter or --quoting"
    if row.text.startswith(COMMENTS):
        advice = "remove it, as comments are skipped at the top of lists of edges alone"
    return DataError(
        f"{file}{place}: expected {counted(row.expected_columns, 'column')}, as in the first row, "
        f"found {row.actual_columns:,} in {one_line(row.text)[:_SHOWN]!r}; {advice}"
    )


def _undecodable(file: Path, encoding: str, line: int, error: UnicodeDecodeError) -> DataError:
    line += error.object[: error.start].decode(encoding, "replace").count("\n")
    start = max(error.object.rfind(b"\n", 0, error.start) + 1, error.start - _SHOWN)
    shown = error.object[start : error.end + _SHOWN].split(b"\n")[0].rstrip(b"\r")
    encoding = encoding.removesuffix("-sig")
    remedy = "save it as UTF-8"
    if encoding == "utf-8":
        remedy += ", or give its encoding, for example --encoding latin-1"
    return DataError(
        f"{file} line {line}: expected {encoding.upper()}, found other bytes in "
        f"'{shown.decode('ascii', 'backslashreplace')}'; {remedy}"
    )


def _sample(text: str, mark: str, is_whole: bool, style: dict[str, Any]) -> list[list[str]]:
    """Return the first rows of a table; without the last if it may be cut."""
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, **style)
    rows = list(itertools.islice(filter(None, reader), _SAMPLE_ROWS + 1))
    return rows if is_whole or not 1 < len(rows) <= _SAMPLE_ROWS else rows[:-1]


def _delimiter(samples: dict[str, list[list[str]]], file: Path) -> str:
    """Return the delimiter that splits all rows into equally many columns, at least two."""
    widths = {mark: [len(row) for row in rows] for mark, rows in samples.items()}
    even = [mark for mark, width in widths.items() if len(set(width)) == 1 and width[0] > 1]
    # Why (decision 28): a wrong guess reads other values than were written, and nothing shows it.
    if len(even) > 1:
        marks = " and ".join(_DELIMITERS[mark] for mark in even)
        raise DataError(
            f"{file}: expected one delimiter, found that {marks} both fit; name it, for example "
            f"--delimiter '{even[0]}'"
        )
    even = even or [mark for mark, width in widths.items() if _is_short(width)]
    # Uneven rows: Arrow names the first of them.
    return even[0] if even else max(widths, key=lambda mark: widths[mark][:1] or [0])


def _is_short(widths: list[int]) -> bool:
    """Return whether all rows have one column more than the first."""
    return len(widths) > 1 and {width - 1 for width in widths[1:]} == {widths[0]}


def _names(row: list[str], file: Path, is_list: bool) -> list[str]:
    """Return the names of the columns of a table without a header."""
    if len(row) == 2 or (len(row) == 3 and _is_number(row[2])):
        return ["source", "target", "weight"][: len(row)]
    if not is_list:
        return [f"column {number}" for number in range(1, len(row) + 1)]
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


class _Seen(NamedTuple):
    """What a meaning of quotes makes of a file."""

    fits: bool = True  # whether all rows have the right number of columns
    rows: int = 0
    spanning: int = 0  # rows over several lines
    first: int = 0  # line where the first of these begins
    longest: int = 0  # characters of the longest row


def _quoting(
    read: Callable[[str], _Seen], where: str, *, width: int, header: int, has_escapes: bool
) -> tuple[str, _Seen]:
    """Return what quotes mean, told from the whole file, and what they make of it.

    Both meanings fitting with different rows is an error.
    """
    standard = read("standard")
    if standard.fits:
        if standard.spanning and (plain := read("none")).fits:
            raise DataError(
                f"{where}: expected quotes that are either part of the values or around them, "
                f"found that both fit: line {standard.first} begins a row over several lines, and "
                f"every line alone has {width} columns, too; give --quoting none for "
                f"{plain.rows - header:,} rows, or --quoting standard for "
                f"{standard.rows - header:,}"
            )
        return "standard", standard
    for how in ("backslash", "none") if has_escapes else ("none", "backslash"):
        if (seen := read(how)).fits:
            return how, seen
    return "standard", standard


def _read_as(
    stream: Callable[[], TextIO], mark: str, width: int, skipped: int, is_short: bool, how: str
) -> _Seen:
    """Return what a meaning of the quotes makes of a file."""
    fits, rows, spanning, first, longest, before = True, 0, 0, 0, 0, 0
    with stream() as lines:
        for _ in range(skipped):
            lines.readline()
        reader = csv.reader(lines, delimiter=mark, **_QUOTINGS[how])
        try:
            for row in reader:
                if row:
                    rows += 1
                    fits = fits and len(row) == width - (is_short and rows == 1)
                    longest = max(longest, sum(map(len, row)))
                    if reader.line_num > before + 1:
                        spanning, first = spanning + 1, first or before + skipped + 1
                before = reader.line_num
        except csv.Error:
            fits = False
    return _Seen(fits, rows, spanning, first, longest)
