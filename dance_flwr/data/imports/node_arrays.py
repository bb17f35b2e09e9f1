"""Labels and splits of nodes, from the tensors and masks that graph files hold."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.data.graphs.graph import SPLIT_NAMES
from dance_flwr.errors import DataError


def integers(values: Any, key: str, where: str) -> NDArray[np.int64]:
    """Return a tensor of whole numbers as an int64 array; [n, 1] becomes [n]."""
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
    if array.dtype.kind == "f" and not (
        np.isfinite(array).all() and (array == np.floor(array)).all()
    ):
        raise DataError(
            f"{where}: expected whole numbers in {key!r}, "
            f"found {array.dtype} with fractions or NaN; correct it"
        )
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"{where}: expected whole numbers in {key!r}, found {array.dtype}; convert it"
        )
    whole: NDArray[np.int64] = array.astype(np.int64)
    return whole


def label_names(
    labels: NDArray[np.int64], classes: list[str], num_nodes: int, where: str
) -> tuple[list[str], list[str]]:
    """Return the class name of each node, "" for -1, and the classes of the schema."""
    if labels.shape != (num_nodes,):
        raise DataError(
            f"{where}: expected {num_nodes} labels, one per text, found {list(labels.shape)}; "
            "correct them"
        )
    if len(set(classes)) != len(classes) or "" in classes:
        raise DataError(
            f"{where}: expected class names that differ and are not empty, "
            f"found {classes!r:.80}; correct them"
        )
    top = len(classes) if classes else np.iinfo(np.int64).max
    if num_nodes and not (labels.min() >= -1 and labels.max() < top):
        bound = (
            f"-1..{len(classes) - 1}, as there are {len(classes)} class names"
            if classes
            else "-1 or above"
        )
        raise DataError(
            f"{where}: expected labels in {bound}, found {labels.min()}..{labels.max()}; "
            "correct them"
        )
    if classes:
        names = np.array([*classes, ""], object)  # -1 selects the last entry
        return names[labels].tolist(), classes
    return [str(v) if v >= 0 else "" for v in labels.tolist()], []


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
    if isinstance(mask, list | tuple):
        if not 0 <= index < len(mask):
            raise DataError(
                f"{where}: expected --split-index below {len(mask)}, found {index}; "
                f"choose one of {key!r}"
            )
        mask = mask[index]
    values = (
        mask.numpy()
        if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool
        else integers(mask, key, where)
    )
    if values.ndim == 2 and num_nodes in values.shape:
        # PyG stores a column per split, Wiki-CS a row.
        values = values if values.shape[0] == num_nodes else values.T
        if not 0 <= index < values.shape[1]:
            raise DataError(
                f"{where}: expected --split-index below {values.shape[1]}, found {index}; "
                f"choose one of {key!r}"
            )
        values = values[:, index]
    if values.shape != (num_nodes,) or (values.dtype != bool and not np.isin(values, (0, 1)).all()):
        raise DataError(
            f"{where}: expected {key!r} with {num_nodes} values of true or false, "
            f"found {list(values.shape)} {values.dtype}; correct it"
        )
    return values.astype(bool)
