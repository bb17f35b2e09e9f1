"""Folders written by `save_to_disk` of the Hugging Face `datasets` library, read with pyarrow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dance_flwr.data.graphs.limits import Meter
from dance_flwr.data.graphs.tables import (
    as_strings,
    counted,
    join,
    portions,
    readable,
    require,
    require_values,
)
from dance_flwr.data.imports.arrow_files import is_compressed
from dance_flwr.data.imports.json_files import read_object
from dance_flwr.errors import DataError, unknown

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
    folder : folder of the saved data set
    parts : (split or "", Arrow file) in the order of the rows
    names : names of the columns
    classes : ClassLabel column -> class names
    """

    folder: Path
    parts: tuple[tuple[str, Path], ...]
    names: tuple[str, ...]
    classes: dict[str, list[str]]

    def raw(self, columns: Sequence[str], meter: Meter) -> Iterator[tuple[str, Any]]:
        """Yield (split of the part, record batch) as stored, after checking all its offsets."""
        require(self.names, columns, str(self.folder))
        for split, file in self.parts:
            with readable(file):
                # Nothing in it is compressed, so the size of the file is that of its batches.
                meter.memory(file.stat().st_size, declared=True)
                # Its parts would declare any size; the `datasets` library compresses none.
                if is_compressed(file):
                    raise DataError(
                        f"{file}: expected record batches without compression, as `save_to_disk` "
                        "writes them, found compressed ones; save the data set again"
                    )
                with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
                    # The parts of a foreign folder may have other columns each.
                    require(reader.schema.names, columns, str(file))
                    for batch in reader:
                        meter.rows(len(batch), declared=True)
                        # Offsets in a foreign file may point anywhere.
                        batch.validate(full=True)
                        yield split, batch.select(list(columns))

    def batches(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield column name -> large_string array, with the names of a ClassLabel.

        Without a column `split`, the split is that of the part.
        """
        stored = [name for name in columns if name != "split" or name in self.names]
        where, meter = str(self.folder), Meter(self.folder)
        for split, batch in self.raw(stored, meter):
            named = {name: self._named(batch.column(name), name) for name in stored}
            for name, values in named.items():
                require_values(values.type, name, where)
            for part in portions(pa.record_batch(named)):
                texts = {name: as_strings(part.column(name), name, where) for name in stored}
                if "split" in columns and "split" not in texts:
                    texts["split"] = pa.repeat(pa.scalar(split, pa.large_string()), len(part))
                yield counted(texts, meter)

    def neighbours(self, column: str, key: str) -> dict[str, Any]:
        """Return source and target ids from a column that lists the neighbours of each node."""
        sources, targets, start = [], [], 0
        where, meter = str(self.folder), Meter(self.folder, "edges")
        for _, batch in self.raw([column, *([key] if key else [])], Meter(self.folder)):
            lists = batch.column(column)
            if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
                raise DataError(
                    f"{where}: expected lists of ids in {column!r}, found {lists.type!s:.80}; "
                    "convert it"
                )
            require_values(lists.type.value_type, column, where)
            rows = pc.list_parent_indices(lists)
            meter.rows(len(rows), declared=True)
            ids = batch.column(key) if key else pa.array(np.arange(start, start + len(batch)))
            require_values(ids.type, key, where)
            ids = as_strings(ids, key, where)
            # An id is repeated once per neighbour: measured before `take` makes the repetitions.
            meter.memory(pc.sum(pc.binary_length(ids).take(rows)).as_py() or 0, declared=True)
            ends = {"source": ids.take(rows)}
            ends["target"] = as_strings(pc.list_flatten(lists), column, where)
            counted(ends, meter)
            sources.append(ends["source"])
            targets.append(ends["target"])
            start += len(batch)
        return {"source": join(sources), "target": join(targets)}

    def _named(self, values: Any, column: str) -> Any:
        """Return a column of class numbers as a dictionary of their names."""
        if column not in self.classes or not pa.types.is_integer(values.type):
            return values
        names = self.classes[column]
        # The `datasets` library also writes -1 for a missing class.
        numbers = pc.fill_null(values, -1).to_numpy(zero_copy_only=False)
        if len(numbers) and not (numbers.min() >= -1 and numbers.max() < len(names)):
            raise DataError(
                f"{self.folder}: expected labels in -1..{len(names) - 1}, as {column!r} has "
                f"{len(names)} class names, found {numbers.min()}..{numbers.max()}; correct them"
            )
        codes = pa.array(numbers.astype(np.int64), mask=numbers < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.large_string()))


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by `save_to_disk`."""
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def open_saved(folder: Path) -> SavedDataset:
    """Return the data set in a folder; the parts of a `DatasetDict` become its splits.

    Raises
    ------
    DataError : a file is missing or damaged, the name of a part is not that of a split, or the data
        set was saved with a selection of rows
    """
    try:
        parts, classes = _parts(folder)
    except (TypeError, AttributeError) as error:  # JSON of another shape
        raise DataError(
            f"{folder}: expected the JSON files of a saved data set, found others ({error}); "
            "save the data set again"
        ) from error
    with (
        readable(parts[0][1]),
        pa.OSFile(str(parts[0][1])) as source,
        pa.ipc.open_stream(source) as reader,
    ):
        columns = tuple(reader.schema.names)
    return SavedDataset(folder, tuple(parts), columns, classes)


def _parts(folder: Path) -> tuple[list[tuple[str, Path]], dict[str, list[str]]]:
    """Return (split or "", Arrow file) in order, and ClassLabel column -> class names."""
    if (folder / "dataset_dict.json").is_file():
        listed = _json(folder / "dataset_dict.json").get("splits", [])
        if strange := [name for name in listed if name not in _SPLITS]:
            raise DataError(unknown(f"{folder}: parts", strange, _SPLITS))
        folders = [(_SPLITS[name], folder / name) for name in listed]
    else:
        folders = [("", folder)]
    parts: list[tuple[str, Path]] = []
    for split, inner in folders:
        state = _json(inner / "state.json")
        # An index selects and orders rows, which the Arrow files alone do not show.
        if state.get("_indices_data_files") or state.get("_indices_files"):
            raise DataError(
                f"{inner}: expected all rows in order, found an index; "
                "call flatten_indices() and save again"
            )
        names = [str(entry.get("filename", "")) for entry in state.get("_data_files", [])]
        # A name with a separator would read a file outside the folder.
        outside = [name for name in names if Path(name).name != name]
        if outside or not names:
            raise DataError(
                f"{inner}/state.json: expected the names of Arrow files, "
                f"found {outside or 'none'}; save again"
            )
        parts += [(split, inner / name) for name in names]
    if not parts:
        raise DataError(
            f"{folder}: expected at least one part, found none; save the data set again"
        )
    return parts, _classes(folders[0][1] / "dataset_info.json")


def _classes(file: Path) -> dict[str, list[str]]:
    features = (_json(file) if file.is_file() else {}).get("features") or {}
    labels = {
        k: v for k, v in features.items() if isinstance(v, dict) and v.get("_type") == "ClassLabel"
    }
    return {str(k): [str(name) for name in v.get("names", [])] for k, v in labels.items()}


def _json(file: Path) -> dict[str, Any]:
    return read_object(file, "a JSON object", "save the data set again")
