"""Parts of torch-geometric's `Data` as arrays, and the `Data` of a `TextGraph`."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.edges import csr_rows, pair_codes
from dance_flwr.data.graphs.limits import listed
from dance_flwr.errors import DataError

if TYPE_CHECKING:  # torch-geometric takes longer to import than torch
    from torch_geometric.data import Data

MASKS = ("train_mask", "val_mask", "test_mask")


def types_of(data: object) -> str:
    """Return the types of nodes and edges of a `HeteroData`, in words; "" for other objects."""
    if type(data).__name__ != "HeteroData":
        return ""
    nodes, edges = (listed(getattr(data, f"{of}_types")) for of in ("node", "edge"))
    return f"a HeteroData with nodes of types {nodes or 'none'} and edges {edges or 'none'}"


def in_both_directions(
    source: NDArray[Any],
    target: NDArray[Any],
    weights: NDArray[np.float32] | None,
    texts: Sequence[str] | None,
) -> bool:
    """Return whether each edge is listed as often from its target, with equal weight and text."""
    apart = np.flatnonzero(source != target).tolist()
    entries = Counter(
        (
            *(int(source[row]), int(target[row])),
            None if weights is None else float(weights[row]),
            "" if texts is None else texts[row],
        )
        for row in apart
    )
    return all(entries[b, a, w, text] == count for (a, b, w, text), count in entries.items())


def data_of(graph: Any, class_names: Sequence[str]) -> "Data":
    """Return the `Data` of a `TextGraph`: both directions of every edge, `y` in this order, masks.

    `site` and the like, `edge_weight` and `edge_text` are there as far as the graph has them. An
    edge has its text in both directions; several texts are paragraphs of one.
    """
    import torch
    from torch_geometric.data import Data

    n, source = graph.num_nodes, csr_rows(graph.indptr)
    data = Data(
        edge_index=torch.tensor(np.stack([source, graph.indices])),
        y=torch.tensor(renumbered(graph.labels, graph.class_names, class_names)),
        num_nodes=n,
        **{name: torch.tensor(graph.split == code) for code, name in enumerate(MASKS, start=1)},
        text=list(graph.texts),
        ids=graph.ids.tolist(),
        class_names=list(class_names),
    )
    for column, attribute in graph.columns(plain=True).items():
        if (values := getattr(graph, attribute)) is not None:
            data[column] = values.tolist()
    if graph.weights is not None:
        data.edge_weight = torch.tensor(graph.weights)
    if graph.edge_texts is not None:
        of, paragraphs = graph.edge_texts, defaultdict(list)
        codes = pair_codes(of.source, of.target, n).tolist()
        for code, text in zip(codes, of.texts, strict=True):
            paragraphs[code].append(text)
        entries = pair_codes(source, graph.indices, n).tolist()
        data.edge_text = ["\n\n".join(paragraphs.get(code, ())) for code in entries]
    return data


def default_names(labels: NDArray[np.int64]) -> tuple[str, ...]:
    """Return "0", "1", ... for the classes of these labels, with zeros in front so that they sort.

    So the numbers of the labels stay when class names are sorted.
    """
    count = int(labels.max(initial=-1)) + 1
    width = len(str(max(count - 1, 0)))
    return tuple(f"{number:0{width}d}" for number in range(count))


def checked_names(names: Iterable[object], what: str, *, numbers: bool = False) -> tuple[str, ...]:
    """Return names as strings, after checking that they can be stored.

    Parameters
    ----------
    what : the argument, for messages
    numbers : whether an integer is a name, too
    """
    values = names.tolist() if hasattr(names, "tolist") else list(names)
    checked: list[str] = []
    for place, value in enumerate(values):
        is_number = numbers and isinstance(value, Integral) and not isinstance(value, bool)
        name = str(value) if is_number else value
        # An array of strings drops a NUL at the end, and half a character has no UTF-8.
        if not (
            isinstance(name, str)
            and name
            and name == name.encode(errors="ignore").decode().rstrip("\0")
        ):
            raise DataError(
                f"{what}: expected strings that are not empty, found {value!r} at place {place}; "
                "replace it"
            )
        checked.append(name)
    return tuple(checked)


def renumbered(
    labels: NDArray[np.int64], names: Sequence[str], by: Sequence[str]
) -> NDArray[np.int64]:
    """Return labels of `names` as numbers of the same names in `by`, [n] int64; -1 stays."""
    place = {name: number for number, name in enumerate(by)}
    missing = [name for name in names if name not in place]
    if missing:
        raise DataError(
            f"class_names: expected all of {', '.join(map(repr, names))}, found none of "
            f"{missing[0]!r}; add it"
        )
    return np.array([*(place[name] for name in names), -1], np.int64)[labels]


def whole_numbers(values: Any, key: str, where: str) -> NDArray[np.int64]:
    """Return a tensor of whole numbers as an int64 array; [n, 1] becomes [n].

    Raises
    ------
    DataError : it is no dense tensor, or has other numbers
    """
    import torch

    if not isinstance(values, torch.Tensor) or values.layout != torch.strided or values.is_meta:
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
    values = values.float() if values.dtype == torch.bfloat16 else values
    array = values.detach().cpu().numpy()
    if array.dtype.kind not in "fiub" or not (
        np.isfinite(array).all() and (array == np.floor(array)).all()
    ):
        raise DataError(
            f"{where}: expected whole numbers in {key!r}, found {array.dtype} with others; correct "
            "it"
        )
    return array.astype(np.int64)  # type: ignore[no-any-return]


def edge_ends(
    edge_index: Any, num_nodes: int, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the two rows of `edge_index`, [2, m], after checking their node numbers."""
    ends = whole_numbers(edge_index, "edge_index", where)
    if tuple(edge_index.shape) == (2, 1):  # one edge, no column of numbers
        ends = ends[:, None]
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise DataError(
            f"{where}: expected 'edge_index' of shape [2, m], found {list(ends.shape)}; "
            "transpose it"
        )
    if ends.size and not (ends.min() >= 0 and ends.max() < num_nodes):
        raise DataError(
            f"{where}: expected edges between nodes 0..{num_nodes - 1}, "
            f"found {ends.min()}..{ends.max()}; correct the edges"
        )
    return ends[0], ends[1]


def label_codes(values: Any, num_nodes: int, key: str, where: str) -> NDArray[np.int64]:
    """Return the class number of each node, [n] int64; NaN is -1, which means no label."""
    import torch

    if isinstance(values, torch.Tensor) and values.is_floating_point():
        values = torch.nan_to_num(values, nan=-1.0)
    labels = whole_numbers(values, key, where)
    if labels.shape != (num_nodes,):
        raise DataError(
            f"{where}: expected {num_nodes} labels, one per node, found {list(labels.shape)} in "
            f"{key!r}; correct them (several labels per node are not supported)"
        )
    return labels


def mask_codes(
    data: Mapping[str, Any], num_nodes: int, index: int | None, where: str, option: str
) -> NDArray[np.uint8]:
    """Return 1, 2, 3 for the nodes of the training, validation and test mask, else 0, [n] uint8.

    Parameters
    ----------
    data : masks by name, as vectors, lists of vectors, or matrices [n, k] or [k, n]
    index : which of several masks is the split; None where there is one
    option : name of `index`, for messages

    Raises
    ------
    DataError : a mask has the wrong shape or type, or masks overlap
    """
    split = np.zeros(num_nodes, np.uint8)
    for code, key in enumerate(MASKS, start=1):
        if data.get(key) is None:
            continue
        is_list = isinstance(data[key], list | tuple)
        masks = [
            whole_numbers(mask, key, where) for mask in (data[key] if is_list else [data[key]])
        ]
        if not is_list and masks[0].ndim == 2 and num_nodes in masks[0].shape:
            # PyG stores a column per split, Wiki-CS a row.
            masks = list(masks[0].T if masks[0].shape[0] == num_nodes else masks[0])
        chosen = index if is_list or len(masks) > 1 else 0
        if chosen is None or not 0 <= chosen < len(masks):
            raise DataError(
                f"{where}: expected {option} below {len(masks)}, found {index}; choose one of the "
                f"masks in {key!r}"
            )
        mask = masks[chosen]
        if mask.shape != (num_nodes,) or not np.isin(mask, (0, 1)).all():
            raise DataError(
                f"{where}: expected {key!r} with {num_nodes} values of true or false, "
                f"found {list(mask.shape)}; correct it"
            )
        # An overlap would let a method train on test nodes.
        if (twice := np.flatnonzero((mask > 0) & (split > 0))).size:
            raise DataError(
                f"{where}: expected masks that do not overlap, found node {twice[0]} of {key} also "
                f"in {MASKS[split[twice[0]] - 1]}; take it out of one"
            )
        split[mask > 0] = code
    return split
