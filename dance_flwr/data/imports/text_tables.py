"""Tables in text files of any encoding, compressed or not: CSV and its kin, and JSON lines."""

import codecs
import csv
import gzip
import io
import itertools
import json
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv

from dance_flwr.data.graphs.limits import check, listed
from dance_flwr.data.graphs.tables import Table, readable
from dance_flwr.data.imports.memory_tables import as_string, ids_in
from dance_flwr.data.imports.options import Options
from dance_flwr.errors import DataError, counted

# Lists of edges as SNAP, LINQS and NetworkX write them: two columns, or three with a weight.
EDGE_LISTS = (".txt", ".cites", ".edges", ".edgelist")
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}
COMMENTS = ("#", "%")
_SAMPLE, _SAMPLE_ROWS = 1 << 20, 100  # characters and rows from which the delimiter is told
_BLOCK, _LARGEST_BLOCK = 1 << 19, (1 << 31) - 1
_BATCH = 1024  # JSON lines of a batch
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
_ARROW_QUOTINGS: dict[str, dict[str, Any]] = {
    "standard": {},
    "backslash": {"double_quote": False, "escape_char": "\\"},
    "none": {"quote_char": False},
}


def suffix_of(file: Path) -> str:
    """Return the suffix that names the format, in lower case, without `.gz`."""
    return (file.with_suffix("") if (file.suffix.lower() == ".gz") else file).suffix.lower()


def delimited(
    file: Path,
    options: Options,
    rows: str = "nodes",
    known: Collection[str] = (),
    comments: bool = True,
) -> Table:
    """Return the table in a text file, its values as they stand there: `007` stays `007`.

    A list of edges need not have a header, nor an edge table that begins with numbers alone: its
    columns are then `source`, `target` and, if there are three and the third is a number, `weight`.

    Parameters
    ----------
    known : names in lower case that make the first row a header
    comments : whether lines at the top that begin with a mark are skipped
    """
    encoding, quotes = _encoding(file, options.encoding)
    with _text(file, encoding) as stream:
        head = stream.read(_SAMPLE)
    is_list, skipped = suffix_of(file) in EDGE_LISTS, 0
    # Where every line begins with a mark, ids begin with it.
    comments = comments and not all(line.startswith(COMMENTS) for line in head.splitlines())
    is_whole = len(head) < _SAMPLE
    while is_list and comments and head.startswith(COMMENTS):
        skipped, head = skipped + 1, head.partition("\n")[2]
    marks = "\t" if suffix_of(file) == ".tsv" else "".join(_DELIMITERS)[: 5 if is_list else 4]
    style = _QUOTINGS["none"] if options.quoting == "none" else {}
    samples = {m: _sample(head, m, is_whole, style) for m in options.delimiter or marks}
    mark = _delimiter(samples, file)
    if not samples[mark]:
        raise DataError(f"{file}: expected a readable csv table, found: Empty CSV file; add rows")
    first = samples[mark][0]
    has_header = options.header and not (
        (is_list or (rows == "edges" and len(first) in (2, 3) and all(map(_is_number, first))))
        and not any(name.strip().lower() in known for name in first)
    )
    names = first if has_header else _names(first, file, is_list)
    facts = {"encoding": encoding.removesuffix("-sig"), "delimiter": _DELIMITERS.get(mark, mark)}
    if not has_header:
        facts["header"] = "none"
    if skipped:
        facts["skipped"] = counted(skipped, "comment line")
    quoting, spanning = options.quoting or "standard", 0
    if quotes:
        lines = _Lines(file, encoding, mark, len(first), skipped)
        quoting, spanning = _quoting(lines, options.quoting, has_escapes=len(quotes) > 1)
    if quoting != "standard":
        facts["quoting"] = quoting
    if spanning:
        facts["rows over several lines"] = f"{spanning:,}"
    parse = pa_csv.ParseOptions(
        newlines_in_values=quoting != "none", delimiter=mark, **_ARROW_QUOTINGS[quoting]
    )

    def record_batches(columns: list[str]) -> Iterator[Any]:
        convert = pa_csv.ConvertOptions(strings_can_be_null=False, include_columns=columns)
        convert.column_types = dict.fromkeys(columns, pa.string())
        # By our names, since a header would be told from what Arrow reads first of it.
        read = pa_csv.ReadOptions(use_threads=False, skip_rows=skipped, column_names=names)
        read.skip_rows_after_names = int(has_header)
        return _arrow_batches(file, encoding, read, parse, convert)

    return Table(str(file), names, record_batches, rows, facts=facts)


def json_lines(file: Path, options: Options, rows: str = "nodes", lists: str = "") -> Table:
    """Return the table of one JSON object per line; blank lines are skipped.

    Arrow's own reader infers one type per column and turns an id such as `2020-01-01` into a date.

    Parameters
    ----------
    lists : column whose values are read as lists of strings
    """
    encoding, _ = _encoding(file, options.encoding)
    names: dict[str, None] = {}
    with readable(file):
        for _, record in _records(file, encoding):
            names.update(dict.fromkeys(record))
            check(file, columns=len(names))

    def value(record: dict[str, Any], name: str, where: str) -> Any:
        entry = record.get(name)
        if name != lists:
            return as_string(entry, name, where)
        if not isinstance(entry, list):
            return ids_in(as_string(entry, name, where))
        return [text for one in entry if (text := as_string(one, name, where))]

    def record_batches(columns: list[str]) -> Iterator[Any]:
        records = _records(file, encoding)
        while batch := list(itertools.islice(records, _BATCH)):
            arrays = {}
            for name in columns:
                kind = pa.list_(pa.large_string()) if name == lists else pa.large_string()
                values = [value(record, name, f"{file} line {number}") for number, record in batch]
                arrays[name] = pa.array(values, kind)
            yield pa.record_batch(arrays)

    facts = {"encoding": encoding.removesuffix("-sig")}
    return Table(str(file), list(names), record_batches, rows, facts=facts)


def _records(file: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each line and its object."""
    with _text(file, encoding, "\n") as stream:
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
            yield number, record


def parsed(text: str | bytes) -> Any:
    """Return the value of JSON; an object that has a key twice is an error."""
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(entries := dict(pairs)) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice!r} is there twice in an object")
    return entries


def read_json(file: Path, what: str, advice: str) -> Any:
    """Return the content of a JSON file, which may be compressed.

    Parameters
    ----------
    what : what the file should be, for the message
    advice : what the user can do about a bad file, for the message

    Raises
    ------
    DataError : the file cannot be read, or is not JSON
    """
    try:
        with _raw(file) as stream:
            # Some editors begin a file with a byte-order mark, which JSON refuses.
            return parsed(stream.read().removeprefix(codecs.BOM_UTF8))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{file}: expected {what}, found: {reason}; {advice}") from error


def read_object(file: Path, what: str, advice: str) -> dict[str, Any]:
    """Return the JSON object in a file; parameters and errors as of `read_json`."""
    content = read_json(file, what, advice)
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected {what}, found {type(content).__name__}; {advice}")
    return content


def _raw(file: Path) -> IO[bytes]:
    return gzip.open(file, "rb") if (file.suffix.lower() == ".gz") else file.open("rb")  # type: ignore[return-value]


@contextmanager
def _unpacked(file: Path) -> Iterator[None]:
    """Turn the errors of a damaged gzip file into one line."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{file}: expected a complete gzip file, found: {error}; copy it again"
        ) from error


def _text(file: Path, encoding: str, newline: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(_raw(file), encoding, newline=newline)


def _encoding(file: Path, asked: str) -> tuple[str, str]:
    """Return the encoding of a text file, and its double quotes, after decoding it all.

    The quotes are one character, two where a backslash stands before one, or none.

    The encoding is the one asked for, that of the byte-order mark, or UTF-8.
    """
    with readable(file), _unpacked(file), _raw(file) as stream:
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
            line += text.count("\n")
            found = next((mark for mark in ('\\"', '"') if mark in text), "")
            quotes = max(quotes, found, key=len)
    return encoding, quotes


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
    # Uneven rows: Arrow names the first of them.
    return even[0] if even else max(widths, key=lambda mark: widths[mark][:1] or [0])


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


class _Lines(NamedTuple):
    """A table in a text file: its delimiter, number of columns, and lines above it."""

    file: Path
    encoding: str
    mark: str
    width: int
    skipped: int


def _quoting(lines: _Lines, asked: str, *, has_escapes: bool) -> tuple[str, int]:
    """Return what quotes mean, told from the whole file, and the number of rows over several lines.

    Raises
    ------
    DataError : both meanings fit, with different rows
    """
    if asked:
        return asked, _read_as(lines, asked)[2]
    fits, rows, spanning, first = _read_as(lines, "standard")
    if fits and not spanning:
        return "standard", 0
    fits_plain, plain_rows, *_ = _read_as(lines, "none")
    if fits and fits_plain:
        raise DataError(
            f"{lines.file}: expected quotes that are either part of the values or around them, "
            f"found that both fit: line {first} begins a row over several lines, and every line "
            f"alone has {lines.width} columns, too; give --quoting none for {plain_rows - 1:,} "
            f"rows, or --quoting standard for {rows - 1:,}"
        )
    if not fits:
        fits_escaped, _, escaped, _ = _read_as(lines, "backslash")
        if fits_escaped and has_escapes:
            return "backslash", escaped
        if fits_plain:
            return "none", 0
    return "standard", spanning


def _read_as(lines: _Lines, quoting: str) -> tuple[bool, int, int, int]:
    """Return what a meaning of the quotes makes of a file.

    Returns
    -------
    Whether all rows have the right number of columns, the number of rows, that of rows over several
    lines, and the line where the first of these begins.
    """
    fits, rows, spanning, first, before = True, 0, 0, 0, 0
    with _text(lines.file, lines.encoding) as stream:
        for _ in range(lines.skipped):
            stream.readline()
        reader = csv.reader(stream, delimiter=lines.mark, **_QUOTINGS[quoting])
        try:
            for row in reader:
                if row:
                    rows += 1
                    fits = fits and len(row) == lines.width
                    if reader.line_num > before + 1:
                        spanning, first = spanning + 1, first or before + lines.skipped + 1
                before = reader.line_num
        except csv.Error:
            fits = False
    return fits, rows, spanning, first


def _arrow_batches(file: Path, encoding: str, read: Any, parse: Any, convert: Any) -> Iterator[Any]:
    """Yield the batches of a file; a row longer than a block is read with larger blocks."""
    read.block_size, done = _BLOCK, 0
    while True:
        seen = 0
        try:
            with pa.input_stream(
                str(file), compression="gzip" if (file.suffix.lower() == ".gz") else None
            ) as raw:
                if not encoding.startswith("utf-8"):
                    raw = pa.transcoding_input_stream(raw, encoding, "utf-8")
                for batch in pa_csv.open_csv(raw, read, parse, convert):
                    # After a restart with larger blocks the rows that were yielded come again.
                    fresh = batch.slice(max(done - seen, 0))
                    seen += len(batch)
                    done = max(done, seen)
                    if len(fresh):
                        yield fresh
            return
        except pa.ArrowInvalid as error:
            # Arrow says only in its message that a row straddles the end of a block.
            if "straddl" not in str(error) or read.block_size == _LARGEST_BLOCK:
                raise
            # Eightfold: few restarts, and a block is never much larger than its longest row.
            read.block_size = min(read.block_size * 8, _LARGEST_BLOCK)
