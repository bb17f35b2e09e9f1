"""`data import`: find out what a user's files are, and store their graph under a name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dance_flwr.data import networks, pickles
from dance_flwr.data.catalogue import CATALOGUE
from dance_flwr.data.folder import EDGE_FILES, NODE_FILES, declared_classes, edge_ends, find
from dance_flwr.data.imported import COLUMNS, Incoming, check_name, save
from dance_flwr.data.layouts import read_layout
from dance_flwr.data.saved_datasets import NEIGHBOUR_COLUMNS, SavedDataset, is_saved, open_saved
from dance_flwr.data.tables import Table
from dance_flwr.errors import DataError

_ENDS = (("source", "target"), ("src", "dst"), ("from", "to"), ("head", "tail"), ("u", "v"))
_TABLES = (".parquet", ".csv", ".jsonl")
_KNOWN = "a folder with nodes.* and edges.*, a node and an edge table, .pt, .graphml, .json, or a saved data set"


@dataclass(frozen=True)
class Options:
    """How columns are called; empty for the usual names. `text` may name several, joined by a
    newline.
    """

    text: str = ""
    label: str = ""
    id: str = ""
    split_index: int = 0


def import_graph(
    paths: Sequence[Path],
    name: str,
    root: Path,
    options: Options = Options(),
    taken: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Store the graph in these files as `<root>/graphs/<name>` and return its card.

    Parameters
    ----------
    paths : one folder or file, or a node table and an edge table
    name : what the graph is called; that of a published graph asks for that graph's counts
    taken : names that may not be used

    Raises
    ------
    DataError : the files are refused; then nothing is left behind
    """
    check_name(name, taken)
    paths = [path.expanduser() for path in paths]
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: expected {_KNOWN}, found nothing there; check the path")
    return save(recognise(paths, name, options), name, root)


def recognise(paths: Sequence[Path], name: str, options: Options) -> Incoming:
    """Return the graph in these files, by what they are.

    Raises
    ------
    DataError : they are nothing that can be read
    """
    if len(paths) == 2 and all(path.suffix in _TABLES and path.is_file() for path in paths):
        return _table_pair(paths[0], paths[1], options)
    if len(paths) != 1:
        raise DataError(
            f"expected one path, or a node table and an edge table, found {len(paths)} paths; see --help"
        )
    path = paths[0]
    if path.is_dir():
        published = CATALOGUE.get(name)
        if published and all((path / file.name).is_file() for file in published.files):
            return read_layout(published, path, options.split_index)
        if is_saved(path):
            return _saved(open_saved(path), options)
        return _table_pair(find(path, NODE_FILES), find(path, EDGE_FILES), options)
    if path.suffix in (".pt", ".pth"):
        return pickles.pyg_graph(path, options.split_index, text=options.text, label=options.label)
    if path.suffix == ".graphml":
        if options.id:
            raise DataError(
                f"{path}: expected no --id, as GraphML has ids of its own, found {options.id!r}; leave it out"
            )
        return networks.graphml(path, options.text or "text", options.label or "label")
    if path.suffix == ".json":
        return networks.node_link(
            path, options.text or "text", options.label or "label", options.id or "id"
        )
    raise DataError(
        f"{path}: expected {_KNOWN}, found a file ending in {path.suffix!r}; convert it"
    )


def _table_pair(nodes_file: Path, edges_file: Path, options: Options) -> Incoming:
    """Return the graph of a node table and an edge table."""
    nodes = Table(nodes_file)

    def edges(ids: Any) -> Any:
        return edge_ends(_read_ends(edges_file), ids, str(edges_file), str(nodes_file))

    columns = (*COLUMNS, "site") if "site" in nodes.names else COLUMNS
    rows = _rows(nodes, options, columns=columns)
    return Incoming(
        "tables", (nodes_file, edges_file), rows, edges, declared_classes(nodes.metadata), columns
    )


def _saved(source: SavedDataset, options: Options) -> Incoming:
    """Return the graph of a saved data set with an edge table beside it or a column of neighbours."""
    key = options.id or ("id" if "id" in source.names else "")
    beside = [source.folder / name for name in EDGE_FILES if (source.folder / name).is_file()]
    column = next((name for name in NEIGHBOUR_COLUMNS if name in source.names), "")
    if not beside and not column:
        raise DataError(
            f"{source.folder}: expected edges.parquet or edges.csv, or a column {NEIGHBOUR_COLUMNS[0]!r} with "
            f"the ids of each node's neighbours, found neither; add one"
        )
    where = str(source.folder)

    def edges(ids: Any) -> Any:
        if beside:
            return edge_ends(_read_ends(beside[0]), ids, str(beside[0]), where)
        return edge_ends(source.neighbours(column, key), ids, where, where)

    classes = tuple(source.classes.get(options.label or "label", ()))
    files = (*(file for _, file in source.parts), *beside[:1])
    return Incoming(
        "saved data set", files, _rows(source, options, numbered=not key), edges, classes
    )


def _rows(
    table: Table | SavedDataset,
    options: Options,
    *,
    numbered: bool = False,
    columns: tuple[str, ...] = COLUMNS,
) -> Iterator[dict[str, Any]]:
    """Yield the batches of `columns`; without a split column none is split, and ids may be the row
    numbers.
    """
    texts = options.text.split(",") if options.text else ["text"]
    key, label = options.id or "id", options.label or "label"
    is_split = "split" in table.names or isinstance(table, SavedDataset)
    asked = dict.fromkeys(
        [
            *([] if numbered else [key]),
            *texts,
            label,
            *(["split"] if is_split else []),
            *columns[len(COLUMNS) :],
        ]
    )
    start = 0
    for batch in table.batches(list(asked)):
        size = len(batch[label])
        row = {"text": _joined([batch[name] for name in texts]), "label": batch[label]}
        row["id"] = (
            pa.array(map(str, range(start, start + size)), pa.large_string())
            if numbered
            else batch[key]
        )
        row["split"] = (
            batch["split"] if is_split else pa.repeat(pa.scalar("", pa.large_string()), size)
        )
        row |= {name: batch[name] for name in columns[len(COLUMNS) :]}
        start += size
        yield {name: row[name] for name in columns}


def _joined(texts: list[Any]) -> Any:
    return (
        texts[0]
        if len(texts) == 1
        else pc.binary_join_element_wise(*texts, pa.scalar("\n", pa.large_string()))
    )


def _read_ends(file: Path) -> dict[str, Any]:
    """Return the two id columns of an edge table under one of their usual names, as source and
    target.
    """
    table = Table(file)
    pair = next((ends for ends in _ENDS if set(ends) <= set(table.names)), _ENDS[0])
    columns = table.read(pair)
    return {"source": columns[pair[0]], "target": columns[pair[1]]}
