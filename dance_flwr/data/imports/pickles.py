"""PyG `Data` objects saved with `torch.save`, read without running any code in the file."""

import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from dance_flwr.data.graphs.edges import EdgeList
from dance_flwr.data.graphs.limits import Meter, listed
from dance_flwr.data.imports.archives import check_pickles, check_zip
from dance_flwr.data.imports.columns import rows_of
from dance_flwr.data.imports.imported import Ends, Incoming, ends_of
from dance_flwr.data.imports.node_arrays import integers, label_names, split_names
from dance_flwr.errors import DataError

TEXT_KEYS = ("raw_texts", "raw_text", "texts", "text")
LABEL_NAME_KEYS = ("label_name", "label_names", "class_names")


def load(file: Path) -> Any:
    """Return the content of a `torch.save` file: tensors, plain containers and PyG `Data` only.

    Raises
    ------
    DataError : the file holds other objects or code (which is never run), is damaged, or would
        take more memory than the bound
    """
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    try:
        is_zip = zipfile.is_zipfile(file)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(
            f"{file}: expected a torch file, found a damaged one ({error}); download it again"
        ) from error
    if is_zip:
        check_zip(file)
    # Before torch reads the file: its unpickler builds what it is told to, without a bound.
    check_pickles(file, is_zip)
    try:
        with (
            # PyG's own classes and nothing else: the unpickler calls whatever is listed.
            torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]),
            _quiet(),
        ):
            # To the CPU: a file may name a GPU that this machine lacks.
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{file}: expected tensors, lists and a PyG Data object only, found {_reason(error)}; "
            "nothing of it was run"
        ) from error
    except OSError as error:
        raise DataError(
            f"{file}: expected a readable file, found: {error.strerror or error}; "
            "check its permissions"
        ) from error
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        reason = " ".join(str(error).split())[:120]
        raise DataError(
            f"{file}: expected a torch file, found a damaged one ({reason}); download it again"
        ) from error


def pyg_graph(file: Path, split_index: int = 0, *, text: str = "", label: str = "") -> Incoming:
    """Return the graph in a PyG `Data` file with texts; ids are the row numbers.

    Parameters
    ----------
    split_index : index of the split if there are several masks
    text, label : keys of the texts and of the labels; empty for the usual ones

    Raises
    ------
    DataError : the file is invalid, or a value is missing, out of range, or of the wrong shape or
        type
    """
    data = as_mapping(load(file), file)
    texts = find_texts(data, file, text)
    return assemble(data, texts, (file,), split_index, label=label)


def assemble(
    data: Mapping[str, Any],
    texts: Sequence[str],
    files: tuple[Path, ...],
    split_index: int = 0,
    *,
    names: Sequence[str] = (),
    label: str = "",
    kind: str = "PyG Data",
) -> Incoming:
    """Return the graph of `edge_index`, `y` and masks in `data` with separate texts.

    Parameters
    ----------
    texts : [n] node texts
    names : class names; empty for those in `data`, if any
    label : key of the labels; empty for `y`
    kind : format of the files, for the card

    Raises
    ------
    DataError : a value is missing, out of range, or of the wrong shape or type
    """
    where, n = str(files[0]), len(texts)
    Meter(where).rows(n, declared=True)
    key = label or "y"
    if key not in data:
        raise DataError(
            f"{where}: expected labels in {key!r}, found {listed(data)}; name the key with --label"
        )
    classes = list(names) or next(
        (list(data[k]) for k in LABEL_NAME_KEYS if data.get(k) is not None), []
    )
    labels, schema = label_names(
        integers(data[key], key, where), [str(c) for c in classes], n, where
    )
    ends = ends_of_index(data.get("edge_index"), n, where)
    split = split_names(data, n, split_index, where)
    rows = rows_of(where, id=list(map(str, range(n))), text=list(texts), label=labels, split=split)
    return Incoming(kind, files, rows, lambda ids: EdgeList(*ends), tuple(schema))


def ends_of_index(values: Any, num_nodes: int, where: str) -> Ends:
    """Return the two ends of each edge of an `edge_index`, [m] int64 each.

    Raises
    ------
    DataError : it is no tensor [2, m] of numbers of nodes, or has more edges than the bound
    """
    ends = integers(values, "edge_index", where)
    if tuple(values.shape) == (2, 1):  # one edge, and no column of two numbers
        ends = ends[:, None]
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise DataError(
            f"{where}: expected 'edge_index' of shape [2, m], found {list(ends.shape)}; "
            "transpose it"
        )
    Meter(where, "edges").rows(ends.shape[1])
    return ends_of(ends, num_nodes, where)


def as_mapping(content: Any, file: Path) -> Mapping[str, Any]:
    """Return the content of a `Data` object, a dict, or the first entry of a saved PyG data set.

    Raises
    ------
    DataError : `content` is none of them, or is damaged
    """
    from torch_geometric.data import Data

    if isinstance(content, tuple) and content:
        content = content[0]
    if isinstance(content, Data):
        try:
            return {str(k): v for k, v in content.to_dict().items()}
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


def find_texts(data: Mapping[str, Any], file: Path, key: str = "") -> list[str]:
    """Return the node texts of a `Data` object.

    Raises
    ------
    DataError : there are no texts under `key` or one of the usual keys
    """
    present = next((k for k in ((key,) if key else TEXT_KEYS) if k in data), None)
    if present is None:
        raise DataError(
            f"{file}: expected node texts in {key or ' or '.join(TEXT_KEYS)!r}, "
            f"found {listed(data)}; name the key with --text"
        )
    return strings(data[present], f"{file}: {present!r}")


def strings(values: Any, where: str) -> list[str]:
    """Return a list of texts; None becomes "".

    Raises
    ------
    DataError : `values` is not a list of strings
    """
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's warnings about how the file was pickled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _reason(error: Exception) -> str:
    """Return the name of the object that the unpickler refused, if it names one."""
    words = " ".join(str(error).split())
    for mark in ("Unsupported global: GLOBAL ", "Unsupported class ", "Unsupported operand "):
        if mark in words:
            return words.partition(mark)[2].split(" ")[0].rstrip(".,")
    return "something else"
