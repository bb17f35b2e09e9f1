"""Imported graphs under a data root: written in one go or not at all, each with a card that says
what it is.
"""

import json
import os
import re
import shutil
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

from dance_flwr.data.catalogue import CATALOGUE
from dance_flwr.data.folder import (
    CLASSES_KEY,
    EDGE_FILES,
    NODE_FILES,
    check_ids,
    file_sha256,
    split_codes,
)
from dance_flwr.data.graph import SPLIT_NAMES, csr_from_pairs
from dance_flwr.data.tables import join
from dance_flwr.errors import DataError

COLUMNS = ("id", "text", "label", "split")
CARD = "card.json"
_ROW_GROUP = 8 << 20  # bytes
Ends = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Incoming:
    """A graph on its way in; its texts pass by in batches.

    Attributes
    ----------
    kind : what the files are, for the card
    files : the files it is read from; their sha256 go into the card
    rows : batches of large_string arrays, one per name in `columns`; "" is no text, no label, no
        split
    edges : gives the ends of each edge as rows, [m] int64 each, once the ids of all rows are known
    classes : the declared classes, where the source declares them
    columns : names of the columns in `rows`: `COLUMNS`, and `site` where the source says who holds
        a node
    """

    kind: str
    files: tuple[Path, ...]
    rows: Iterator[dict[str, Any]]
    edges: Callable[[Any], Ends]
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS


def graphs_folder(root: Path) -> Path:
    """Return where imported graphs live."""
    return root / "graphs"


def check_name(name: str, taken: tuple[str, ...] = ()) -> str:
    """Return the name if a folder may bear it.

    Raises
    ------
    DataError : other characters than letters, digits, `.`, `_` and `-`, or a name in `taken`
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise DataError(
            f"--name: expected letters, digits, '.', '_' and '-', at most 64, found {name!r}; choose another"
        )
    if name in taken:
        raise DataError(f"--name: {name!r} is a built-in graph; choose another name")
    return name


def save(
    incoming: Incoming, name: str, root: Path, extra: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write a graph to `<root>/graphs/<name>` and return its card.

    Everything is written to a temporary folder first, which is then renamed: nothing is ever half
    there.

    Parameters
    ----------
    extra : further entries of the card

    Raises
    ------
    DataError : the graph is refused, its counts are not those of the published graph of this name,
        or the name is in use
    """
    target = graphs_folder(root) / name
    if target.exists():
        raise DataError(f"{target} is already there; remove it or choose another --name")
    ready = target.with_name(f".{name}.{os.getpid()}.tmp")
    shutil.rmtree(ready, ignore_errors=True)
    try:
        ready.mkdir(parents=True)
        counts, classes = _write(incoming, ready)
        published = CATALOGUE.get(name)
        if published:
            published.check(counts)
        card = {
            "name": name,
            "kind": incoming.kind,
            "files": {file.name: file_sha256(file) for file in incoming.files},
            "tables": {file: file_sha256(ready / file) for file in (NODE_FILES[0], EDGE_FILES[0])},
            "counts": counts,
            "class_names": classes,
            "split": {"official": bool(published and published.official), **_shares(published)},
            "inductive": bool(published and published.inductive),
            "licence": published.licence if published else "not known here",
            **(extra or {}),
        }
        (ready / CARD).write_text(
            json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        ready.rename(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"{target}: expected a folder that can be written, found: {reason}; mend it"
        ) from error
    finally:
        shutil.rmtree(ready, ignore_errors=True)
    return card


def read_card(folder: Path) -> dict[str, Any]:
    """Return the card of an imported graph; empty for a folder without one."""
    try:
        card: dict[str, Any] = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder / CARD}: expected a readable card, found: {error}; import the graph again"
        ) from error
    return card


def _shares(published: Any) -> dict[str, Any]:
    return dict(zip(SPLIT_NAMES[1:], published.split, strict=True)) if published else {}


def _write(incoming: Incoming, folder: Path) -> tuple[dict[str, int], list[str]]:
    """Write both tables and return what was counted and the class names."""
    counts = dict.fromkeys(("nodes", "empty_texts", "characters"), 0)
    kept: dict[str, list[Any]] = {"id": [], "label": [], "split": []}
    waiting: list[Any] = []
    schema = pa.schema([(name, pa.string()) for name in incoming.columns])
    schema = schema.with_metadata({CLASSES_KEY: json.dumps(sorted(incoming.classes)).encode()})
    # texts hardly ever repeat: a dictionary of them would only be a second copy
    with pq.ParquetWriter(
        folder / NODE_FILES[0], schema, use_dictionary=["label", *incoming.columns[3:]]
    ) as writer:
        for batch in incoming.rows:
            counts["nodes"] += len(batch["id"])
            counts["empty_texts"] += (
                pc.sum(pc.equal(pc.utf8_trim_whitespace(batch["text"]), "")).as_py() or 0
            )
            counts["characters"] += pc.sum(pc.utf8_length(batch["text"])).as_py() or 0
            for name, parts in kept.items():
                parts.append(batch[name])
            waiting.append(
                pa.table([_stored(name, batch[name]) for name in incoming.columns], schema=schema)
            )
            if sum(table.nbytes for table in waiting) > _ROW_GROUP:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting))
    where = str(incoming.files[0])
    ids = check_ids(join(kept["id"]), where)
    split = np.bincount(split_codes(join(kept["split"]), where), minlength=len(SPLIT_NAMES))
    counts |= {f"{name}_nodes": int(split[i]) for i, name in enumerate(SPLIT_NAMES) if name}
    labels = join(kept["label"])
    classes = sorted({*incoming.classes, *pc.unique(labels).to_pylist()} - {""})
    counts |= {
        "classes": len(classes),
        "labelled": int(pc.sum(pc.not_equal(labels, "")).as_py() or 0),
    }
    counts |= _write_edges(incoming.edges(ids), ids, folder / EDGE_FILES[0])
    if counts["empty_texts"]:
        warnings.warn(
            f"{where}: {counts['empty_texts']} of {counts['nodes']} nodes have an empty text; they are kept",
            stacklevel=3,
        )
    return counts, classes


def _stored(name: str, values: Any) -> Any:
    """Return the column as it is stored: no label and no split are null."""
    values = pc.cast(values, pa.string())
    return pc.if_else(pc.equal(values, ""), None, values) if name in ("label", "split") else values


def _write_edges(ends: Ends, ids: Any, file: Path) -> dict[str, int]:
    """Write each undirected edge once and return the counts of edges, published arcs and self
    loops.
    """
    source, target = ends
    n = len(ids)
    loops = len(np.unique(source[source == target]))
    arcs = len(np.unique((source * n + target)[source != target]))
    indptr, indices = csr_from_pairs(source, target, n)
    rows = np.repeat(np.arange(n), np.diff(indptr))
    once = rows < indices
    names = pc.cast(ids, pa.string())
    pq.write_table(
        pa.table(
            {
                "source": names.take(pa.array(rows[once])),
                "target": names.take(pa.array(indices[once])),
            }
        ),
        file,
    )
    return {
        "edges": len(indices) // 2,
        "directed_edges": len(indices),
        "arcs": arcs,
        "self_loops": loops,
    }


def ends_of(edge_index: NDArray[np.int64], num_nodes: int, where: str) -> Ends:
    """Return the two rows of an edge list [2, m] after checking that they name nodes.

    Raises
    ------
    DataError : an end lies outside 0..num_nodes-1
    """
    if edge_index.size and not (edge_index.min() >= 0 and edge_index.max() < num_nodes):
        raise DataError(
            f"{where}: expected edges between nodes 0..{num_nodes - 1}, "
            f"found {edge_index.min()}..{edge_index.max()}; mend the edges"
        )
    return edge_index[0], edge_index[1]


def rows_of(
    ids: list[str], texts: list[str], labels: list[str], split: list[str], size: int = 4096
) -> Any:
    """Yield batches of nodes that are in memory already."""
    for start in range(0, len(ids), size):
        part = slice(start, start + size)
        columns = zip(COLUMNS, (ids[part], texts[part], labels[part], split[part]), strict=True)
        try:
            yield {name: pa.array(values, pa.large_string()) for name, values in columns}
        except UnicodeEncodeError as error:
            raise DataError(
                f"nodes {start + 1} to {start + len(ids[part])}: expected Unicode text, found half a character "
                f"({error.reason}); mend the text"
            ) from error
