"""Files of strangers: a small one never takes much memory, a damaged one is refused in one line."""

import gzip
import json
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.measuring import watching
from support.project import PROJECT
from support.quick import examples

from dance_flwr.data.graphs.folder import CLASSES_KEY
from dance_flwr.data.graphs.limits import VARIABLE, check, limits
from dance_flwr.data.imports import importer
from dance_flwr.data.imports.importer import import_graph
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.reading import recognise
from dance_flwr.errors import DataError, UserError

LONG = "x" * 200_000  # a text that the limits of the tests allow
MANY = 3_000  # 600 MB of them
ENTITIES = '<!DOCTYPE g [<!ENTITY a "b"><!ENTITY c SYSTEM "file:///etc/passwd">]>'
GRAPHML = (
    '<?xml version="1.0" encoding="%s"?>%s'
    '<graphml><key id="t" for="node" attr.name="text"/><graph>%s</graph></graphml>'
)
DATA = '<data key="t">%s</data>'
NODE = f'<node id="%s">{DATA}</node>'
LAUGHS = f'<!DOCTYPE g [<!ENTITY a "{"x" * 50_000}"><!ENTITY b "{"&a;" * 90}">]>'
NODES = "".join(f'<node id="{i}"/>' for i in range(MANY))
FAR_DOWN = f"<!--{' ' * 80_000}-->"
LISTS = "[" + "[]," * 4_000_000 + "[]]"
HEADER = b"id,text,label\n"


def edges(folder, content="source,target\n"):
    (folder / "edges.csv").write_text(content)
    return folder


def graphml(folder, body, declared="", encoding="utf-8"):
    (folder / "g.graphml").write_text(GRAPHML % (encoding, declared, body), encoding)
    return folder / "g.graphml"


def saved(folder, columns, **options):
    """A folder as `save_to_disk` of the datasets library writes it, and edges."""
    how = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(str(folder / "data.arrow"), columns.schema, options=how) as out:
        out.write_table(columns)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    return edges(folder)


def long_texts():
    """Many long texts, in memory of numpy, which asks for pages of 2 MB: others take seconds."""
    ends = np.arange(MANY + 1, dtype=np.int32) * np.int32(len(LONG))
    letters = np.full(MANY * len(LONG), ord("x"), np.uint8)
    return pa.StringArray.from_buffers(MANY, pa.py_buffer(ends), pa.py_buffer(letters))


def one_text():
    """The same, as a dictionary of one entry."""
    return pa.DictionaryArray.from_arrays(np.zeros(MANY, np.int32), [LONG])


def table(texts, labels=None):
    labels = ["x"] * len(texts) if labels is None else labels
    return pa.table({"id": [str(i) for i in range(len(texts))], "text": texts, "label": labels})


def parquet(folder, texts=None, *, labels=None, **options):
    """A folder whose node table has these texts, by default many long ones."""
    texts = long_texts() if texts is None else pa.array(texts)
    pq.write_table(table(texts, labels), folder / "nodes.parquet", compression="zstd", **options)
    return edges(folder)


def parquet_that_lies(folder):
    """The metadata say that the texts take a few bytes."""
    parquet(folder, use_dictionary=False)
    file = folder / "nodes.parquet"
    meta, content = pq.read_metadata(file).row_group(0), file.read_bytes()
    for size in (meta.column(1).total_uncompressed_size, meta.total_byte_size):
        low = [2 * size >> shift & 127 for shift in range(0, (2 * size).bit_length(), 7)]
        number = bytes([*(part | 128 for part in low[:-1]), low[-1]])  # as Thrift writes it
        assert number in content
        content = content.replace(number, bytes([0x90, *[0x80] * (len(number) - 2), 0]))
    file.write_bytes(content)
    assert pq.read_metadata(file).row_group(0).column(1).total_uncompressed_size == 8
    return folder


def parquet_lists(folder):
    ends = np.arange(0, 40_000_001, 40_000, np.int32)
    return parquet(folder, pa.ListArray.from_arrays(ends, np.zeros(4 * 10**7)))


def parquet_edges(folder):
    zeros = pa.array(np.zeros(20_000_000, np.int8))
    parquet(folder, ["t"])
    (folder / "edges.csv").unlink()
    pq.write_table(pa.table({"source": zeros, "target": zeros}), folder / "edges.parquet")
    return folder


def nothing(kind):
    return pa.table({name: pa.nulls(50_000_000, kind) for name in ("id", "text", "label")})


def parquet_nothing(folder):
    pq.write_table(nothing(pa.string()), folder / "nodes.parquet")
    return edges(folder)


def file(name, content):
    """A function that makes a folder whose node table is this file; `content` makes what it has."""

    def make(folder):
        data = content()
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return edges(folder)

    return make


def csv_columns():
    commas = "," * 200_000
    return f"id,text,label{commas}\na,t,x{commas}\n"


def gz_texts():
    rows = b"".join(b"%d,%s,x\n" % (i, LONG.encode()) for i in range(MANY // 10))
    return gzip.compress(HEADER + rows, 1)


def jsonl_keys():
    lines = (json.dumps({f"key {i} {j}": 0 for j in range(1000)}) for i in range(1000))
    return "\n".join(lines)


def gz_edges(folder):
    parquet(folder, ["t"])
    (folder / "edges.csv").unlink()
    (folder / "edges.txt.gz").write_bytes(gzip.compress(b"0 0\n" * 20_000_000))
    return folder


def feather_compressed(folder):
    pyarrow.feather.write_feather(table(long_texts()), folder / "nodes.feather", compression="zstd")
    return edges(folder)


def feather_dictionary(folder):
    columns = table(one_text())
    with pa.ipc.new_file(folder / "nodes.feather", columns.schema) as out:
        out.write_table(columns)
    return edges(folder)


def network(content):
    """Make a file of its whole content; its format begins the name of `content`."""

    def make(folder):
        path = folder / f"g.{content.__name__.partition('_')[0]}"
        path.write_text(content())
        return path

    return make


def graphml_default():
    """A long default, which every node has."""
    key = f'<key id="t" for="node" attr.name="text"><default>{LONG}</default></key>'
    return f"<graphml>{key}<graph>{NODES}</graph></graphml>"


def graphml_declarations():
    keys = "".join(f'<key id="{i}" for="all" attr.name="a {i}"/>' for i in range(200_000))
    return f"<graphml>{keys}<graph>{NODES}</graph></graphml>"


def graphml_names():
    return f'<graphml><graph><node id="{"x" * 40_000_000}"/></graph></graphml>'


def graphml_tag():
    return "<graphml><graph><node " + " ".join(f'a{i}="x"' for i in range(4_000_000))


def graphml_repetitions():
    return GRAPHML % ("utf-8", "", f'<node id="a">{DATA % "x" * 1_000_000}</node>')


def graphml_edges():
    return GRAPHML % ("utf-8", "", '<node id="a"/>' + '<edge source="a" target="a"/>' * 400_000)


def graphml_labels():
    data = f'<data key="d"><NodeLabel>{LONG}</NodeLabel></data>'
    nodes = "".join(f'<node id="{i}">{data}</node>' for i in range(MANY // 20))
    key = '<key id="d" for="node" yfiles.type="nodegraphics"/>'
    return f"<graphml>{key}<graph>{nodes}</graph></graphml>"


def gexf_default():
    attribute = f'<attribute id="0" title="text" type="string"><default>{LONG}</default>'
    attributes = f'<attributes class="node">{attribute}</attribute></attributes>'
    return f"<gexf><graph>{attributes}<nodes>{NODES}</nodes></graph></gexf>"


def gexf_depth():
    return "<gexf><graph><nodes>" + '<node id="a">' * 2_000_000


def gexf_attributes():
    attributes = "".join(f'<attribute id="{i}" type="string"/>' for i in range(200_000))
    return f'<gexf><graph><attributes class="edge">{attributes}</attributes></graph></gexf>'


def gexf_entities():
    return f'{ENTITIES}<gexf><graph><nodes><node id="&c;"/></nodes></graph></gexf>'


def gexf_laughs():
    return f'{LAUGHS}<gexf><graph><nodes><node id="&b;"/></nodes></graph></gexf>'


def json_lists():
    return f'{{"nodes": [{{"id": 1, "text": {LISTS}}}], "links": []}}'


def json_elements():
    return '{"elements": [' + '{"data": {}},' * 2_000_000 + '{"data": {}}]}'


def json_names():
    nodes = [{f"key {i} {j}": 0 for j in range(100)} for i in range(200)]
    return json.dumps({"nodes": nodes, "links": []})


def json_repeated_keys():
    node = "{" + '"a": "x",' * 2_000_000 + '"id": 1}'
    return f'{{"nodes": [{node}], "links": []}}'


BYTES = b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x20\x85R."  # half a GB of zeros


def torch_zip(folder, pickled):
    """A file as `torch.save` writes it, with this pickle, compressed."""
    with zipfile.ZipFile(folder / "g.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("g/data.pkl", pickled)
        archive.writestr("g/byteorder", "little")
        archive.writestr("g/version", "3\n")
    return folder / "g.pt"


def pt_one_text(folder):
    tensors = {"y": torch.zeros(MANY, dtype=torch.long), "edge_index": torch.zeros(2, 0)}
    torch.save({**tensors, "raw_texts": [LONG] * MANY}, folder / "g.pt")
    return folder / "g.pt"


def pt_bytes_in_the_old_format(folder):
    magic = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    info = pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {}}, 2)
    (folder / "g.pt").write_bytes(b"\x80\x02" + magic + pickle.dumps(1001, 2) + info + BYTES)
    return folder / "g.pt"


def pt_copies(folder):
    """One list, from which a call makes a set many times over."""
    items = b"".join(b"J" + i.to_bytes(4, "little") for i in range(50_000))
    calls = b"cbuiltins\nset\nh\x00\x85R" * 200
    return torch_zip(folder, b"\x80\x02](]q\x00(" + items + b"e" + calls + b"e.")


def saved_views(folder):
    text = pa.array([LONG], pa.string_view())
    _, views, data = text.buffers()
    views = pa.py_buffer(views.to_pybytes()[:16] * MANY)
    texts = pa.Array.from_buffers(pa.string_view(), MANY, [None, views, data])
    return saved(folder, table(texts))


def saved_neighbours(folder):
    many = pa.ListArray.from_arrays([0, MANY], pa.array(["0"] * MANY))
    columns = {"id": [LONG], "text": ["t"], "label": ["x"], "neighbors": many}
    saved(folder, pa.table(columns))
    (folder / "edges.csv").unlink()
    return folder


def ogbn_gzip(folder, edges=20_000_000):
    """OGB's archive, with an edge table of zeros."""
    with zipfile.ZipFile(folder / "arxiv.zip", "w") as archive:
        for name, content in (
            ("raw/edge.csv.gz", b"0,0\n" * edges),
            ("raw/node-label.csv.gz", b"0\n0\n0\n"),
            ("mapping/nodeidx2paperid.csv.gz", b"node,paper\n0,1\n1,2\n2,3\n"),
            ("split/time/train.csv.gz", b"0\n"),
            ("split/time/valid.csv.gz", b"1\n"),
            ("split/time/test.csv.gz", b"2\n"),
        ):
            archive.writestr("arxiv/" + name, gzip.compress(content, 9))
    (folder / "titleabs.tsv.gz").write_bytes(gzip.compress(b"1\ttitle\tabstract\n"))
    return folder


def ogbn_titles(folder):
    """OGB's archive, with a table of titles that goes on."""
    ogbn_gzip(folder, edges=1)
    title = b"1\t" + b"word " * 200_000 + b"\tx\n"
    (folder / "titleabs.tsv.gz").write_bytes(gzip.compress(title * 300, 1))
    return folder


BOMBS = {
    "parquet_dictionary": parquet,
    "parquet_categories": lambda folder: parquet(folder, one_text()),
    "parquet_label": lambda folder: parquet(folder, ["t"] * MANY, labels=long_texts()),
    "parquet_plain": lambda folder: parquet(folder, use_dictionary=False),
    "parquet_prefixes": lambda folder: parquet(
        folder,
        use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY", "id": "PLAIN", "label": "PLAIN"},
    ),
    "csv_columns": file("nodes.csv", csv_columns),
    "csv_open_quote": file("nodes.csv", lambda: 'id,text,label\na,"' + "word,\n" * 8_000_000),
    "gz_texts": file("nodes.csv.gz", gz_texts),
    "jsonl_lists": file("nodes.jsonl", lambda: f'{{"id": 1, "text": {LISTS}, "label": "x"}}\n'),
    "jsonl_keys": file("nodes.jsonl", jsonl_keys),
    "graphml_nodes": lambda folder: graphml(
        folder, "".join(f'<node id="{i:x}"/>' for i in range(400_000))
    ),
    "graphml_depth": lambda folder: graphml(
        folder, "<node id='a'>" + "<d>" * 3_000_000 + "</d>" * 3_000_000 + "</node>"
    ),
    "graphml_entities_far_down": lambda folder: graphml(
        folder, NODE % ("a", "&a;"), FAR_DOWN + ENTITIES
    ),
    "graphml_laughs": lambda folder: graphml(folder, NODE % ("a", "&b;"), FAR_DOWN + LAUGHS),
    "graphml_entities_in_utf16": lambda folder: graphml(
        folder, NODE % ("a", "&c;"), ENTITIES, "utf-16"
    ),
    "pt_lists": lambda folder: torch_zip(folder, b"\x80\x02(" + b"]" * 8_000_000 + b"l."),
    "pt_bytes": lambda folder: torch_zip(folder, BYTES),
    "saved_compressed": lambda folder: saved(folder, table(long_texts()), compression="zstd"),
    "saved_dictionary": lambda folder: saved(folder, table(one_text())),
    "saved_nothing": lambda folder: saved(folder, nothing(None)),
}
BOMBS |= {
    made.__name__: made
    for made in (
        *(parquet_that_lies, parquet_lists, parquet_edges, parquet_nothing, gz_edges),
        *(feather_compressed, feather_dictionary, pt_one_text),
        *(pt_bytes_in_the_old_format, pt_copies, saved_views, saved_neighbours),
        *(ogbn_gzip, ogbn_titles),
    )
}

BOMBS |= {
    made.__name__: network(made)
    for made in (
        *(graphml_default, graphml_declarations, graphml_names, graphml_tag, graphml_repetitions),
        *(graphml_edges, graphml_labels, gexf_default, gexf_depth, gexf_attributes),
        *(gexf_entities, gexf_laughs, json_lists, json_elements, json_names, json_repeated_keys),
    )
}
# Where a reader would not look for the texts of a file without being told.
TEXTS = {"graphml_labels": "label"}

BOUNDS = "nodes=1e6,edges=1e6,characters=1e6,columns=5000,memory=64e6"
# Where memory is measured, refusals come so early that no import takes more than half of what is
# allowed: allocators and readers differ by a fifth from run to run.
EARLY_BOUNDS = "nodes=1e6,edges=2e5,characters=1e6,columns=5000,memory=16e6,seconds=30"
REFUSALS = f"{VARIABLE}=|entity declarations|1000 deep|out of memory|ends the process"
MAX_BYTES = 128 << 20  # above the memory of the loaded libraries
linux = pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="needs the peak memory that Linux reports"
)


def small_files(folder):
    """A valid graph of three nodes in every format: name -> path."""
    columns = {
        "id": ["a", "b", "c"],
        "text": ["first", "sécond", "third"],
        "label": ["x", "y", "x"],
    }
    columns["split"] = ["train", "val", "test"]
    graph = nx.DiGraph()
    for node, *values in zip(*columns.values(), strict=True):
        graph.add_node(node, **dict(zip(("text", "label", "split"), values, strict=True)))
    graph.add_edge("a", "b", weight=0.5, note="n")
    files = {name: folder / name for name in ("parquet", "csv", "gz", "feather", "jsonl", "saved")}
    for path in files.values():
        path.mkdir(parents=True)
        edges(path, "source,target\na,b\n")
    pq.write_table(pa.table(columns), files["parquet"] / "nodes.parquet")
    pa.csv.write_csv(pa.table(columns), files["csv"] / "nodes.csv")
    (files["gz"] / "nodes.csv.gz").write_bytes(
        gzip.compress((files["csv"] / "nodes.csv").read_bytes(), mtime=0)
    )
    pa.feather.write_feather(pa.table(columns), files["feather"] / "nodes.feather")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (files["jsonl"] / "nodes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    saved(files["saved"], pa.table(columns).append_column("neighbors", [[["b"], [], ["a"]]]))
    files["pt"], files["old"] = folder / "g.pt", folder / "old.pt"
    content = {"raw_texts": columns["text"], "y": torch.tensor([0, 1, 0])}
    content["edge_index"] = torch.tensor([[0, 1], [1, 0]])
    torch.save(content, files["pt"])
    torch.save(content, files["old"], _use_new_zipfile_serialization=False)
    for kind in ("graphml", "gexf", "json"):
        files[kind] = folder / f"g.{kind}"
    nx.write_graphml(graph, files["graphml"])
    nx.write_gexf(graph, files["gexf"])
    files["json"].write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    files["cytoscape"], files["graphrag"] = folder / "c.json", folder / "graphrag"
    files["cytoscape"].write_text(json.dumps(nx.cytoscape_data(graph)))
    files["graphrag"].mkdir()
    entities = {"title": columns["id"], "description": columns["text"]}
    entities["text_unit_ids"] = [["t"], [], []]
    pd.DataFrame(entities).to_parquet(files["graphrag"] / "entities.parquet")
    ends = pd.DataFrame({"source": ["a"], "target": ["b"], "weight": [1.0]})
    ends.to_parquet(files["graphrag"] / "relationships.parquet")
    return files


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_files(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def usual(small, tmp_path_factory):
    """The memory that reading a small graph takes, libraries included."""
    with watching() as seen:
        for kind in ("csv", "pt"):
            for number in range(3):
                import_graph([small[kind]], f"{kind}{number}", tmp_path_factory.mktemp("usual"))
    return seen["peak"]


@linux
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_takes_little_memory_and_is_refused(tmp_path, usual, monkeypatch, bomb):
    monkeypatch.setenv(VARIABLE, EARLY_BOUNDS)
    (tmp_path / "bomb").mkdir()
    path = BOMBS[bomb](tmp_path / "bomb")
    name = "ogbn-arxiv" if bomb.startswith("ogbn") else "g"
    with watching() as seen, pytest.raises(UserError) as caught:
        import_graph([path], name, tmp_path / "root", Options(text=TEXTS.get(bomb, "")))
    line = str(caught.value)
    print(f"{bomb}: {seen['peak'] - usual >> 20} MiB, {line}")
    assert seen["peak"] - usual < MAX_BYTES
    assert "expected" in line and len(line) < 1_000 and "\n" not in line
    assert "seconds" not in line and re.search(REFUSALS, line)  # it is refused for what it is
    if "entities" in bomb or "laughs" in bomb:
        assert "entity declarations" in line
    assert not (tmp_path / "root" / "graphs" / "g").exists()


@linux
@pytest.mark.parametrize("bomb", ["parquet_plain", "feather_dictionary"])
def test_without_bounds_of_the_user_a_small_file_gets_those_of_its_size(
    tmp_path, usual, monkeypatch, bomb
):
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "bomb").mkdir()
    path = BOMBS[bomb](tmp_path / "bomb")
    size = sum(file.stat().st_size for file in path.rglob("*"))
    with watching() as seen, pytest.raises(UserError, match="in memory"):
        import_graph([path], "g", tmp_path / "root")
    assert seen["peak"] - usual < (1 << 30) + 100 * size


def test_honest_files_that_repeat_themselves_are_within_the_bounds_of_their_size(
    tmp_path, monkeypatch
):
    """40 MB of texts in a Parquet file of less than a MB."""
    monkeypatch.delenv(VARIABLE, raising=False)
    texts = ["the same long abstract about graphs and their texts " * 20] * 40_000
    ids = [str(number) for number in range(len(texts))]
    columns = pa.table({"id": ids, "text": texts, "label": ["x"] * len(texts)})
    pq.write_table(columns, edges(tmp_path) / "nodes.parquet", compression="zstd")
    import_graph([tmp_path], "whole", tmp_path / "root")
    assert load_graph("whole", tmp_path / "root").num_nodes == len(texts)


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "json", "graphml", "pt", "saved"])
def test_a_text_longer_than_the_limit_is_refused(tmp_path, monkeypatch, kind):
    text, folder = "é" * 1_100_000, tmp_path / "long"
    folder.mkdir()
    column = pa.table({"id": ["a"], "text": [text], "label": ["x"]})
    record = {"id": "a", "text": text, "label": "x"}
    path = folder
    if kind == "parquet":
        pq.write_table(column, edges(folder) / "nodes.parquet")
    elif kind == "csv":
        pa.csv.write_csv(column, edges(folder) / "nodes.csv")
    elif kind == "jsonl":
        (edges(folder) / "nodes.jsonl").write_text(json.dumps(record))
    elif kind == "json":
        path = folder / "g.json"
        path.write_text(json.dumps({"nodes": [record], "links": []}, ensure_ascii=False))
    elif kind == "graphml":
        path = graphml(folder, NODE % ("a", text))
    elif kind == "pt":
        path = folder / "g.pt"
        content = {"raw_texts": [text], "y": torch.tensor([0])}
        torch.save({**content, "edge_index": torch.zeros(2, 0, dtype=torch.long)}, path)
    else:
        saved(folder, column)
    bounds = BOUNDS.replace("64e6", "500e6")
    monkeypatch.setenv(VARIABLE, bounds)
    with pytest.raises(UserError, match=r"expected at most .*characters=NUMBER"):
        import_graph([path], "g", tmp_path / "root")
    monkeypatch.setenv(VARIABLE, bounds.replace("characters=1e6", "characters=1.1e6"))
    assert import_graph([path], "g", tmp_path / "root")


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ("nodes=2", ["at most 2 nodes, found more", "nodes=NUMBER"]),
        ("characters=4", ["at most 4 characters", "characters=NUMBER"]),
        ("columns=1", ["at most 1 columns", "columns=NUMBER"]),
        ("memory=20", ["expected at most", "memory=NUMBER"]),
        ("nodes=many", [VARIABLE, "NAME=NUMBER", "'nodes=many'"]),
        ("texts=3", [VARIABLE, "nodes, edges, characters, columns, memory, seconds", "'texts=3'"]),
        ("nodes=-1", [VARIABLE, "'nodes=-1'"]),
    ],
)
def test_the_user_sets_the_bounds_of_every_format(tmp_path, small, monkeypatch, bounds, words):
    monkeypatch.setenv(VARIABLE, bounds)
    for path in small.values():
        with pytest.raises(UserError) as caught:
            import_graph([path], "g", tmp_path)
        assert all(word in str(caught.value) for word in words), str(caught.value)
        assert not list(tmp_path.glob("graphs/*"))


def test_the_usual_bounds_allow_large_graphs():
    usual = limits()
    assert usual.nodes >= 10_000_000 and usual.edges >= 1_000_000_000
    assert usual.characters >= 8_000_000 and usual.memory >= 1 << 30
    with pytest.raises(DataError, match="f: expected at most 100,000,000 nodes, found more; "):
        check("f", nodes=usual.nodes + 1)


def import_slowly(in_the_middle, *arguments):
    def slowly(*_):
        in_the_middle.set()
        time.sleep(600)

    importer.write_text = slowly
    import_graph(*arguments)


def begin(*arguments):
    """An import that has written its tables and waits, in a fork."""
    forks = multiprocessing.get_context("fork")
    in_the_middle = forks.Event()
    process = forks.Process(target=import_slowly, args=(in_the_middle, *arguments), daemon=True)
    process.start()
    assert in_the_middle.wait(60)
    return process


def test_a_killed_import_is_cleaned_up_by_the_next_and_a_live_one_is_not(tmp_path, small):
    folder = tmp_path / "graphs"
    killed, alive = (begin([small["csv"]], name, tmp_path) for name in ("killed", "alive"))
    try:
        killed.kill()
        killed.join()
        drafts = {path.name.split(".")[1] for path in folder.glob(".*.draft-????????")}
        assert drafts == {"killed", "alive"}
        import_graph([small["csv"]], "next", tmp_path)
        left = {path.name.split(".")[1] for path in folder.glob(".*")}
        assert left == {"alive"}
        (draft,) = folder.glob(".alive.draft-????????")
        assert (draft / "nodes.parquet").is_file()
    finally:
        alive.kill()
        alive.join()
    import_graph([small["csv"]], "last", tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["last", "next"]


def test_a_command_that_is_killed_while_it_writes_leaves_nothing_behind_for_long(tmp_path):
    folder, root = parquet(tmp_path, ["word " * 1000] * 20_000), tmp_path / "root"
    script = Path(sys.executable).with_name("dance-flwr")
    command = [script, "data", "import", folder, "--name", "g"]
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.DEVNULL,
        cwd=PROJECT,
        env=os.environ | {"DANCE_FLWR_HOME": str(root)},
    )
    deadline = time.monotonic() + 60
    while not list(root.glob("graphs/.g.draft-????????")) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)  # alive, but at rest
    parquet(tmp_path, ["t"])
    try:
        import_graph([folder], "one", root)
        assert list(root.glob("graphs/.g.draft-????????"))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    import_graph([folder], "two", root)
    assert sorted(path.name for path in (root / "graphs").iterdir()) == ["one", "two"]


changes = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 1), st.just(b"")),
    st.tuples(
        st.just("flip"), st.floats(0, 1), st.integers(0, 7).map(lambda bit: bytes([1 << bit]))
    ),
    st.tuples(st.just("put"), st.floats(0, 1), st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("add"), st.floats(0, 1), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("all"), st.just(0.0), st.binary(max_size=200)),
)


def changed(content, how):
    for kind, share, value in how:
        place = int(share * max(len(content) - 1, 0))
        before, after = content[:place], content[place:]
        if kind == "flip" and after:
            after = bytes([after[0] ^ value[0]]) + after[1:]
        elif kind == "put":
            after = value + after[len(value) :]
        elif kind in ("cut", "add", "all"):
            after = {"cut": b"", "add": value + after, "all": value}[kind]
        content = before + after
    return content


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", {"_data_files": 3}),
        ("state.json", {"_data_files": [1]}),
        ("dataset_dict.json", {"splits": 3}),
        ("dataset_dict.json", {"splits": [["train"]]}),
        ("dataset_info.json", {"features": [1]}),
        ("dataset_info.json", {"features": {"label": {"_type": "ClassLabel", "names": 3}}}),
    ],
)
def test_json_of_another_shape_beside_a_saved_data_set_is_one_line(tmp_path, name, content):
    path = small_files(tmp_path)["saved"]
    (path / name).write_text(json.dumps(content))
    with pytest.raises(DataError, match="save the data set again"):
        import_graph([path], "g", tmp_path)


@pytest.mark.parametrize("names", [b"[", b"3", b"[1]", b"[" * 100_000, b"\xff", b'["\\ud800"]'])
def test_class_names_of_a_stranger_are_a_list_of_names_or_one_line(tmp_path, names):
    path = small_files(tmp_path)["parquet"]
    table = pq.read_table(path / "nodes.parquet").replace_schema_metadata({CLASSES_KEY: names})
    pq.write_table(table, path / "nodes.parquet")
    with pytest.raises(DataError, match="a list of names in the metadata"):
        import_graph([path], "g", tmp_path)


PLACES = {
    **{kind: f"nodes.{kind}" for kind in ("parquet", "csv", "feather", "jsonl")},
    "gz": "nodes.csv.gz",
    **{f"saved/{name}": name for name in ("data.arrow", "state.json")},
    "graphrag": "entities.parquet",
    **dict.fromkeys(("pt", "old", "graphml", "gexf", "json", "cytoscape"), ""),
}


@pytest.mark.filterwarnings("ignore:.*empty text")
@pytest.mark.parametrize("place", PLACES)
@settings(
    max_examples=examples(100),
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(how=st.lists(changes, min_size=1, max_size=3))
def test_a_damaged_file_is_a_graph_or_one_line(tmp_path_factory, small, place, how):
    folder = tmp_path_factory.mktemp("damaged")
    whole = small[place.partition("/")[0]]
    path = folder / whole.name
    (shutil.copytree if whole.is_dir() else shutil.copy)(whole, path)
    file = path / PLACES[place] if path.is_dir() else path
    file.write_bytes(changed(file.read_bytes(), how))
    try:
        import_graph([path], "g", folder, Options())
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 2_000
        assert not list(folder.glob("graphs/*"))
        assert not list(folder.glob("graphs/.*"))
    else:
        assert load_graph("g", folder).num_nodes


def test_no_flipped_bit_of_a_parquet_file_ends_the_process(small, tmp_path):
    """Arrow's objects of columns call `terminate` where a histogram of statistics is damaged."""
    folder = tmp_path / "graphrag"
    shutil.copytree(small["graphrag"], folder)
    content = (folder / "entities.parquet").read_bytes()
    if not (child := os.fork()):
        with (folder / "entities.parquet").open("r+b", buffering=0) as file:
            for place, byte in enumerate(content):
                os.pwrite(file.fileno(), bytes([byte ^ 1 << place % 8]), place)
                with suppress(UserError):
                    (nodes,) = recognise([folder], DEFAULTS)[0].nodes
                    list(nodes.batches(["title", "description"]))
                os.pwrite(file.fileno(), bytes([byte]), place)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
