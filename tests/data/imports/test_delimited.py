"""Tables in text files: any encoding, delimiter and quoting is read back as written, or refused."""

import csv
import gzip

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dance_flwr.data.imports.importer import read_graph
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.text_tables import delimited, json_lines
from dance_flwr.errors import DataError

# Without "\r" at the end of a row, which csv does not quote and nobody can tell from a line end.
CELL = st.text(
    st.one_of(
        st.sampled_from(",;\t|\"\n '#-17aé"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"),
    ),
    max_size=6,
)
NAME = st.one_of(CELL.filter(bool), st.sampled_from(["id", "text", "label", "source", "NaN", "01"]))


@st.composite
def frames(draw):
    names = draw(st.lists(NAME, min_size=2, max_size=4, unique=True))
    rows = draw(st.lists(st.lists(CELL, min_size=len(names), max_size=len(names)), max_size=5))
    return pd.DataFrame(rows, columns=names, dtype=str)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    frame=frames(),
    mark=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    packed=st.booleans(),
)
def test_a_table_of_pandas_is_read_back_or_refused(
    tmp_path_factory, frame, mark, encoding, quoting, line_end, packed
):
    path = tmp_path_factory.mktemp("frame") / ("t.csv.gz" if packed else "t.csv")
    options = {"encoding": encoding, "quoting": quoting, "lineterminator": line_end}
    frame.to_csv(path, index=False, sep=mark, **options)
    try:
        table = delimited(path, Options())
        columns = table.read(table.names)
    except DataError as error:
        assert "\n" not in str(error)
        table = delimited(path, Options(delimiter=mark, quoting="standard"))
        columns = table.read(table.names)
    assert table.names == list(frame.columns)
    assert {n: c.to_pylist() for n, c in columns.items()} == frame.to_dict("list")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_byte_order_marks_decide(tmp_path, suffix, encoding):
    text = 'id,text\n1,"žluťoučký 猫 🐈"\n' if suffix == "csv" else '{"text": "žluťoučký 猫 🐈"}\n'
    data = ("\ufeff" if encoding == "utf-16-be" else "") + text
    (tmp_path / "t").write_bytes(data.encode(encoding))
    table = (delimited if suffix == "csv" else json_lines)(tmp_path / "t", Options())
    assert table.read(["text"])["text"].to_pylist() == ["žluťoučký 猫 🐈"]
    assert table.facts["encoding"] == encoding.removesuffix("-sig").removesuffix("-be")


def test_bytes_that_are_not_utf_8_are_shown_and_never_guessed(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n")
    nodes = 'id,text,label\na,"two\nlines",x\nb,café,y\n'
    (tmp_path / "nodes.csv").write_bytes(nodes.encode("latin-1"))
    message = (
        r"nodes.csv line 4: expected UTF-8, found other bytes in 'b,caf\\xe9,y'; save it as UTF-8, "
        "or give its encoding, for example --encoding latin-1"
    )
    with pytest.raises(DataError, match=message):
        read_graph(tmp_path)
    assert read_graph(tmp_path, encoding="latin-1").texts == ["two\nlines", "café"]
    with pytest.raises(DataError, match="--encoding: expected an encoding such as latin-1"):
        read_graph(tmp_path, encoding="klingon")
    for name, content in (("nodes", nodes), ("edges", "source,target\n")):
        (tmp_path / f"{name}.csv").write_bytes(content.encode("utf-16-le"))
    with pytest.raises(DataError, match="UTF-16 without a byte-order mark; give --encoding"):
        read_graph(tmp_path)
    assert read_graph(tmp_path, encoding="utf-16-le").texts == ["two\nlines", "café"]


def test_a_damaged_gzip_file_is_refused(tmp_path):
    whole = gzip.compress(b"id,text\n" + b"1,word\n" * 10_000)
    for content in (whole[: len(whole) // 2], b"id,text\n1,a\n", whole[:-8] + bytes(8)):
        (tmp_path / "t.csv.gz").write_bytes(content)
        with pytest.raises(DataError, match=r"t\.csv\.gz: expected a complete gzip file"):
            delimited(tmp_path / "t.csv.gz", Options()).read(["text"])
