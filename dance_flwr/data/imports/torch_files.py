"""`.pt` files of torch-geometric: tensors and lists of a `Data` object become columns."""

import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import SPLIT_NAMES, TextGraph
from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.graphs.pyg import (
    MASKS,
    checked_names,
    default_names,
    edge_ends,
    label_codes,
    mask_codes,
    types_of,
    whole_numbers,
)
from dance_flwr.data.imports.layouts import ENDS, LAYOUTS, GraphFile
from dance_flwr.data.imports.records import column_table, fault, is_missing, seekable, unused

TEXT_KEYS, LABEL_NAME_KEYS = LAYOUTS["pyg"]["texts"], LAYOUTS["pyg"]["class-names"]
_OF_EDGES = ("edge_weight", "edge_text")
_REFUSALS = ("Unsupported global: GLOBAL ", "Unsupported class ", "Unsupported operand ")


def load_torch(file: Path) -> Any:
    """Return the content of a `torch.save` file: tensors, plain containers and PyG `Data` only.

    Raises
    ------
    DataError : the file holds other objects or code (which is never run), or is damaged
    """
    import torch
    from torch_geometric.data import Data, HeteroData, storage
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr

    # PyG's own classes and nothing else: the unpickler calls whatever is listed.
    classes = [Data, DataEdgeAttr, DataTensorAttr, storage.GlobalStorage]
    # Of a HeteroData, which is refused with the types that it has.
    classes += [HeteroData, storage.BaseStorage, storage.NodeStorage, storage.EdgeStorage]
    try:
        with torch.serialization.safe_globals(classes), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about how the file was pickled
            # To the CPU: a file may name a GPU that this machine lacks.
            return torch.load(seekable(file), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        words = " ".join(str(error).split())
        parts = [words.partition(mark)[2] for mark in _REFUSALS if mark in words]
        found = parts[0].split(" ")[0].rstrip(".,") if parts else "something else"
        what = "tensors, lists and a PyG Data object only"
        raise fault(file, what, found, "nothing of it was run") from error
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        if "allocate memory" in str(error):
            raise MemoryError from error
        found = f"a damaged one ({error!s:.120})"
        raise fault(file, "a torch file", found, "download it again") from error


def load_data(file: Path) -> dict[str, Any]:
    """Return the content of a `Data` object, a dict, or the first entry of a saved PyG data set."""
    from torch_geometric.data import Data

    content = load_torch(file)
    if isinstance(content, tuple) and content:
        content = content[0]
    what = "a PyG Data object"
    try:
        several = types_of(content)
        content = content.to_dict() if isinstance(content, Data) else content
    except Exception as error:  # a Data object from a damaged file
        raise fault(file, what, error, "download it again") from error
    if several:
        advice = (
            "save `one` after one = data.to_homogeneous(); "
            "one.raw_texts = [text for kind in data.node_types for text in data[kind].raw_texts], "
            "where raw_texts are the texts of each node type"
        )
        raise fault(file, what, several, advice)
    if not isinstance(content, dict):
        raise fault(file, what, type(content).__name__, "save a Data object")
    return {str(k): v for k, v in content.items()}


def pyg_data(
    data: Mapping[str, Any],
    files: tuple[Path, ...],
    split_index: int | None = 0,
    option: str = "--split-index",
) -> GraphFile:
    """Return the graph of a PyG `Data` object as a mapping; ids are row numbers.

    Lists of strings and tensors of whole numbers with one entry per node are columns, `edge_weight`
    and `edge_text` columns of the edges, and masks the split.

    Parameters
    ----------
    split_index, option : as `index` and `option` of `mask_codes`
    """
    file, where = files[0], str(files[0])
    texts = next((key for key in (*TEXT_KEYS, *data) if _is_texts(key, data.get(key))), "")
    if not texts:
        what = f"node texts in {' or '.join(TEXT_KEYS)!r}"
        raise fault(where, what, listed(data), "name the key with --text")
    n = len(data[texts])
    features: Sequence[int] = getattr(data.get("x"), "shape", ())
    sizes = {"num_nodes": data.get("num_nodes"), "x": features[0] if len(features) == 2 else None}
    for key, size in sizes.items():
        if isinstance(size, int) and size != n:
            what = f"a text for each of {size} nodes, as {key!r} says"
            raise fault(where, what, f"{n} in {texts!r}", "correct one of them")
    row = unused("row", data)
    nodes: dict[str, Any] = {row: range(n)}
    roles = {"id": row, "text": texts, "weight": "edge_weight", "description": "edge_text"}
    label = next((key for key in ("y", "label") if data.get(key) is not None), "")
    named = next((data[key] for key in LABEL_NAME_KEYS if data.get(key) is not None), ())
    classes = tuple(map(str, named))
    if label:
        roles["label"] = label
    for key, value in data.items():
        if key == label and not _is_texts(key, value):
            nodes[key] = label_names(label_codes(value, n, key, where), classes, where)
        elif _is_texts(key, value) and len(value) == n and not key.startswith("edge_"):
            nodes[key] = texts_of(value, f"{where}: {key!r}")
        elif _is_numbers(key, value, n):
            nodes[key] = whole_numbers(value, key, where)
    masks = [key for key in MASKS if data.get(key) is not None]
    if masks:
        roles["split"] = unused("split", nodes)
        codes = mask_codes(data, n, split_index, where, option)
        nodes[roles["split"]] = np.array(SPLIT_NAMES, object)[codes].tolist()
    source, target = edge_ends(data.get("edge_index"), n, where)
    edges: dict[str, Any] = {"source": source, "target": target}
    weights, of_edges, m = data.get("edge_weight"), data.get("edge_text"), len(source)
    if getattr(weights, "shape", None) in ((m,), (m, 1)):
        edges["edge_weight"] = weights.reshape(-1).tolist()  # type: ignore[union-attr]
    if isinstance(of_edges, list | tuple) and len(of_edges) == m:
        edges["edge_text"] = texts_of(of_edges, f"{where}: 'edge_text'")
    read = {*nodes, *masks, *edges, *LABEL_NAME_KEYS, "edge_index", "num_nodes"}
    others = [key for key, value in data.items() if value is not None and key not in read]
    return GraphFile(
        "PyG Data",
        files,
        (column_table(file, "nodes", n, nodes),),
        (column_table(file, "edges", m, edges),),
        roles,
        classes=classes if label else (),
        both_ways=len(edges) > len(ENDS[0]),
        by_place=True,
        left_out={
            "nodes": [key for key in others if not key.startswith("edge_")],
            "edges": [key for key in others if key.startswith("edge_")],
        },
    )


def given_data(
    data: Any, texts: Sequence[Any], ids: Any, class_names: Any, mask_column: int | None
) -> GraphFile:
    """Return the graph of a `Data` in memory with these texts, ids and names of classes.

    Raises
    ------
    DataError : it is no `Data`, or a part of it does not fit
    """
    import torch

    found = types_of(data) or ("" if hasattr(data, "edge_index") else type(data).__name__)
    if found:
        advice = (
            "give data.to_homogeneous(), with the texts of the node types in this order"
            if types_of(data)
            else "make one of its edge_index and num_nodes"
        )
        raise fault("data", "a torch_geometric.data.Data", found, advice)
    if not (n := data.num_nodes):
        raise fault("data", "at least one node", "none", "set data.num_nodes")
    if len(texts) != n:
        raise fault("texts", f"one for each of {n} nodes", len(texts), "correct them")
    keys = ("y", "edge_index", *_OF_EDGES, *MASKS, *TextGraph.columns(plain=True))
    parts = {key: data.get(key) for key in keys}
    if parts["y"] is None:
        parts["y"] = torch.full((n,), -1)
    if parts["edge_index"] is None:
        parts["edge_index"] = torch.zeros((2, 0), dtype=torch.int64)
    if class_names is None:
        class_names = default_names(label_codes(parts["y"], n, "y", "data"))
    parts[LABEL_NAME_KEYS[0]] = checked_names(class_names, "class_names")
    parts["ids"] = list(checked_names(range(n) if ids is None else ids, "ids", numbers=True))
    parts[TEXT_KEYS[0]] = texts_of(list(texts), "texts")
    source = pyg_data(parts, (Path("data"),), mask_column, "mask_column")
    if others := [*source.left_out["nodes"], *source.left_out["edges"]]:
        what = "a value for each node or column of edge_index"
        raise fault("data", what, f"others in {listed(others)}", "correct them")
    return replace(source, files=(), roles={**source.roles, "id": "ids"})


def _is_texts(key: str, value: Any) -> bool:
    """Return whether a value is texts, or should be by its key."""
    if not isinstance(value, list | tuple) or key in LABEL_NAME_KEYS:
        return False
    strings = bool(value) and all(isinstance(entry, str | None) for entry in value)
    return key in TEXT_KEYS or (strings and not key.startswith("edge_"))


def _is_numbers(key: str, value: Any, n: int) -> bool:
    """Return whether a value has one number per node and is no mask; floats are features."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and not key.endswith("_mask")
        and not key.startswith("edge_")
        and tuple(value.shape) in ((n,), (n, 1))
        and not value.is_floating_point()
    )


def texts_of(values: Any, where: str) -> list[str]:
    """Return a list of texts; missing ones become ""."""
    if not isinstance(values, list | tuple):
        raise fault(where, "a list of texts", type(values).__name__, "convert it")
    texts = ["" if is_missing(entry) else entry for entry in values]
    for row, text in enumerate(texts, 1):
        if not isinstance(text, str):
            what = f"a text at place {row} of the list"
            raise fault(where, what, repr(text)[:80], "convert it")
    return texts


def label_names(labels: NDArray[np.int64], classes: Sequence[str], where: str) -> list[str]:
    """Return the class name of each node, "" for -1; without class names their numbers."""
    if len(set(classes)) != len(classes) or "" in classes:
        what = "class names that differ and are not empty"
        raise fault(where, what, f"{list(classes)!r:.80}", "correct them")
    top = len(classes) if classes else np.iinfo(np.int64).max
    if len(labels) and not (labels.min() >= -1 and labels.max() < top):
        of = f"-1..{len(classes) - 1}, as there are {len(classes)} class names"
        bound = of if classes else "-1 or above"
        found = f"{labels.min()}..{labels.max()}"
        raise fault(where, f"labels in {bound}", found, "correct them")
    if classes:
        return np.array([*classes, ""], object)[labels].tolist()  # type: ignore[no-any-return]
    return [str(v) if v >= 0 else "" for v in labels.tolist()]
