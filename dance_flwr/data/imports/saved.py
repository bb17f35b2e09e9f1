"""What libraries save: folders of `datasets`, output of GraphRAG, and `.pt` of torch-geometric."""

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import SPLIT_NAMES
from dance_flwr.data.graphs.limits import check, listed
from dance_flwr.data.graphs.tables import Table, parquet_table, readable, require
from dance_flwr.data.imports.layouts import (
    GRAPHRAG,
    GRAPHRAG_FILES,
    GRAPHRAG_FOLDERS,
    NEIGHBOURS,
    GraphFile,
)
from dance_flwr.data.imports.memory_tables import memory_table
from dance_flwr.data.imports.tables import neighbours, open_table
from dance_flwr.data.imports.text_tables import read_object
from dance_flwr.errors import DataError, unknown

TEXT_KEYS = ("raw_texts", "raw_text", "texts", "text")
LABEL_NAME_KEYS = ("label_name", "label_names", "class_names")
_EDGE_FILES = ("edges.parquet", "edges.csv")
_SPLITS = {"train": "train", "test": "test"}
_SPLITS |= dict.fromkeys(("validation", "valid", "val", "dev"), "val")


def graphrag_files(folder: Path) -> tuple[Path, Path] | None:
    """Return the entities and relationships of GraphRAG in a folder, or in its `output`."""
    for inner in GRAPHRAG_FOLDERS:
        for name in GRAPHRAG_FILES:
            entities, relationships = (
                folder / inner / name.format(table) for table in ("entities", "relationships")
            )
            if entities.is_file() and relationships.is_file():
                return entities, relationships
    return None


def read_graphrag(files: tuple[Path, Path]) -> GraphFile:
    """Return the entities and relationships of GraphRAG; relationships name entities by title."""
    nodes, edges = parquet_table(files[0]), parquet_table(files[1], "edges")
    roles = {
        role: column
        for role, column in GRAPHRAG.items()
        if column in (nodes if role == "text" else edges).names
    }
    # The title was the name until version 0.4.
    roles |= {"id": "title" if "title" in nodes.names else "name"}
    # `merge_graph` of GraphRAG builds an undirected graph.
    return GraphFile("output of GraphRAG", files, nodes, edges, roles, directed=False)


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by `save_to_disk` of `datasets`."""
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def read_saved_dataset(folder: Path, key: str = "", edges_from: str = "") -> GraphFile:
    """Return the graph of a saved data set with an edge table or a column of neighbours.

    Ids are row numbers where there is no column `id`. The parts of the data set are its split. The
    classes are those of the column `label`, or of the only one that declares classes.

    Parameters
    ----------
    key : column of the ids that the neighbours are; empty for the usual one
    edges_from : column of the neighbours; empty for the usual ones
    """
    try:
        parts, classes = _parts(folder)
    except (TypeError, AttributeError) as error:  # JSON of another shape
        raise DataError(
            f"{folder}: expected the JSON files of a saved data set, found others ({error}); "
            "save the data set again"
        ) from error
    with readable(parts[0][1]), pa.ipc.open_stream(str(parts[0][1])) as reader:
        names = list(reader.schema.names)
    number = "" if key or "id" in names else unused("row", names)
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
                    size = len(batch)
                    arrays = {n: _named(batch.column(n), classes.get(n), folder, n) for n in stored}
                    if number in columns:
                        arrays[number] = pa.array(range(start, start + size), pa.int64())
                    if split in columns:
                        arrays[split] = pa.repeat(pa.scalar(part, pa.string()), size)
                    start += size
                    yield pa.record_batch({name: arrays[name] for name in columns})

    every = [*filter(None, [number]), *names, *filter(None, [split])]
    nodes = Table(str(folder), every, record_batches)
    roles = {"id": key or number or "id"} | ({"split": "split"} if "split" in every else {})
    declared = [name for name in ("label", *classes) if name in classes]
    if len(classes) == 1 or declared[:1] == ["label"]:
        roles["label"] = declared[0]
    files = tuple(file for _, file in parts)
    table = next((folder / name for name in _EDGE_FILES if (folder / name).is_file()), None)
    column = edges_from or next((name for name in NEIGHBOURS if name in names), "")
    if table and not edges_from:
        edges, files = open_table(table, rows="edges"), (*files, table)
    elif column:
        edges = neighbours(nodes, column, roles["id"])
        roles |= {"source": "source", "target": "target"}
    else:
        raise DataError(
            f"{folder}: expected edges.parquet or edges.csv, or a column {NEIGHBOURS[0]!r} "
            "with the ids of each node's neighbours, found neither; add one"
        )
    names_of = tuple(classes.get(roles.get("label", ""), ()))
    return GraphFile("saved data set", files, nodes, edges, roles, classes=names_of)


def _parts(folder: Path) -> tuple[list[tuple[str, Path]], dict[str, list[str]]]:
    """Return (split or "", Arrow file) in order, and ClassLabel column -> class names."""

    def load(file: Path) -> dict[str, Any]:
        return read_object(file, "a JSON object", "save the data set again")

    folders = [("", folder)]
    if (folder / "dataset_dict.json").is_file():
        names = load(folder / "dataset_dict.json").get("splits", [])
        if strange := [name for name in names if name not in _SPLITS]:
            raise DataError(unknown(f"{folder}: parts", strange, _SPLITS))
        folders = [(_SPLITS[name], folder / name) for name in names]
    parts: list[tuple[str, Path]] = []
    for split, inner in folders:
        state = load(inner / "state.json")
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
    info = folders[0][1] / "dataset_info.json"
    features = (load(info) if info.is_file() else {}).get("features") or {}
    labels = {
        k: v for k, v in features.items() if isinstance(v, dict) and v.get("_type") == "ClassLabel"
    }
    return parts, {str(k): [str(name) for name in v.get("names", [])] for k, v in labels.items()}


def _named(values: Any, names: list[str] | None, folder: Path, column: str) -> Any:
    """Return a column of class numbers as their names; -1 and null are a missing class."""
    if names is None or not pa.types.is_integer(values.type):
        return values
    numbers = pc.fill_null(values, -1).to_numpy(zero_copy_only=False)
    if len(numbers) and not (numbers.min() >= -1 and numbers.max() < len(names)):
        raise DataError(
            f"{folder}: expected labels in -1..{len(names) - 1}, as {column!r} has "
            f"{len(names)} class names, found {numbers.min()}..{numbers.max()}; correct them"
        )
    return pa.array(names, pa.large_string()).take(pa.array(numbers, mask=numbers < 0))


def load_torch(file: Path) -> Any:
    """Return the content of a `torch.save` file: tensors, plain containers and PyG `Data` only.

    Raises
    ------
    DataError : the file holds other objects or code (which is never run), or is damaged
    """
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    try:
        with (
            # PyG's own classes and nothing else: the unpickler calls whatever is listed.
            torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # about how the file was pickled
            # To the CPU: a file may name a GPU that this machine lacks.
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{file}: expected tensors, lists and a PyG Data object only, found {_reason(error)}; "
            "nothing of it was run"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        reason = " ".join(str(error).split())[:120]
        if "allocate memory" in reason:
            raise MemoryError from error
        raise DataError(
            f"{file}: expected a torch file, found a damaged one ({reason}); download it again"
        ) from error


def _reason(error: Exception) -> str:
    """Return the name of the object that the unpickler refused, if it names one."""
    words = " ".join(str(error).split())
    for mark in ("Unsupported global: GLOBAL ", "Unsupported class ", "Unsupported operand "):
        if mark in words:
            return words.partition(mark)[2].split(" ")[0].rstrip(".,")
    return "something else"


def as_mapping(content: Any, file: Path) -> Mapping[str, Any]:
    """Return the content of a `Data` object, a dict, or the first entry of a saved PyG data set."""
    from torch_geometric.data import Data

    if isinstance(content, tuple) and content:
        content = content[0]
    if isinstance(content, Data):
        try:
            content = content.to_dict()
        except Exception as error:  # a Data object from a damaged file
            raise DataError(
                f"{file}: expected a complete PyG Data object, found a damaged one; "
                "download it again"
            ) from error
    if isinstance(content, dict):
        return {str(k): v for k, v in content.items()}
    raise DataError(
        f"{file}: expected a PyG Data object, found {type(content).__name__}; save a Data object"
    )


def texts_of(values: Any, where: str) -> list[str]:
    """Return a list of texts; None becomes ""."""
    if not isinstance(values, list | tuple):
        raise DataError(
            f"{where}: expected a list of texts, found {type(values).__name__}; convert it"
        )
    wrong = next((v for v in values if not isinstance(v, str | None)), None)
    if wrong is not None:
        raise DataError(
            f"{where}: expected a list of texts, found an entry of {type(wrong).__name__}; "
            "convert it"
        )
    return [v or "" for v in values]


def pyg_data(data: Mapping[str, Any], files: tuple[Path, ...], split_index: int = 0) -> GraphFile:
    """Return the graph of a PyG `Data` object as a mapping; ids are row numbers.

    Lists of strings and tensors of whole numbers with one entry per node are columns, `edge_weight`
    and `edge_text` columns of the edges, and masks the split.
    """
    file, where = files[0], str(files[0])
    texts = next((key for key in (*TEXT_KEYS, *data) if _is_texts(key, data.get(key))), "")
    if not texts:
        raise DataError(
            f"{where}: expected node texts in {' or '.join(TEXT_KEYS)!r}, found "
            f"{listed(data)}; name the key with --text"
        )
    n = len(data[texts])
    _check_size(data, texts, n, where)
    columns: dict[str, Callable[[], Sequence[Any]]] = {unused("row", data): lambda: range(n)}
    roles = {"id": next(iter(columns)), "text": texts, "source": "source", "target": "target"}
    label = next((key for key in ("y", "label") if data.get(key) is not None), "")
    classes = next(
        (tuple(map(str, data[k])) for k in LABEL_NAME_KEYS if data.get(k) is not None), ()
    )
    for key, value in data.items():
        if key == label:
            columns[key] = cache(
                lambda: label_names(label_codes(data, label, where), classes, where)
            )
            roles["label"] = key
        elif not key.startswith("edge_") and _is_texts(key, value) and len(value) == n:
            columns[key] = cache(lambda key=key: texts_of(data[key], f"{where}: {key!r}"))
        elif not key.startswith("edge_") and _is_numbers(key, value, n):
            columns[key] = cache(lambda key=key: integers(data[key], key, where).tolist())
    if label:
        found = label_codes(data, label, where).shape  # labels show best that texts are missing
        if found != (n,):
            raise DataError(
                f"{where}: expected {n} labels, one per text, found {list(found)}; correct them"
            )
    masks = [f"{name}_mask" for name in SPLIT_NAMES[1:] if data.get(f"{name}_mask") is not None]
    if masks:
        roles["split"] = unused("split", columns)
        columns[roles["split"]] = cache(lambda: split_names(data, n, split_index, where))
    edges = _edges(data, n, where)
    roles |= {
        r: c for r, c in (("weight", "edge_weight"), ("description", "edge_text")) if c in edges
    }
    others = [
        k for k in data if k not in (*columns, *masks, *edges, "edge_index", *LABEL_NAME_KEYS)
    ]
    size = len(edges["source"])
    return GraphFile(
        "PyG Data",
        files,
        memory_table(file, "nodes", n, {k: _rows_of(v) for k, v in columns.items()}),
        memory_table(file, "edges", size, {k: v.__getitem__ for k, v in edges.items()}),
        roles,
        classes=classes if label else (),
        by_place=True,
        left_out={
            "nodes": [k for k in others if not k.startswith("edge_") and k != "num_nodes"],
            "edges": [k for k in others if k.startswith("edge_")],
        },
    )


def _check_size(data: Mapping[str, Any], texts: str, n: int, where: str) -> None:
    """Check that there are as many texts as nodes, where the file says how many these are."""
    features: Sequence[int] = getattr(data.get("x"), "shape", ())
    sizes = {"num_nodes": data.get("num_nodes"), "x": features[0] if len(features) == 2 else None}
    for key, size in sizes.items():
        if isinstance(size, int) and size != n:
            raise DataError(
                f"{where}: expected a text for each of {size} nodes, as {key!r} says, found {n} in "
                f"{texts!r}; correct one of them"
            )


def _edges(data: Mapping[str, Any], n: int, where: str) -> dict[str, Any]:
    """Return the columns of `edge_index`, [2, m], with weights and texts where there are any."""
    values = data.get("edge_index")
    ends = integers(values, "edge_index", where)
    if tuple(values.shape) == (2, 1):  # type: ignore[union-attr] # one edge, no column of numbers
        ends = ends[:, None]
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise DataError(
            f"{where}: expected 'edge_index' of shape [2, m], found {list(ends.shape)}; "
            "transpose it"
        )
    check(where, edges=ends.shape[1])
    ends = np.stack(ends_of(ends, n, where))
    columns: dict[str, Any] = {"source": ends[0], "target": ends[1]}
    weights: Any = data.get("edge_weight")
    texts = data.get("edge_text")
    if getattr(weights, "shape", None) in ((ends.shape[1],), (ends.shape[1], 1)):
        columns["edge_weight"] = weights.reshape(-1).tolist()
    if isinstance(texts, list | tuple) and len(texts) == ends.shape[1]:
        columns["edge_text"] = texts_of(texts, f"{where}: 'edge_text'")
    return columns


def ends_of(
    edge_index: NDArray[np.int64], num_nodes: int, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the two rows of an edge list [2, m] after checking their node numbers."""
    if edge_index.size and not (edge_index.min() >= 0 and edge_index.max() < num_nodes):
        raise DataError(
            f"{where}: expected edges between nodes 0..{num_nodes - 1}, "
            f"found {edge_index.min()}..{edge_index.max()}; correct the edges"
        )
    return edge_index[0], edge_index[1]


def _is_texts(key: str, value: Any) -> bool:
    """Whether a value is texts, or should be by its key."""
    if not isinstance(value, list | tuple) or key in LABEL_NAME_KEYS:
        return False
    strings = bool(value) and all(isinstance(entry, str | None) for entry in value)
    return key in TEXT_KEYS or (strings and not key.startswith("edge_"))


def _is_numbers(key: str, value: Any, n: int) -> bool:
    """Whether a value has one number per node; masks are the split, and float tensors features."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and not key.endswith("_mask")
        and tuple(value.shape) in ((n,), (n, 1))
        and not value.is_floating_point()
    )


def _rows_of(values: Callable[[], Sequence[Any]]) -> Callable[[slice], Sequence[Any]]:
    """Return a column that is made when it is read, for `memory_table`."""
    return lambda rows: values()[rows]


def unused(name: str, names: Mapping[str, Any] | Sequence[str]) -> str:
    """Return a name that is not among others, with "@" in front if needed."""
    while name in names:
        name = "@" + name
    return name


def label_codes(data: Mapping[str, Any], key: str, where: str) -> NDArray[np.int64]:
    """Return the labels of a `Data`; NaN is -1, which means no label."""
    import torch

    values = data[key]
    if isinstance(values, torch.Tensor) and values.is_floating_point():
        values = torch.nan_to_num(values, nan=-1.0)
    return integers(values, key, where)


def integers(values: Any, key: str, where: str) -> NDArray[np.int64]:
    """Return a tensor of whole numbers as an int64 array; [n, 1] becomes [n]."""
    import torch

    if (
        not isinstance(values, torch.Tensor)
        or values.device.type != "cpu"
        or values.layout != torch.strided
    ):
        kind = "a sparse tensor" if isinstance(values, torch.Tensor) else type(values).__name__
        raise DataError(f"{where}: expected a tensor {key!r}, found {kind}; convert it")
    # With strides of zero, a file of a few bytes can declare any number of entries.
    if values.numel() * values.element_size() > max(values.untyped_storage().nbytes(), 1):
        raise DataError(
            f"{where}: expected as many entries in {key!r} as are stored, "
            f"found {values.numel()}; save it again"
        )
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    # NumPy has no bfloat16.
    array = values.detach().numpy() if values.dtype != torch.bfloat16 else values.float().numpy()
    if array.dtype.kind not in "fiub" or not (
        np.isfinite(array).all() and (array == np.floor(array)).all()
    ):
        raise DataError(
            f"{where}: expected whole numbers in {key!r}, found {array.dtype} with others; correct "
            "it"
        )
    whole: NDArray[np.int64] = array.astype(np.int64)
    return whole


def label_names(labels: NDArray[np.int64], classes: Sequence[str], where: str) -> list[str]:
    """Return the class name of each node, "" for -1; without class names their numbers."""
    if len(set(classes)) != len(classes) or "" in classes:
        raise DataError(
            f"{where}: expected class names that differ and are not empty, "
            f"found {list(classes)!r:.80}; correct them"
        )
    top = len(classes) if classes else np.iinfo(np.int64).max
    if len(labels) and not (labels.min() >= -1 and labels.max() < top):
        bound = "-1 or above"
        if classes:
            bound = f"-1..{len(classes) - 1}, as there are {len(classes)} class names"
        raise DataError(
            f"{where}: expected labels in {bound}, found {labels.min()}..{labels.max()}; "
            "correct them"
        )
    if classes:
        return np.array([*classes, ""], object)[labels].tolist()  # type: ignore[no-any-return]
    return [str(v) if v >= 0 else "" for v in labels.tolist()]


def split_names(data: Mapping[str, Any], num_nodes: int, index: int, where: str) -> list[str]:
    """Return "train", "val", "test" or "" per node, from masks as vectors, matrices or lists.

    Raises
    ------
    DataError : a mask has the wrong shape or type, or masks overlap
    """
    code = np.zeros(num_nodes, np.int64)
    for number, name in enumerate(SPLIT_NAMES[1:], start=1):
        mask = data.get(f"{name}_mask")
        if mask is None:
            continue
        chosen = _mask(mask, f"{name}_mask", num_nodes, index, where)
        # An overlap would let a method train on test nodes.
        if (code[chosen] > 0).any():
            raise DataError(
                f"{where}: expected masks that do not overlap, found {name}_mask on nodes of "
                "another mask; correct them"
            )
        code[chosen] = number
    return np.array(SPLIT_NAMES, object)[code].tolist()  # type: ignore[no-any-return]


def _mask(mask: Any, key: str, num_nodes: int, index: int, where: str) -> NDArray[np.bool_]:
    """Return one mask [n] from a vector, a list of vectors, or a matrix [n, k] or [k, n]."""
    several = mask if isinstance(mask, list | tuple) else [mask]
    arrays = [integers(values, key, where) for values in several]
    if arrays and arrays[0].ndim == 2 and num_nodes in arrays[0].shape:
        # PyG stores a column per split, Wiki-CS a row.
        arrays = list(arrays[0].T if arrays[0].shape[0] == num_nodes else arrays[0])
        several = arrays
    chosen = index if several is mask or len(several) > 1 else 0
    if not 0 <= chosen < len(arrays):
        raise DataError(
            f"{where}: expected --split-index below {len(arrays)}, found {index}; "
            f"choose one of {key!r}"
        )
    values = arrays[chosen]
    if values.shape != (num_nodes,) or not np.isin(values, (0, 1)).all():
        raise DataError(
            f"{where}: expected {key!r} with {num_nodes} values of true or false, "
            f"found {list(values.shape)}; correct it"
        )
    return values.astype(bool)
