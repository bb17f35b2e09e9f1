"""`data import`: recognise the format of a user's files and store their graph under a name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dance_flwr.data.graphs import networks, pickles
from dance_flwr.data.graphs.catalogue import CATALOGUE
from dance_flwr.data.graphs.folder import (
    EDGE_FILES,
    NODE_FILES,
    declared_classes,
    edge_ends,
    find_table,
)
from dance_flwr.data.graphs.imported import COLUMNS, Incoming, check_name, save
from dance_flwr.data.graphs.layouts import read_layout
from dance_flwr.data.graphs.saved_datasets import (
    NEIGHBOUR_COLUMNS,
    SavedDataset,
    is_saved,
    open_saved,
)
from dance_flwr.data.graphs.tables import Table
from dance_flwr.errors import DataError

_ENDS = (("source", "target"), ("src", "dst"), ("from", "to"), ("head", "tail"), ("u", "v"))
_TABLES = (".parquet", ".csv", ".jsonl")
_KNOWN = (
    "a folder with nodes.* and edges.*, a node and an edge table, .pt, .graphml, .json, "
    "or a saved data set"
)


@dataclass(frozen=True)
class Options:
    """Column names, empty for the usual ones, and the split to use.

    Attributes
    ----------
    text : one column, or several separated by commas, whose texts are joined by newlines
    label, id : columns of the labels and of the node ids
    split_index : index of the split if there are several masks
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
    reserved: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Store the graph in these files as `<root>/graphs/<name>` and return its card.

    Parameters
    ----------
    paths : one folder or file, or a node table and an edge table
    name : name of the graph; under a published graph's name, the counts must be those of the paper
    reserved : names that may not be used

    Raises
    ------
    DataError : the files are invalid; nothing is stored
    """
    check_name(name, reserved)
    paths = [path.expanduser() for path in paths]
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: expected {_KNOWN}, found nothing there; check the path")
    return save(recognise(paths, name, options), name, root)


def recognise(paths: Sequence[Path], name: str, options: Options) -> Incoming:
    """Return the graph in these files, read according to their format.

    Raises
    ------
    DataError : the format is unknown
    """
    if len(paths) == 2 and all(path.suffix in _TABLES and path.is_file() for path in paths):
        return _table_pair(paths[0], paths[1], options)
    if len(paths) != 1:
        raise DataError(
            "expected one path, or a node table and an edge table, "
            f"found {len(paths)} paths; see --help"
        )
    path = paths[0]
    if path.is_dir():
        published = CATALOGUE.get(name)
        if published and all((path / file.name).is_file() for file in published.files):
            return read_layout(published, path, options.split_index)
        # Before tables, as a saved data set may have a table of edges beside it.
        if is_saved(path):
            return _saved(open_saved(path), options)
        return _table_pair(find_table(path, NODE_FILES), find_table(path, EDGE_FILES), options)
    if path.suffix in (".pt", ".pth"):
        return pickles.pyg_graph(path, options.split_index, text=options.text, label=options.label)
    if path.suffix == ".graphml":
        if options.id:
            raise DataError(
                f"{path}: expected no --id, as GraphML has its own ids, found {options.id!r}; "
                "omit it"
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
    classes = declared_classes(nodes.metadata, str(nodes_file))
    return Incoming("tables", (nodes_file, edges_file), rows, edges, classes, columns)


def _saved(source: SavedDataset, options: Options) -> Incoming:
    """Return the graph of a saved data set with an edge table or a column of neighbours."""
    key = options.id or ("id" if "id" in source.names else "")
    edge_tables = [source.folder / name for name in EDGE_FILES if (source.folder / name).is_file()]
    column = next((name for name in NEIGHBOUR_COLUMNS if name in source.names), "")
    if not edge_tables and not column:
        raise DataError(
            f"{source.folder}: expected edges.parquet or edges.csv, or a column "
            f"{NEIGHBOUR_COLUMNS[0]!r} with the ids of each node's neighbours, found neither; "
            "add one"
        )
    where = str(source.folder)

    def edges(ids: Any) -> Any:
        if edge_tables:
            return edge_ends(_read_ends(edge_tables[0]), ids, str(edge_tables[0]), where)
        return edge_ends(source.neighbours(column, key), ids, where, where)

    classes = tuple(source.classes.get(options.label or "label", ()))
    files = (*(file for _, file in source.parts), *edge_tables[:1])
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
    """Yield the batches of `columns`; without a split column no node has a split.

    Parameters
    ----------
    numbered : whether the ids are the row numbers
    """
    texts = options.text.split(",") if options.text else ["text"]
    key, label = options.id or "id", options.label or "label"
    # The parts of a saved data set are its split, with or without a column.
    is_split = "split" in table.names or isinstance(table, SavedDataset)
    # Each column once: --text may name that of the labels, too.
    sources = dict.fromkeys(
        [
            *([] if numbered else [key]),
            *texts,
            label,
            *(["split"] if is_split else []),
            *columns[len(COLUMNS) :],
        ]
    )
    start = 0
    for batch in table.batches(list(sources)):
        size = len(batch[label])
        row = {"text": _join_texts([batch[name] for name in texts]), "label": batch[label]}
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


def _join_texts(texts: list[Any]) -> Any:
    return (
        texts[0]
        if len(texts) == 1
        else pc.binary_join_element_wise(*texts, pa.scalar("\n", pa.large_string()))
    )


def _read_ends(file: Path) -> dict[str, Any]:
    """Return the columns `source` and `target` of an edge table, which may have other names."""
    table = Table(file, "edges")
    pair = next((ends for ends in _ENDS if set(ends) <= set(table.names)), _ENDS[0])
    columns = table.read(pair)
    return {"source": columns[pair[0]], "target": columns[pair[1]]}
