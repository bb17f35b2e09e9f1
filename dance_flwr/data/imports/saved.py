"""Data sets that `datasets` saves in a folder."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dance_flwr.data.graphs.tables import Table, readable, require
from dance_flwr.data.imports.layouts import LAYOUTS, GraphFile
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.records import fault, read_object, unused
from dance_flwr.data.imports.tables import Piece, open_table, read_pieces
from dance_flwr.data.imports.torch_files import label_names
from dance_flwr.errors import DataError, unknown

_EDGE_FILES = ("edges.parquet", "edges.csv")
_AGAIN = "save the data set again"


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by `save_to_disk` of `datasets`."""
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def read_saved_dataset(folder: Path, options: Options = DEFAULTS) -> GraphFile:
    """Return the graph of a saved data set with an edge table or a column of neighbours.

    Ids are row numbers where there is no column `id`. The parts of the data set are its split. The
    classes are those of the column `label`, or of the only one that declares classes.
    """
    try:
        parts = _parts(folder)
        classes = _classes(parts[0][1].parent)
    except (TypeError, AttributeError) as error:  # JSON of another shape
        raise fault(folder, "the JSON files of a saved data set", error, _AGAIN) from error
    with readable(parts[0][1]), pa.ipc.open_stream(str(parts[0][1])) as reader:
        names = list(reader.schema.names)
    number = "" if options.id or "id" in names else unused("row", names)
    split = "split" if any(split for split, _ in parts) and "split" not in names else ""

    def record_batches(columns: list[str]) -> Iterator[Any]:
        start = 0
        for part, file in parts:
            with readable(file), pa.ipc.open_stream(str(file)) as reader:
                # The parts of a foreign folder may have other columns each.
                stored = [name for name in columns if name not in (number, split)]
                require(reader.schema.names, stored, str(file))
                for batch in reader:
                    batch.validate(full=True)
                    arrays = {n: _named(batch.column(n), classes.get(n), folder, n) for n in stored}
                    arrays[number] = pa.array(range(start, start + len(batch)), pa.int64())
                    arrays[split] = pa.repeat(pa.scalar(part, pa.string()), len(batch))
                    start += len(batch)
                    yield pa.record_batch({name: arrays[name] for name in columns})

    every = [*filter(None, [number]), *names, *filter(None, [split])]
    roles = {"id": options.id or number or "id"} | ({"split": "split"} if "split" in every else {})
    if "label" in classes or len(classes) == 1:
        roles["label"] = "label" if "label" in classes else next(iter(classes))
    pieces = [Piece("nodes", folder, "nodes", Table(str(folder), every, record_batches))]
    files = [file for _, file in parts]
    table = next((folder / name for name in _EDGE_FILES if (folder / name).is_file()), None)
    if table and not options.edges_from:
        pieces.append(Piece("edges", table, "edges", open_table(table, options)))
        files.append(table)
    declared = tuple(classes.get(roles.get("label", ""), []))
    graph = read_pieces(pieces, options, roles=roles)
    return replace(graph, kind="saved data set", files=tuple(files), classes=declared)


def _parts(folder: Path) -> list[tuple[str, Path]]:
    """Return (split or "", Arrow file) in order."""
    folders = [("", folder)]
    if (folder / "dataset_dict.json").is_file():
        content = read_object(folder / "dataset_dict.json", "a JSON object", _AGAIN)
        names = content.get("splits", [])
        if strange := [name for name in names if name not in LAYOUTS["splits"]]:
            raise DataError(unknown(f"{folder}: parts", strange, LAYOUTS["splits"]))
        folders = [(LAYOUTS["splits"][name], folder / name) for name in names]
    parts: list[tuple[str, Path]] = []
    for split, inner in folders:
        state = read_object(inner / "state.json", "a JSON object", _AGAIN)
        # An index selects and orders rows, which the Arrow files alone do not show.
        if state.get("_indices_data_files") or state.get("_indices_files"):
            advice = "call flatten_indices() and save again"
            raise fault(inner, "all rows in order", "an index", advice)
        names = [str(entry.get("filename", "")) for entry in state.get("_data_files", [])]
        # A name with a separator would read a file outside the folder.
        outside = [name for name in names if Path(name).name != name]
        if outside or not names:
            found = outside or "none"
            raise fault(inner / "state.json", "the names of Arrow files", found, _AGAIN)
        parts += [(split, inner / name) for name in names]
    if not parts:
        raise fault(folder, "at least one part", "none", _AGAIN)
    return parts


def _classes(folder: Path) -> dict[str, list[str]]:
    """Return the class names of each column that declares some."""
    info = folder / "dataset_info.json"
    content = read_object(info, "a JSON object", _AGAIN) if info.is_file() else {}
    return {
        str(column): [str(name) for name in feature.get("names", [])]
        for column, feature in (content.get("features") or {}).items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }


def _named(values: Any, names: list[str] | None, folder: Path, column: str) -> Any:
    """Return a column of class numbers as their names; -1 and null are a missing class."""
    if names is None or not pa.types.is_integer(values.type):
        return values
    numbers = pc.fill_null(values, -1).to_numpy(zero_copy_only=False)
    return pa.array(label_names(numbers, names, f"{folder}: {column!r}"), pa.large_string())
