"""Folders that the Hugging Face `datasets` library wrote with `save_to_disk`, read with pyarrow
alone.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dance_flwr.data.tables import as_strings, join, readable, require
from dance_flwr.errors import DataError

NEIGHBOUR_COLUMNS = ("neighbors", "neighbours", "edges")
_SPLITS = {
    "train": "train",
    "validation": "val",
    "valid": "val",
    "val": "val",
    "dev": "val",
    "test": "test",
}


@dataclass(frozen=True)
class SavedDataset:
    """The Arrow files of a saved data set, in order.

    Attributes
    ----------
    folder : the saved data set
    parts : (split or "", Arrow file) in the order of the rows
    names : columns
    classes : column -> class names, where the column is a ClassLabel
    """

    folder: Path
    parts: tuple[tuple[str, Path], ...]
    names: tuple[str, ...]
    classes: dict[str, list[str]]

    def raw(self, columns: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield (split of the part, record batch) as stored."""
        require(self.names, columns, str(self.folder))
        for split, file in self.parts:
            with (
                readable(file),
                pa.OSFile(str(file)) as source,
                pa.ipc.open_stream(source) as reader,
            ):
                for batch in reader:
                    yield split, batch.select(list(columns))

    def batches(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield column name -> large_string array; a ClassLabel becomes its name, `split` may be
        the part's.

        Raises
        ------
        DataError : a column is missing, its values are no strings or numbers, or a class number has
            no name
        """
        stored = [name for name in columns if name != "split" or name in self.names]
        for part, batch in self.raw(stored):
            found = {name: self._strings(batch.column(name), name) for name in stored}
            if "split" in columns and "split" not in found:
                found["split"] = pa.repeat(pa.scalar(part, pa.large_string()), len(batch))
            yield found

    def neighbours(self, column: str, key: str) -> dict[str, Any]:
        """Return source and target ids of a column that lists the neighbours of each node."""
        sources, targets, start = [], [], 0
        for _, batch in self.raw([column, *([key] if key else [])]):
            lists = batch.column(column)
            if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
                raise DataError(
                    f"{self.folder}: expected lists of ids in {column!r}, found {lists.type}; convert it"
                )
            rows = pc.list_parent_indices(lists)
            ids = batch.column(key) if key else pa.array(np.arange(start, start + len(batch)))
            sources.append(as_strings(ids.take(rows), key, str(self.folder)))
            targets.append(as_strings(pc.list_flatten(lists), column, str(self.folder)))
            start += len(batch)
        return {"source": join(sources), "target": join(targets)}

    def _strings(self, values: Any, column: str) -> Any:
        if column not in self.classes or not pa.types.is_integer(values.type):
            return as_strings(values, column, str(self.folder))
        names = self.classes[column]
        numbers = pc.fill_null(values, -1).to_numpy(zero_copy_only=False)
        if len(numbers) and not (numbers.min() >= -1 and numbers.max() < len(names)):
            raise DataError(
                f"{self.folder}: expected labels in -1..{len(names) - 1}, as {column!r} has {len(names)} class names, "
                f"found {numbers.min()}..{numbers.max()}; mend them"
            )
        return pa.array(np.array([*names, ""], object)[numbers], pa.large_string())


def is_saved(folder: Path) -> bool:
    """Say whether a folder was written by `save_to_disk`."""
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def open_saved(folder: Path) -> SavedDataset:
    """Return the data set in a folder; the parts of a dict of data sets follow one another, as
    splits.

    Raises
    ------
    DataError : a file is missing or broken, a part's name is no split, or rows were selected but
        not written
    """
    if (folder / "dataset_dict.json").is_file():
        listed = _json(folder / "dataset_dict.json").get("splits", [])
        unknown = [name for name in listed if name not in _SPLITS]
        if unknown:
            raise DataError(
                f"{folder}: expected parts train, validation and test, found {unknown[0]!r}; rename it"
            )
        folders = [(_SPLITS[name], folder / name) for name in listed]
    else:
        folders = [("", folder)]
    parts: list[tuple[str, Path]] = []
    for split, inner in folders:
        state = _json(inner / "state.json")
        if state.get("_indices_data_files") or state.get("_indices_files"):
            raise DataError(
                f"{inner}: expected all rows in order, found an index; call flatten_indices() and save again"
            )
        names = [str(entry.get("filename", "")) for entry in state.get("_data_files", [])]
        outside = [name for name in names if Path(name).name != name]
        if outside or not names:
            raise DataError(
                f"{inner}/state.json: expected the names of Arrow files, found {outside or 'none'}; save again"
            )
        parts += [(split, inner / name) for name in names]
    if not parts:
        raise DataError(
            f"{folder}: expected at least one part, found none; save the data set again"
        )
    with (
        readable(parts[0][1]),
        pa.OSFile(str(parts[0][1])) as source,
        pa.ipc.open_stream(source) as reader,
    ):
        columns = tuple(reader.schema.names)
    return SavedDataset(
        folder, tuple(parts), columns, _classes(folders[0][1] / "dataset_info.json")
    )


def _classes(file: Path) -> dict[str, list[str]]:
    features = (_json(file) if file.is_file() else {}).get("features") or {}
    labels = {
        k: v for k, v in features.items() if isinstance(v, dict) and v.get("_type") == "ClassLabel"
    }
    return {str(k): [str(name) for name in v.get("names", [])] for k, v in labels.items()}


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file}: expected a readable JSON object, found: {reason}; save the data set again"
        ) from error
    if not isinstance(content, dict):
        raise DataError(
            f"{file}: expected a JSON object, found {type(content).__name__}; save the data set again"
        )
    return content
