"""Readers of the published graphs, one per file layout."""

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from dance_flwr.data.graphs.catalogue import Dataset
from dance_flwr.data.graphs.limits import check
from dance_flwr.data.graphs.pyg import check_ends
from dance_flwr.data.graphs.tables import readable
from dance_flwr.data.imports.layouts import GraphFile
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.records import column_table, read_object
from dance_flwr.data.imports.text_tables import delimited
from dance_flwr.data.imports.torch_files import (
    label_names,
    load_data,
    load_torch,
    pyg_data,
    split_names,
    texts_of,
)
from dance_flwr.errors import DataError

_COMMAS = Options(delimiter=",")
_OGB_SPLITS = (("train", "train"), ("val", "valid"), ("test", "test"))


def read_published(row: Dataset, folder: Path, split_index: int = 0) -> GraphFile:
    """Return the graph of a published data set from its files in a folder."""
    files = tuple(folder / file.name for file in row.files)
    if row.layout == "wikics":
        return _wikics(files, split_index)
    if row.layout == "ogbn":
        return _ogbn(files)
    data = load_data(files[0])
    if row.layout == "pyg+texts":
        data["raw_texts"] = texts_of(load_torch(files[1]), str(files[1]))
        # Categories in the order of the labels.
        table = delimited(files[2], _COMMAS)
        for column in ("name", "category", "label_name"):
            if column in table.names:
                data["label_name"] = table.read([column])[column].to_pylist()
                break
    if row.layout == "tape":
        papers = delimited(files[1], _COMMAS).read(("title", "abstract"))
        pairs = zip(*(papers[name].to_pylist() for name in ("title", "abstract")), strict=True)
        data["raw_texts"] = list(map("\n".join, pairs))
    return pyg_data(data, files, split_index)


def _wikics(files: tuple[Path, ...], split_index: int) -> GraphFile:
    """Read the official graph, masks and article texts."""
    import torch

    graph, meta = (read_object(file, "a JSON object", "download it again") for file in files)
    where = str(files[0])
    try:
        labels = np.array(graph["labels"], np.int64)
        texts = [
            # Wiki-CS has titles as in addresses.
            node["title"].replace("_", " ") + "\n" + " ".join(node["tokens"])
            for node in meta["nodes"]
        ]
        names = {str(k): str(v) for k, v in meta.get("labels", {}).items()}
        lengths = np.array([len(links) for links in graph["links"]])
        targets = np.concatenate([np.array(links, np.int64) for links in graph["links"]])
        # One row per split.
        masks = {f"{name}_mask": torch.tensor(graph[f"{name}_masks"]) for name in ("train", "val")}
        masks["test_mask"] = torch.tensor(graph["test_mask"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{where}: expected the official Wiki-CS files, "
            f"found {type(error).__name__} {error}; download them again"
        ) from error
    n = len(labels)
    if not len(texts) == len(lengths) == n:
        raise DataError(
            f"{where}: expected {n} texts and link lists, found {len(texts)} and {len(lengths)}; "
            "download it again"
        )
    classes = [names.get(str(i), str(i)) for i in range(int(labels.max()) + 1)]
    columns = {
        "text": texts,
        "label": label_names(labels, classes, where),
        "split": split_names(masks, n, split_index, where),
    }
    ends = np.stack([np.repeat(np.arange(n), lengths), targets])
    return _graph("Wiki-CS", files, columns, ends, tuple(classes))


def _ogbn(files: tuple[Path, ...]) -> GraphFile:
    """Read OGB's archive of node tables, and titles and abstracts joined by paper id."""
    where = str(files[0])
    with readable(files[0]):
        ends = np.stack(_member(files[0], "raw/edge.csv.gz", ("s", "t")))
        (labels,) = _member(files[0], "raw/node-label.csv.gz", ("y",))
        names = ("node", "paper")
        papers = _member(files[0], "mapping/nodeidx2paperid.csv.gz", names, header=1)[1]
        split = np.full(len(labels), "", object)
        for name, part in _OGB_SPLITS:
            split[_member(files[0], f"split/time/{part}.csv.gz", ("node",))[0]] = name
    if len(papers) != len(labels):
        raise DataError(
            f"{where}: expected {len(labels)} paper ids, found {len(papers)}; download it again"
        )
    with readable(files[1]):
        texts = dict(_titles(files[1]))
    columns = {
        "text": [texts.get(paper, "") for paper in papers.tolist()],
        "label": label_names(labels, [], where),
        "split": split.tolist(),
    }
    return _graph("OGB", files, columns, ends, ())


def _graph(
    kind: str,
    files: tuple[Path, ...],
    columns: dict[str, list[str]],
    ends: NDArray[np.int64],
    classes: tuple[str, ...],
) -> GraphFile:
    """Return the graph of columns of nodes and an edge list [2, m]; ids are row numbers."""
    where, n = files[0], len(columns["text"])
    check_ends(ends, n, str(where))
    edges = {"source": ends[0], "target": ends[1]}
    return GraphFile(
        kind,
        files,
        (column_table(where, "nodes", n, {"id": range(n), **columns}),),
        (column_table(where, "edges", len(ends[0]), edges),),
        classes=classes,
        by_place=True,
    )


def _titles(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the number, and title and abstract, of each paper; a header is skipped."""
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as stream:
        for line in stream:
            # No quoting: a quotation mark in a title is part of it.
            paper, *texts = line.rstrip("\r\n").split("\t")
            if paper.isdecimal() and len(texts) == 2:
                yield int(paper), "\n".join(texts)


def _member(
    file: Path, path: str, names: tuple[str, ...], *, header: int = 0
) -> list[NDArray[np.int64]]:
    """Return the integer columns of one gzipped table in an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            # The folder around the tables is named by the release of the archive.
            inner = next(name for name in archive.namelist() if name.endswith("/" + path))
            content = pa.BufferReader(archive.read(inner))
        with pa.CompressedInputStream(content, "gzip") as stream:
            table = pa_csv.read_csv(
                stream,
                pa_csv.ReadOptions(column_names=names, skip_rows=header, use_threads=False),
                None,
                pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int64())),
            )
    except (StopIteration, zipfile.BadZipFile) as error:
        raise DataError(
            f"{file}: expected a complete archive with {path}, found none; download it again"
        ) from error
    check(file, edges=len(table))
    return [table.column(name).to_numpy() for name in names]
