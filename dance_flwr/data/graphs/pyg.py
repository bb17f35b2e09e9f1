"""torch-geometric's `Data` and the arrays of a `TextGraph`, in both directions."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.edges import EdgeTexts, check_weights, csr_rows, pair_codes
from dance_flwr.errors import DataError

if TYPE_CHECKING:  # torch-geometric takes longer to import than torch
    from torch_geometric.data import Data

MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True)
class PygArrays:
    """What a `Data` says of a graph.

    Attributes
    ----------
    num_nodes : n
    source, target : [E] int64, the columns of `edge_index`
    labels : [n] int64, `y`, -1 where unknown
    split : [n] uint8: 0 = in no mask, 1, 2, 3 = in `train_mask`, `val_mask`, `test_mask`
    weights : [E] float32, `edge_weight`, as in `source`; None without the attribute
    edge_texts : those of the list `edge_text`; None without any
    """

    num_nodes: int
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    labels: NDArray[np.int64]
    split: NDArray[np.uint8]
    weights: NDArray[np.float32] | None
    edge_texts: EdgeTexts | None


def arrays_of(data: "Data", mask_column: int | None = None) -> PygArrays:
    """Read the nodes, edges, labels and masks of a homogeneous graph.

    Raises
    ------
    DataError : it is not such a graph, or a part has another shape or type than PyG's own data sets
    """
    # By name: importing torch-geometric takes longer than torch.
    if type(data).__name__ == "HeteroData" or not hasattr(data, "edge_index"):
        raise DataError(
            f"data: expected a torch_geometric.data.Data, found {type(data).__name__}; "
            "a graph with types of nodes is made homogeneous by data.to_homogeneous()"
        )
    n = data.num_nodes
    if not n:
        raise DataError("data: expected at least one node, found none; set data.num_nodes")
    edges = data.edge_index
    if edges is None:
        source = target = np.zeros(0, np.int64)
    else:
        edges = np.asarray(edges.cpu())
        if edges.ndim != 2 or len(edges) != 2 or edges.dtype != np.int64:
            raise DataError(
                f"data.edge_index: expected [2, E] int64, found {list(edges.shape)} {edges.dtype}"
            )
        if edges.size and not (edges.min() >= 0 and edges.max() < n):
            raise DataError(
                f"data.edge_index: expected nodes in 0..{n - 1}, found {edges.min()}..{edges.max()}"
            )
        source, target = edges
    weights, texts = _edge_weight(data, len(source)), _edge_text(data, len(source))
    if (weights is not None or texts) and _in_both_directions(source, target, weights, texts):
        # PyG stores an undirected graph so; summing both directions would double each weight, and
        # a text would be there twice.
        once = source <= target
        source, target = source[once], target[once]
        weights = None if weights is None else weights[once]
        texts = [texts[row] for row in np.flatnonzero(once).tolist()] if texts else []
    return PygArrays(
        *(n, source, target, _labels(data, n), _split(data, n, mask_column)),
        weights,
        EdgeTexts.of(source, target, texts) if texts else None,
    )


def _edge_weight(data: "Data", size: int) -> NDArray[np.float32] | None:
    """Return `edge_weight`, [E] float32; None if there is none."""
    if getattr(data, "edge_weight", None) is None:
        return None
    weights = np.asarray(data.edge_weight.detach().cpu(), np.float32)
    check_weights(weights, size, "data.edge_weight")
    return weights


def _edge_text(data: "Data", size: int) -> list[str]:
    """Return `edge_text`, E strings; an empty list if there is none."""
    texts = getattr(data, "edge_text", None)
    if texts is None:
        return []
    if len(texts) != size or not all(isinstance(text, str) for text in texts):
        raise DataError(
            f'data.edge_text: expected {size} strings, one per column of edge_index and "" for an '
            f"edge without a text, found {len(texts)} of {type(texts).__name__}; correct it"
        )
    return list(texts)


def _in_both_directions(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    weights: NDArray[np.float32] | None,
    texts: Sequence[str],
) -> bool:
    """Return whether each edge is listed as often from its target, with equal weight and text."""
    apart = np.flatnonzero(source != target).tolist()
    entries = Counter(
        (
            *(int(source[row]), int(target[row])),
            None if weights is None else float(weights[row]),
            texts[row] if texts else "",
        )
        for row in apart
    )
    return all(entries[b, a, w, text] == count for (a, b, w, text), count in entries.items())


def edge_attributes(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    weights: NDArray[np.float32] | None,
    edge_texts: EdgeTexts | None,
) -> dict[str, Any]:
    """Return `edge_weight` and `edge_text` of a `Data`, as far as a graph has them.

    An edge has its text in both directions; several texts are paragraphs of one.
    """
    import torch

    attributes: dict[str, Any] = {}
    if weights is not None:
        attributes["edge_weight"] = torch.tensor(weights)
    if edge_texts is not None:
        n, paragraphs = len(indptr) - 1, defaultdict(list)
        codes = pair_codes(edge_texts.source, edge_texts.target, n).tolist()
        for code, text in zip(codes, edge_texts.texts, strict=True):
            paragraphs[code].append(text)
        entries = pair_codes(csr_rows(indptr), indices, n).tolist()
        attributes["edge_text"] = ["\n\n".join(paragraphs.get(code, ())) for code in entries]
    return attributes


def data_of(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    labels: NDArray[np.int64],
    split: NDArray[np.uint8],
    **others: Any,
) -> "Data":
    """Return a `Data` with both directions of every edge, `y` and the three masks.

    Parameters
    ----------
    indptr, indices : neighbour lists; labels : [n] int64; split : [n] uint8, as in `PygArrays`
    others : further attributes, such as `ids` and `text`
    """
    import torch
    from torch_geometric.data import Data

    source = np.repeat(np.arange(len(labels)), np.diff(indptr))
    masks = {name: torch.tensor(split == code) for code, name in enumerate(MASKS, start=1)}
    return Data(
        edge_index=torch.tensor(np.stack([source, indices])),
        y=torch.tensor(labels),
        num_nodes=len(labels),
        **masks,
        **others,
    )


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


def _labels(data: "Data", n: int) -> NDArray[np.int64]:
    """Return `y`, [n] int64; -1 everywhere if there is none."""
    if data.y is None:
        return np.full(n, -1, np.int64)
    labels = np.asarray(data.y.cpu())
    if labels.shape == (n, 1):
        labels = labels[:, 0]
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"data.y: expected [{n}] integers, one class per node and -1 = unknown, found "
            f"{list(labels.shape)} {labels.dtype}; several labels per node are not supported"
        )
    if labels.min() < -1:
        raise DataError(f"data.y: expected classes from 0, or -1 = unknown, found {labels.min()}")
    return labels.astype(np.int64)


def _split(data: "Data", n: int, column: int | None) -> NDArray[np.uint8]:
    """Return the split that the masks give, [n] uint8."""
    split = np.zeros(n, np.uint8)
    for code, name in enumerate(MASKS, start=1):
        if getattr(data, name, None) is None:
            continue
        mask = np.asarray(data[name].cpu())
        if mask.ndim == 2 and mask.shape[0] == n:
            if column is None or not 0 <= column < mask.shape[1]:
                raise DataError(
                    f"mask_column: expected one of the {mask.shape[1]} columns of {name}, found "
                    f"{column}; each is a split of its own, for example mask_column=0"
                )
            mask = mask[:, column]
        if mask.shape != (n,) or mask.dtype != np.bool_:
            raise DataError(
                f"data.{name}: expected [{n}] bool, found {list(mask.shape)} {mask.dtype}"
            )
        if (twice := np.flatnonzero(mask & (split > 0))).size:
            raise DataError(
                f"data.{name}: expected a node in one mask, found node {twice[0]} also in "
                f"{MASKS[split[twice[0]] - 1]}; take it out of one"
            )
        split[mask] = code
    return split
