"""Small files that describe hundreds of megabytes, one per format and trick."""

import gzip
import io
import json
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

LONG = "x" * 200_000  # a text that the limits of the tests allow
MANY = 3_000  # 600 MB of them
ENTITIES = '<!DOCTYPE g [<!ENTITY a "b"><!ENTITY c SYSTEM "file:///etc/passwd">]>'
GRAPHML = (
    '<?xml version="1.0" encoding="%s"?>%s'
    '<graphml><key id="t" for="node" attr.name="text"/><graph>%s</graph></graphml>'
)
NODE = '<node id="%s"><data key="t">%s</data></node>'


def edges(folder, content="source,target\n"):
    (folder / "edges.csv").write_text(content)
    return folder


def long_texts():
    """Many long texts, in memory of numpy, which asks for pages of 2 MB: others take seconds."""
    ends = np.arange(MANY + 1, dtype=np.int32) * np.int32(len(LONG))
    letters = np.full(MANY * len(LONG), ord("x"), np.uint8)
    return pa.StringArray.from_buffers(MANY, pa.py_buffer(ends), pa.py_buffer(letters))


def table(texts, **columns):
    return pa.table({"id": [str(i) for i in range(len(texts))], "text": texts, **columns})


def parquet(folder, texts=None, *, labels=None, **options):
    """A folder whose node table has these texts, by default many long ones."""
    texts = long_texts() if texts is None else pa.array(texts)
    columns = table(texts, label=labels or ["x"] * len(texts))
    pq.write_table(columns, folder / "nodes.parquet", compression="zstd", **options)
    return edges(folder)


def parquet_dictionary(folder):
    return parquet(folder)


def parquet_categories(folder):
    return parquet(folder, pa.DictionaryArray.from_arrays(np.zeros(MANY, np.int32), [LONG]))


def parquet_label(folder):
    return parquet(folder, ["t"] * MANY, labels=long_texts())


def parquet_plain(folder):
    return parquet(folder, use_dictionary=False)


def parquet_prefixes(folder):
    encodings = {"text": "DELTA_BYTE_ARRAY", "id": "PLAIN", "label": "PLAIN"}
    return parquet(folder, use_dictionary=False, column_encoding=encodings)


def parquet_that_lies(folder):
    """The metadata say that the texts take a few bytes."""
    parquet(folder, use_dictionary=False)
    file = folder / "nodes.parquet"
    meta, content = pq.read_metadata(file).row_group(0), file.read_bytes()
    for size in (meta.column(1).total_uncompressed_size, meta.total_byte_size):
        number = varint(2 * size)
        assert number in content
        content = content.replace(number, bytes([0x90, *[0x80] * (len(number) - 2), 0]))
    file.write_bytes(content)
    assert pq.read_metadata(file).row_group(0).column(1).total_uncompressed_size == 8
    return folder


def varint(value):
    low = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(part | 128 for part in low[:-1]), low[-1]])


def parquet_lists(folder):
    numbers = pa.ListArray.from_arrays(
        np.arange(0, 40_000_001, 40_000, np.int32), np.zeros(4 * 10**7)
    )
    return parquet(folder, numbers)


def parquet_edges(folder):
    zeros = pa.array(np.zeros(20_000_000, np.int8))
    parquet(folder, ["t"])
    (folder / "edges.csv").unlink()
    pq.write_table(pa.table({"source": zeros, "target": zeros}), folder / "edges.parquet")
    return folder


def parquet_nothing(folder):
    columns = {name: pa.nulls(30_000_000, pa.string()) for name in ("id", "text", "label")}
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    return edges(folder)


def csv_columns(folder):
    commas = "," * 200_000
    (folder / "nodes.csv").write_text(f"id,text,label{commas}\na,t,x{commas}\n")
    return edges(folder)


def csv_open_quote(folder):
    (folder / "nodes.csv").write_text('id,text,label\na,"' + "word,\n" * 8_000_000)
    return edges(folder)


def gz_texts(folder):
    with gzip.open(folder / "nodes.csv.gz", "wb", compresslevel=1) as stream:
        stream.write(b"id,text,label\n")
        for i in range(MANY // 10):
            stream.write(b"%d,%s,x\n" % (i, LONG.encode()))
    return edges(folder)


def gz_edges(folder):
    parquet(folder, ["t"])
    (folder / "edges.csv").unlink()
    with gzip.open(folder / "edges.txt.gz", "wb") as stream:
        stream.write(b"0 0\n" * 20_000_000)
    return folder


def feather_compressed(folder):
    columns = table(long_texts(), label=["x"] * MANY)
    pyarrow.feather.write_feather(columns, folder / "nodes.feather", compression="zstd")
    return edges(folder)


def feather_dictionary(folder):
    texts = pa.DictionaryArray.from_arrays(np.zeros(MANY, np.int32), [LONG])
    with pa.ipc.new_file(folder / "nodes.feather", table(texts, label=["x"] * MANY).schema) as out:
        out.write_table(table(texts, label=["x"] * MANY))
    return edges(folder)


def jsonl_lists(folder):
    inner = "[" + "[]," * 4_000_000 + "[]]"
    (folder / "nodes.jsonl").write_text(f'{{"id": 1, "text": {inner}, "label": "x"}}\n')
    return edges(folder)


def jsonl_keys(folder):
    lines = (json.dumps({f"key {i} {j}": 0 for j in range(1000)}) for i in range(1000))
    (folder / "nodes.jsonl").write_text("\n".join(lines))
    return edges(folder)


def node_link_lists(folder):
    inner = "[" + "[]," * 4_000_000 + "[]]"
    (folder / "g.json").write_text(f'{{"nodes": [{{"id": 1, "text": {inner}}}], "links": []}}')
    return folder / "g.json"


def graphml(folder, body, declared="", encoding="utf-8", name="g.graphml"):
    (folder / name).write_text(GRAPHML % (encoding, declared, body), encoding)
    return folder / name


def graphml_nodes(folder):
    return graphml(folder, "".join(f'<node id="{i:x}"/>' for i in range(400_000)))


def graphml_depth(folder):
    return graphml(folder, "<node id='a'>" + "<d>" * 3_000_000 + "</d>" * 3_000_000 + "</node>")


def graphml_entities_far_down(folder):
    return graphml(folder, NODE % ("a", "&a;"), f"<!--{' ' * 80_000}-->{ENTITIES}")


def graphml_entities_in_utf16(folder):
    return graphml(folder, NODE % ("a", "&c;"), ENTITIES, "utf-16")


def graphml_laughs(folder):
    declared = f'<!ENTITY a "{"x" * 50_000}"><!ENTITY b "{"&a;" * 90}">'
    return graphml(folder, NODE % ("a", "&b;"), f"<!--{' ' * 80_000}--><!DOCTYPE g [{declared}]>")


def torch_zip(folder, pickled):
    """A file as `torch.save` writes it, with this pickle, compressed."""
    with zipfile.ZipFile(folder / "g.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("g/data.pkl", pickled)
        archive.writestr("g/byteorder", "little")
        archive.writestr("g/version", "3\n")
    return folder / "g.pt"


def pt_one_text(folder):
    import torch

    tensors = {"y": torch.zeros(MANY, dtype=torch.long), "edge_index": torch.zeros(2, 0)}
    torch.save({**tensors, "raw_texts": [LONG] * MANY}, folder / "g.pt")
    return folder / "g.pt"


def pt_lists(folder):
    return torch_zip(folder, b"\x80\x02(" + b"]" * 8_000_000 + b"l.")


def pt_bytes(folder):
    return torch_zip(folder, b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x20\x85R.")


def pt_bytes_in_the_old_format(folder):
    magic = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    info = pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {}}, 2)
    call = b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x20\x85R."
    (folder / "g.pt").write_bytes(b"\x80\x02" + magic + pickle.dumps(1001, 2) + info + call)
    return folder / "g.pt"


def pt_copies(folder):
    """One list, from which a call makes a set many times over."""
    items = b"".join(b"J" + i.to_bytes(4, "little") for i in range(50_000))
    calls = b"cbuiltins\nset\nh\x00\x85R" * 200
    return torch_zip(folder, b"\x80\x02](]q\x00(" + items + b"e" + calls + b"e.")


def saved(folder, columns, **options):
    """A folder as `save_to_disk` of the datasets library writes it."""
    file = folder / "data.arrow"
    with (
        pa.OSFile(str(file), "wb") as sink,
        pa.ipc.new_stream(sink, columns.schema, options=pa.ipc.IpcWriteOptions(**options)) as out,
    ):
        out.write_table(columns)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": file.name}]}))
    return edges(folder)


def saved_compressed(folder):
    return saved(folder, table(long_texts(), label=["x"] * MANY), compression="zstd")


def saved_dictionary(folder):
    texts = pa.DictionaryArray.from_arrays(np.zeros(MANY, np.int32), [LONG])
    return saved(folder, table(texts, label=["x"] * MANY))


def saved_views(folder):
    text = pa.array([LONG], pa.string_view())
    _, views, data = text.buffers()
    views = pa.py_buffer(views.to_pybytes()[:16] * MANY)
    texts = pa.Array.from_buffers(pa.string_view(), MANY, [None, views, data])
    return saved(folder, table(texts, label=["x"] * MANY))


def saved_nothing(folder):
    count = 50_000_000
    columns = {name: pa.nulls(count) for name in ("id", "text", "label")}
    return saved(folder, pa.table(columns))


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
            ("raw/node-label.csv.gz", b"0\n"),
            ("mapping/nodeidx2paperid.csv.gz", b"node,paper\n0,1\n"),
            *((f"split/time/{part}.csv.gz", b"0\n") for part in ("train", "valid", "test")),
        ):
            archive.writestr("arxiv/" + name, gzip.compress(content, 9))
    (folder / "titleabs.tsv.gz").write_bytes(gzip.compress(b"1\ttitle\tabstract\n"))
    return folder


def ogbn_titles(folder):
    """OGB's archive, with a table of titles that goes on."""
    ogbn_gzip(folder, edges=1)
    packed = io.BytesIO()
    with gzip.open(packed, "wb") as stream:
        for _ in range(300):
            stream.write(b"1\t" + b"word " * 200_000 + b"\tx\n")
    (folder / "titleabs.tsv.gz").write_bytes(packed.getvalue())
    return folder


BOMBS = {
    name: make
    for name, make in list(globals().items())
    if "_" in name
    and name.split("_")[0]
    in ("parquet", "csv", "gz", "feather", "jsonl", "node", "graphml", "pt", "saved", "ogbn")
}
