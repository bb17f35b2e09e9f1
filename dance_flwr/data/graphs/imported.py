"""Imported graphs under a data root: written whole or not at all, each with a descriptive card."""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dance_flwr.data.graphs.catalogue import CATALOGUE, Dataset, graphs_folder
from dance_flwr.data.graphs.delimited import read_object
from dance_flwr.data.graphs.folder import (
    CLASSES_KEY,
    EDGE_FILES,
    NODE_FILES,
    check_ids,
    edge_table,
    split_codes,
)
from dance_flwr.data.graphs.graph import SPLIT_NAMES, csr_from_pairs
from dance_flwr.data.graphs.limits import PORTION, Meter
from dance_flwr.data.graphs.tables import join
from dance_flwr.disk import atomic_folder, write_text
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import file_sha256

COLUMNS = ("id", "text", "label", "split")
CARD = "card.json"
# Readers take a row group at a time.
_ROW_GROUP = 8 << 20  # bytes
_ROWS = 4096  # of a batch
Ends = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Incoming:
    """A graph that is being imported, with its nodes in batches.

    Attributes
    ----------
    kind : format of the files, for the card
    files : files that are read; the card lists their sha256
    rows : batches of large_string arrays, one per name in `columns`; "" means no text, no label or
        no split
    edges : takes the ids of all rows and returns the two ends of each edge as row numbers,
        [m] int64 each
    classes : classes that the source declares; empty if it declares none
    columns : names of the columns in `rows`: `COLUMNS`, then `site` if the source has sites
    """

    kind: str
    files: tuple[Path, ...]
    rows: Iterator[dict[str, Any]]
    edges: Callable[[Any], Ends]
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS


def check_name(name: str, reserved: tuple[str, ...] = ()) -> str:
    """Return the name of a graph after checking that it can name a folder.

    Raises
    ------
    DataError : other characters than letters, digits, `.`, `_` and `-`, or a name in `reserved`
    """
    # Neither a separator nor a dot in front: a name must not lead out of the folder.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise DataError(
            f"--name: expected letters, digits, '.', '_' and '-', at most 64, found {name!r}; "
            "choose another name"
        )
    if name in reserved:
        raise DataError(f"--name: {name!r} is a built-in graph; choose another name")
    return name


def save(
    incoming: Incoming, name: str, root: Path, extra: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write a graph to `<root>/graphs/<name>`, whole or not at all, and return its card.

    Parameters
    ----------
    extra : additional entries of the card

    Raises
    ------
    DataError : the graph is invalid, its counts are not those of the published graph of this name,
        or the name is in use
    """
    target = graphs_folder(root) / name
    # Never replaced: partitions may have been made of the graph of this name.
    if target.exists():
        raise DataError(f"{target} is already there; remove it or choose another --name")
    try:
        with atomic_folder(target) as draft:
            counts, classes = _write(incoming, draft)
            published = CATALOGUE.get(name)
            if published:
                # Inside the draft: a graph with other counts is never stored.
                published.check(counts)
            card = {
                "name": name,
                "kind": incoming.kind,
                "files": {file.name: file_sha256(file) for file in incoming.files},
                "tables": {
                    file: file_sha256(draft / file) for file in (NODE_FILES[0], EDGE_FILES[0])
                },
                "counts": counts,
                "class_names": classes,
                "split": {"official": bool(published and published.official), **_shares(published)},
                "inductive": bool(published and published.inductive),
                "licence": published.licence if published else "not known here",
                **(extra or {}),
            }
            text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"  # readable class names
            write_text(draft / CARD, text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"{target}: expected a writable folder with room, found: {reason}; "
            "free some space, choose another data root or change its owner (chown)"
        ) from error
    return card


def read_card(folder: Path) -> dict[str, Any]:
    """Return the card of an imported graph; empty for a folder without one.

    Raises
    ------
    DataError : the card cannot be read
    """
    file = folder / CARD
    return read_object(file, "a graph's card", "import the graph again") if file.is_file() else {}


def _shares(published: Dataset | None) -> dict[str, float]:
    return dict(zip(SPLIT_NAMES[1:], published.split, strict=True)) if published else {}


def _write(incoming: Incoming, folder: Path) -> tuple[dict[str, int], list[str]]:
    """Write both tables; return the counts and the class names."""
    counts = dict.fromkeys(("nodes", "empty_texts", "characters"), 0)
    columns: dict[str, list[Any]] = {"id": [], "label": [], "split": []}
    pending: list[Any] = []
    schema = pa.schema([(name, pa.string()) for name in incoming.columns])
    schema = schema.with_metadata({CLASSES_KEY: json.dumps(sorted(incoming.classes)).encode()})
    # Texts rarely repeat, so a dictionary of them would only be a second copy.
    with pq.ParquetWriter(
        folder / NODE_FILES[0], schema, use_dictionary=["label", *incoming.columns[3:]]
    ) as writer:
        for batch in incoming.rows:
            counts["nodes"] += len(batch["id"])
            counts["empty_texts"] += (
                pc.sum(pc.equal(pc.utf8_trim_whitespace(batch["text"]), "")).as_py() or 0
            )
            counts["characters"] += pc.sum(pc.utf8_length(batch["text"])).as_py() or 0
            for name, parts in columns.items():
                parts.append(batch[name])
            pending.append(
                pa.table([_stored(name, batch[name]) for name in incoming.columns], schema=schema)
            )
            if sum(table.nbytes for table in pending) > _ROW_GROUP:
                writer.write_table(pa.concat_tables(pending))
                pending = []
        if pending:
            writer.write_table(pa.concat_tables(pending))
    where = str(incoming.files[0])
    ids = check_ids(join(columns["id"]), where)
    split = np.bincount(split_codes(join(columns["split"]), where), minlength=len(SPLIT_NAMES))
    counts |= {f"{name}_nodes": int(split[i]) for i, name in enumerate(SPLIT_NAMES) if name}
    labels = join(columns["label"])
    classes = sorted({*incoming.classes, *pc.unique(labels).to_pylist()} - {""})
    counts |= {
        "classes": len(classes),
        "labelled": int(pc.sum(pc.not_equal(labels, "")).as_py() or 0),
    }
    counts |= _write_edges(incoming.edges(ids), ids, folder / EDGE_FILES[0])
    if counts["empty_texts"]:
        warnings.warn(
            f"{where}: {counts['empty_texts']} of {counts['nodes']} nodes have an empty text; "
            "they are kept",
            stacklevel=3,
        )
    return counts, classes


def _stored(name: str, values: Any) -> Any:
    """Return a column as it is stored; a missing label or split is null."""
    values = pc.cast(values, pa.string())
    return pc.if_else(pc.equal(values, ""), None, values) if name in ("label", "split") else values


def _write_edges(ends: Ends, ids: Any, file: Path) -> dict[str, int]:
    """Write each undirected edge once; return the numbers of edges, arcs and self loops."""
    source, target = ends
    n = len(ids)
    loops = len(np.unique(source[source == target]))
    # One number per arc: n is at most 10^8 by default, so n^2 fits into int64.
    arcs = len(np.unique((source * n + target)[source != target]))
    indptr, indices = csr_from_pairs(source, target, n)
    pq.write_table(edge_table(pc.cast(ids, pa.string()), indptr, indices), file)
    return {
        "edges": len(indices) // 2,
        "directed_edges": len(indices),
        "arcs": arcs,
        "self_loops": loops,
    }


def ends_of(edge_index: NDArray[np.int64], num_nodes: int, where: str) -> Ends:
    """Return the two rows of an edge list [2, m] after checking their node numbers.

    Raises
    ------
    DataError : an end lies outside 0..num_nodes-1
    """
    if edge_index.size and not (edge_index.min() >= 0 and edge_index.max() < num_nodes):
        raise DataError(
            f"{where}: expected edges between nodes 0..{num_nodes - 1}, "
            f"found {edge_index.min()}..{edge_index.max()}; correct the edges"
        )
    return edge_index[0], edge_index[1]


def rows_of(
    meter: Meter, ids: list[str], texts: list[str], labels: list[str], split: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield batches of nodes that are already in memory, short where texts are long.

    A list may hold one long text many times, which takes no memory before it is written.

    Raises
    ------
    DataError : a string is not valid Unicode, or the nodes pass a bound
    """
    columns = dict(zip(COLUMNS, (ids, texts, labels, split), strict=True))
    lengths = [np.fromiter(map(len, values), np.int64, len(values)) for values in columns.values()]
    meter.rows(len(ids))
    for values in lengths:
        meter.characters(int(values.max(initial=0)))
    ends = np.cumsum(sum(lengths))
    meter.memory(int(ends[-1]) if len(ends) else 0)
    start = 0
    while start < len(ids):
        # A character has up to four bytes in UTF-8.
        full = np.searchsorted(ends, (ends[start - 1] if start else 0) + PORTION // 4)
        stop = min(start + _ROWS, max(start + 1, int(full)))
        try:
            yield {
                name: pa.array(values[start:stop], pa.large_string())
                for name, values in columns.items()
            }
        except UnicodeEncodeError as error:
            raise DataError(
                f"nodes {start + 1} to {stop}: expected Unicode text, "
                f"found half a character ({error.reason}); correct the text"
            ) from error
        start = stop
