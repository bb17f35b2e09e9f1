"""Readers of the published graphs, one per file layout."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from dance_flwr.data.graphs.catalogue import Dataset
from dance_flwr.data.graphs.edges import EdgeList
from dance_flwr.data.graphs.limits import Meter
from dance_flwr.data.graphs.tables import readable
from dance_flwr.data.imports import node_arrays, pickles
from dance_flwr.data.imports.assemble import assemble
from dance_flwr.data.imports.columns import rows_of
from dance_flwr.data.imports.delimited import CsvTable
from dance_flwr.data.imports.imported import Ends, Incoming, ends_of
from dance_flwr.data.imports.json_files import read_object
from dance_flwr.data.imports.options import DEFAULTS
from dance_flwr.data.imports.pickles import check_zip
from dance_flwr.data.imports.saved import pyg_data, read_pyg
from dance_flwr.errors import DataError


def read_layout(row: Dataset, folder: Path, split_index: int = 0) -> Incoming:
    """Return the graph of a published data set from its files in a folder."""
    files = tuple(folder / file.name for file in row.files)
    if row.layout == "pyg":
        return assemble(read_pyg(files[0], split_index), DEFAULTS)
    readers = {"pyg+texts": _texts_beside, "tape": _tape, "wikics": _wikics, "ogbn": _ogbn}
    return readers[row.layout](files, split_index)


def _texts_beside(files: tuple[Path, ...], split_index: int) -> Incoming:
    """Read a PyG file, a list of texts, and a table of categories in the order of the labels."""
    data = pickles.as_mapping(pickles.load(files[0]), files[0])
    texts = pickles.strings(pickles.load(files[1]), str(files[1]))
    table = CsvTable(files[2], delimiter=",")
    column = next((name for name in ("name", "category", "label_name") if name in table.names), "")
    names = table.read([column])[column].to_pylist() if column else []
    beside = {"raw_texts": texts} | ({"label_name": names} if names else {})
    return assemble(pyg_data({**data, **beside}, files, split_index), DEFAULTS)


def _tape(files: tuple[Path, ...], split_index: int) -> Incoming:
    """Read a PyG file and a table of titles and abstracts in the order of the nodes."""
    data = pickles.as_mapping(pickles.load(files[0]), files[0])
    papers = CsvTable(files[1], delimiter=",").read(("title", "abstract"))
    texts = pc.binary_join_element_wise(
        papers["title"], papers["abstract"], pa.scalar("\n", pa.large_string())
    )
    return assemble(
        pyg_data({**data, "raw_texts": texts.to_pylist()}, files, split_index), DEFAULTS
    )


def _wikics(files: tuple[Path, ...], split_index: int) -> Incoming:
    """Read the official graph, masks and article texts."""
    graph, meta = (read_object(file, "a JSON object", "download it again") for file in files)
    try:
        nodes, labels = meta["nodes"], np.array(graph["labels"], np.int64)
        texts = [
            # Wiki-CS has titles as in addresses.
            node["title"].replace("_", " ") + "\n" + " ".join(node["tokens"])
            for node in nodes
        ]
        names = {str(k): str(v) for k, v in meta.get("labels", {}).items()}
        lengths = np.array([len(links) for links in graph["links"]])
        targets = np.concatenate([np.array(links, np.int64) for links in graph["links"]])
        masks = {f"{name}_mask": _matrix(graph[f"{name}_masks"]) for name in ("train", "val")}
        masks["test_mask"] = _matrix(graph["test_mask"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{files[0]}: expected the official Wiki-CS files, "
            f"found {type(error).__name__} {error}; download them again"
        ) from error
    n, where = len(labels), str(files[0])
    Meter(where, "edges").rows(len(targets))
    if not len(texts) == len(lengths) == n:
        raise DataError(
            f"{where}: expected {n} texts and link lists, found {len(texts)} and {len(lengths)}; "
            "download it again"
        )
    classes = [names.get(str(i), str(i)) for i in range(int(labels.max()) + 1)]
    node_labels, schema = node_arrays.label_names(labels, classes, n, where)
    ends = ends_of(np.stack([np.repeat(np.arange(n), lengths), targets]), n, where)
    split = node_arrays.split_names(masks, n, split_index, where)
    return Incoming(
        "Wiki-CS",
        files,
        rows_of(where, id=list(map(str, range(n))), text=texts, label=node_labels, split=split),
        lambda ids: EdgeList(*ends),
        tuple(schema),
    )


def _ogbn(files: tuple[Path, ...], split_index: int) -> Incoming:
    """Read OGB's archive of node tables, and titles and abstracts joined by paper id."""
    # Before anything is unpacked.
    check_zip(files[0])
    where = str(files[0])
    with readable(files[0]):
        ends = np.stack(_member(files[0], "raw/edge.csv.gz", ("s", "t")))
        (labels,) = _member(files[0], "raw/node-label.csv.gz", ("y",))
        papers = _member(
            files[0], "mapping/nodeidx2paperid.csv.gz", ("node", "paper"), header=True
        )[1]
        n = len(labels)
        split = np.zeros(n, object)
        split[:] = ""
        for name, part in (("train", "train"), ("val", "valid"), ("test", "test")):
            split[_member(files[0], f"split/time/{part}.csv.gz", ("node",))[0]] = name
    if len(papers) != n:
        raise DataError(f"{where}: expected {n} paper ids, found {len(papers)}; download it again")
    texts = _titles(files[1], papers)
    node_labels, schema = node_arrays.label_names(labels, [], n, where)
    ids = list(map(str, range(n)))
    rows = rows_of(where, id=ids, text=texts, label=node_labels, split=split.tolist())
    checked: Ends = ends_of(ends, n, where)
    return Incoming("OGB", files, rows, lambda ids: EdgeList(*checked), tuple(schema))


def _titles(file: Path, papers: NDArray[np.int64]) -> list[str]:
    """Return title and abstract of each paper; "" for a paper that the table does not list."""
    texts = np.full(len(papers), "", object)
    order = np.argsort(papers)
    columns = {"paper": pa.string(), "title": pa.string(), "abstract": pa.string()}
    read = pa_csv.ReadOptions(column_names=list(columns), use_threads=False, block_size=2 << 20)
    # No quoting: a quotation mark in a title is part of it.
    parse = pa_csv.ParseOptions(delimiter="\t", quote_char=False)
    convert = pa_csv.ConvertOptions(column_types=columns)
    with (
        readable(file),
        pa_csv.open_csv(
            file, read_options=read, parse_options=parse, convert_options=convert
        ) as reader,
    ):
        for batch in _counted(reader, Meter(file, stored=file.stat().st_size)):
            # Drops a header line, which not every version of the file has.
            numeric = pc.match_substring_regex(batch.column("paper"), "^[0-9]{1,18}$")
            batch = batch.filter(numeric)
            ids = pc.cast(batch.column("paper"), pa.int64()).to_numpy(zero_copy_only=False)
            # The table also lists papers outside the graph: their place is clipped, and `hit` drops
            # them.
            place = np.searchsorted(papers, ids, sorter=order).clip(max=len(papers) - 1)
            hit = papers[order[place]] == ids
            joined = pc.binary_join_element_wise(
                batch.column("title"),
                batch.column("abstract"),
                pa.scalar("\n"),
                # A paper without an abstract keeps its title.
                null_handling="replace",
            )
            texts[order[place[hit]]] = joined.filter(pa.array(hit)).to_pylist()
    return texts.tolist()


def _member(
    file: Path, path: str, names: tuple[str, ...], *, header: bool = False
) -> list[NDArray[np.int64]]:
    """Return the integer columns of one gzipped table in an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            # The folder around the tables is named by the release of the archive.
            inner = next(name for name in archive.namelist() if name.endswith("/" + path))
            with (
                archive.open(inner) as member,
                pa.CompressedInputStream(pa.PythonFile(member), "gzip") as stream,
            ):
                read = pa_csv.ReadOptions(
                    column_names=list(names), skip_rows=int(header), use_threads=False
                )
                convert = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int64()))
                meter = Meter(file, "edges", stored=archive.getinfo(inner).compress_size)
                with pa_csv.open_csv(stream, read_options=read, convert_options=convert) as reader:
                    table = pa.Table.from_batches(_counted(reader, meter), reader.schema)
    except (StopIteration, zipfile.BadZipFile) as error:
        raise DataError(
            f"{file}: expected a complete archive with {path}, found none; download it again"
        ) from error
    return [table.column(name).to_numpy().astype(np.int64) for name in names]


def _counted(batches: Iterator[Any], meter: Meter) -> Iterator[Any]:
    """Yield batches of a compressed table until they pass a bound."""
    for batch in batches:
        meter.rows(len(batch))
        meter.memory(batch.nbytes)
        yield batch


def _matrix(values: Any) -> Any:
    """Return masks as a bool tensor; Wiki-CS stores one row per split."""
    import torch

    return torch.tensor(values, dtype=torch.bool)
