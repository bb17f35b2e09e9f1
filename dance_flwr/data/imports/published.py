"""Readers of the published graphs: what their files hold, by the keys of a PyG `Data`."""

import gzip
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from dance_flwr.data.graphs.catalogue import Dataset
from dance_flwr.data.graphs.limits import check
from dance_flwr.data.graphs.tables import readable
from dance_flwr.data.imports.layouts import GraphFile
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.records import read_object
from dance_flwr.data.imports.text_tables import delimited
from dance_flwr.data.imports.torch_files import load_data, load_torch, pyg_data, texts_of
from dance_flwr.errors import DataError

_COMMAS = Options(delimiter=",")
_OGB_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def read_published(row: Dataset, folder: Path, split_index: int = 0) -> GraphFile:
    """Return the graph of a published data set from its files in a folder."""
    files = tuple(folder / file.name for file in row.files)
    readers = {"wikics": ("Wiki-CS", _wikics), "ogbn": ("OGB", _ogbn)}
    if row.layout in readers:
        kind, read = readers[row.layout]
        return replace(pyg_data(read(files), files, split_index), kind=kind)
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


def _wikics(files: tuple[Path, ...]) -> dict[str, Any]:
    """Read the official graph, masks (one row per split) and article texts."""
    import torch

    graph, meta = (read_object(file, "a JSON object", "download it again") for file in files)
    try:
        texts = [
            # Wiki-CS has titles as in addresses.
            node["title"].replace("_", " ") + "\n" + " ".join(node["tokens"])
            for node in meta["nodes"]
        ]
        names = {str(k): str(v) for k, v in meta.get("labels", {}).items()}
        labels, links = torch.tensor(graph["labels"]), graph["links"]
        ends = [(node, other) for node, others in enumerate(links) for other in others]
        masks = {f"{name}_mask": torch.tensor(graph[f"{name}_masks"]) for name in ("train", "val")}
        return {
            **{"raw_texts": texts, "y": labels, "edge_index": torch.tensor(ends).T, **masks},
            "test_mask": torch.tensor(graph["test_mask"]),
            "label_name": [names.get(str(i), str(i)) for i in range(int(labels.max()) + 1)],
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{files[0]}: expected the official Wiki-CS files, "
            f"found {type(error).__name__} {error}; download them again"
        ) from error


def _ogbn(files: tuple[Path, ...]) -> dict[str, Any]:
    """Read OGB's archive of node tables, and titles and abstracts joined by paper id."""
    import torch

    with readable(files[0]):
        ends = np.stack(_member(files[0], "raw/edge.csv.gz", ("s", "t")))
        (labels,) = _member(files[0], "raw/node-label.csv.gz", ("y",))
        names = ("node", "paper")
        papers = _member(files[0], "mapping/nodeidx2paperid.csv.gz", names, header=1)[1]
        masks = {}
        for name, part in _OGB_SPLITS.items():
            masks[f"{name}_mask"] = torch.zeros(len(labels), dtype=torch.bool)
            rows = _member(files[0], f"split/time/{part}.csv.gz", ("node",))[0]
            masks[f"{name}_mask"][torch.tensor(rows)] = True
    with readable(files[1]):
        texts = dict(_titles(files[1]))
    return {
        "raw_texts": [texts.get(paper, "") for paper in papers.tolist()],
        **{"y": torch.tensor(labels), "edge_index": torch.tensor(ends), **masks},
    }


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
