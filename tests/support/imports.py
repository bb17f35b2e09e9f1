"""Import cases: files as users have them, and the graph, or the refusal, that they give."""

import gzip
import json
import re
import sqlite3
import warnings
from pathlib import Path
from unittest import mock

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from dance_flwr.data.graphs.graph import SPLIT_NAMES
from dance_flwr.data.imports import child
from dance_flwr.data.imports.importer import import_graph, read_graph
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.report import summary_lines
from dance_flwr.errors import UserError
from support.files_of_tools import saved
from support.project import PROJECT

GOLDEN = PROJECT / "tests" / "golden" / "imports.json"


def case(files, expected, *parts, **options):
    """Files by path, and what an import with these options makes of them.

    A file is text, bytes or a function that writes it. `expected` is "nodes/edges/classes", or "!"
    and a pattern of the refusal; `parts` are printed or warned of.
    """
    return files, expected, parts, options


def in_this_process():
    """Read files without a child process, which takes longer than to read small ones."""

    def done(job):
        return 0, json.dumps(child.answer_of(job))

    return mock.patch.object(child, "_done", done)


@in_this_process()
def check(folder, name, files, expected, parts, options, *, update=False):
    """Import a case into a folder and compare: the graph, with what is in `GOLDEN`.

    `update` records the graph there.
    """
    if any(file.endswith((".ttl", ".nt", ".nt.gz")) for file in files):
        pytest.importorskip("rdflib")
    for file, content in files.items():
        put(folder / file, content)
    paths = list(dict.fromkeys(folder / Path(file).parts[0] for file in files))
    if expected.startswith("!"):
        with pytest.raises(UserError) as caught:
            import_graph(paths, "g", folder / "root", Options(**options))
        message = str(caught.value)
        assert re.search(expected[1:], message) and "\n" not in message, message
        assert not (folder / "root/graphs/g").exists()
        return
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        report = import_graph(paths, "g", folder / "root", Options(**options))
        graph = read_graph(paths, **options)
        stored = read_graph(folder / "root/graphs/g")
    made = drawn(graph)
    assert drawn(stored) == made
    assert "{nodes}/{edges}/{classes}".format(**report["counts"]) == expected
    printed = "\n".join([*summary_lines(report), *(str(line.message) for line in warned)])
    for part in parts:
        assert part in printed, printed
    columns = " ".join(f"{role}={','.join(of)}" for role, of in report["columns"].items())
    record = f"{report['kind']} | {columns} | {made}"
    golden = json.loads(GOLDEN.read_text("utf-8"))
    if update:
        golden[name] = record
        text = json.dumps(golden, indent=0, ensure_ascii=False, sort_keys=True)
        GOLDEN.write_text(text + "\n", "utf-8")
    assert golden[name] == record


def drawn(graph):
    """All of a graph in a line: nodes with text, class and split; edges with weight and texts."""
    classes = (*graph.class_names, "")  # a label of -1 is the last
    nodes = [
        " ".join(filter(None, (f"{i}: {text!r}", classes[label], SPLIT_NAMES[split])))
        for i, text, label, split in zip(
            graph.ids, graph.texts, graph.labels, graph.split, strict=True
        )
    ]
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    weights = [""] * len(source) if graph.weights is None else [f"*{w:g}" for w in graph.weights]
    ends = zip(source, graph.indices, weights, strict=True)
    edges = [f"{graph.ids[a]}-{graph.ids[b]}{weight}" for a, b, weight in ends if a < b]
    if graph.edge_texts is not None:
        of = graph.edge_texts
        texts = zip(graph.ids[of.source], graph.ids[of.target], of.texts, strict=True)
        edges += [f"{a}>{b} {text!r}" for a, b, text in texts]
    return f"{', '.join(nodes)} | {', '.join(edges)} | {', '.join(graph.class_names)}"


def put(path, content):
    """Write a file of a case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def packed(content):
    """A writer of a file of a case, packed by gzip."""

    def write(path):
        plain = path.with_suffix("")
        put(plain, content)
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    return write


def lines(*records):
    """JSON lines."""
    return "\n".join(map(json.dumps, records)) + "\n"


def parquet(**columns):
    """A writer of a Parquet file."""
    return lambda path: pd.DataFrame(columns).to_parquet(path)


def torch_file(**content):
    """A writer of a file of torch with a dict."""
    return lambda path: torch.save(content, path)


def saved_set(classes=None, **columns):
    """A writer of a folder as `save_to_disk` of the datasets library makes it."""
    return lambda path: saved(path, pa.table(columns), classes)


def database(**tables):
    """A writer of a file of SQLite."""

    def write(path):
        with sqlite3.connect(path) as connection:
            for name, columns in tables.items():
                pd.DataFrame(columns).to_sql(name, connection, index=False)
        connection.close()

    return write


def workbook(**sheets):
    """A writer of an Excel workbook."""

    def write(path):
        pytest.importorskip("openpyxl")
        with pd.ExcelWriter(path) as writer:
            for name, columns in sheets.items():
                pd.DataFrame(columns).to_excel(writer, sheet_name=name, index=False)

    return write


def network(writer, kind=nx.Graph):
    """A writer of three nodes and their edges by a function of NetworkX."""

    def write(path):
        graph = kind()
        for node, text, label in ((1, "one", "x"), (2, "two", "y"), (3, "three", "y")):
            graph.add_node(node, text=text, topic=label)
        graph.add_edges_from([(1, 2), (2, 3), (2, 1)])
        writer(graph, path)

    return write
