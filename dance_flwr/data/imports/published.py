"""Readers of the published graphs: what their files hold, by the keys of a PyG `Data`."""

import gzip
import zipfile
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
from dance_flwr.data.imports.records import fault, read_object
from dance_flwr.data.imports.text_tables import delimited
from dance_flwr.data.imports.torch_files import load_data, load_torch, pyg_data, texts_of

_COMMAS = Options(delimiter=",")
_OGB_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def read_published(row: Dataset, folder: Path, split_index: int = 0) -> GraphFile:
    """Return the graph of a published data set from its files in a folder."""
    files = tuple(folder / file.name for file in row.files)
    if row.layout == "wikics":
        return replace(pyg_data(_wikics(files), files, split_index), kind="Wiki-CS")
    if row.layout == "ogbn":
        return replace(pyg_data(_ogbn(files), files, split_index), kind="OGB")
    data = load_data(files[0])
    if row.layout == "pyg+texts":
        data["raw_texts"] = texts_of(load_torch(files[1]), str(files[1]))
        # Categories in the order of the labels.
        table = delimited(files[2], _COMMAS)
        if name := next((n for n in ("name", "category", "label_name") if n in table.names), ""):
            data["label_name"] = table.read([name])[name].to_pylist()
    if row.layout == "tape":
        papers = delimited(files[1], _COMMAS).read(("title", "abstract"))
        pairs = zip(papers["title"].to_pylist(), papers["abstract"].to_pylist(), strict=True)
        data["raw_texts"] = list(map("\n".join, pairs))
    return pyg_data(data, files, split_index)


def _wikics(files: tuple[Path, ...]) -> dict[str, Any]:
    """Read the official graph, masks (one row per split) and article texts."""
    import torch

    graph, meta = (read_object(file, "a JSON object", "download it again") for file in files)
    try:
        # Wiki-CS has titles as in addresses.
        titles = [node["title"].replace("_", " ") for node in meta["nodes"]]
        words = [" ".join(node["tokens"]) for node in meta["nodes"]]
        names = {str(k): str(v) for k, v in meta.get("labels", {}).items()}
        ends = [(node, other) for node, others in enumerate(graph["links"]) for other in others]
        return {
            "raw_texts": ["\n".join(pair) for pair in zip(titles, words, strict=True)],
            "y": torch.tensor(graph["labels"]),
            "edge_index": torch.tensor(ends).T,
            "train_mask": torch.tensor(graph["train_masks"]),
            "val_mask": torch.tensor(graph["val_masks"]),
            "test_mask": torch.tensor(graph["test_mask"]),
            "label_name": [names.get(str(i), str(i)) for i in range(max(graph["labels"]) + 1)],
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found = f"{type(error).__name__} {error}"
        raise fault(files[0], "the official Wiki-CS files", found, "download them again") from error


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
    texts: dict[int, str] = {}
    with readable(files[1]), gzip.open(files[1], "rt", encoding="utf-8", newline="\n") as stream:
        for line in stream:
            # No quoting: a quotation mark in a title is part of it. A header is skipped.
            paper, *parts = line.rstrip("\r\n").split("\t")
            if paper.isdecimal() and len(parts) == 2:
                texts[int(paper)] = "\n".join(parts)
    return {
        "raw_texts": [texts.get(paper, "") for paper in papers.tolist()],
        **{"y": torch.tensor(labels), "edge_index": torch.tensor(ends), **masks},
    }


def _member(
    file: Path, path: str, names: tuple[str, ...], *, header: int = 0
) -> list[NDArray[np.int64]]:
    """Return the integer columns of one gzipped table in an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            # The folder around the tables is named by the release of the archive.
            inner = next(name for name in archive.namelist() if name.endswith("/" + path))
            content = pa.BufferReader(archive.read(inner))
    except (StopIteration, zipfile.BadZipFile) as error:
        what = f"a complete archive with {path}"
        raise fault(file, what, "none", "download it again") from error
    with pa.CompressedInputStream(content, "gzip") as stream:
        read = pa_csv.ReadOptions(column_names=names, skip_rows=header, use_threads=False)
        types = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int64()))
        table = pa_csv.read_csv(stream, read, None, types)
    check(file, edges=len(table))
    return [table.column(name).to_numpy() for name in names]
