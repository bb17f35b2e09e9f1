"""PyG `Data` objects saved with `torch.save`, read without ever running code that is in the file."""

import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.data.graph import SPLIT_NAMES
from dance_flwr.data.imported import Incoming, ends_of, rows_of
from dance_flwr.errors import DataError

TEXT_KEYS = ("raw_texts", "raw_text", "texts", "text")
LABEL_NAME_KEYS = ("label_name", "label_names", "class_names")
# torch.save does not compress, so a file declares about its own size. Texts and masks that somebody
# compressed again shrink 5 to 50 times; a bomb made of zeros reaches 1,000.
ZIP_FLOOR, ZIP_RATIO = 64 << 20, 50


def check_zip(file: Path) -> None:
    """Refuse a zip archive that declares far more bytes than it has, before anything is unpacked.

    Raises
    ------
    DataError : the declared sizes exceed both 64 MiB and 50 times the file's size, or the directory
        is broken
    """
    try:
        with zipfile.ZipFile(file) as archive:
            declared = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(
            f"{file}: expected a whole zip archive, found: {error}; get the file again"
        ) from error
    bound = max(ZIP_FLOOR, ZIP_RATIO * file.stat().st_size)
    if declared > bound:
        raise DataError(
            f"{file}: expected at most {bound >> 20} MiB unpacked, found {declared >> 20} MiB declared in "
            f"{file.stat().st_size} bytes; this is no data file"
        )


def load(file: Path) -> Any:
    """Return what a `torch.save` file holds: tensors, plain containers and PyG `Data`, nothing
    else.

    Raises
    ------
    DataError : the file holds other objects or code (nothing of it is run), is broken, or is a zip
        bomb
    """
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    try:
        is_zip = zipfile.is_zipfile(file)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(
            f"{file}: expected a torch file, found a broken one ({error}); get it again"
        ) from error
    if is_zip:
        check_zip(file)
    try:
        with (
            torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]),
            _quiet(),
        ):
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{file}: expected tensors, lists and a PyG Data object only, found {_reason(error)}; nothing of it was run"
        ) from error
    except OSError as error:
        raise DataError(
            f"{file}: expected a readable file, found: {error.strerror or error}; mend it"
        ) from error
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        reason = " ".join(str(error).split())[:120]
        raise DataError(
            f"{file}: expected a torch file, found a broken one ({reason}); get it again"
        ) from error


def pyg_graph(file: Path, split_index: int = 0, *, text: str = "", label: str = "") -> Incoming:
    """Return the graph in a PyG `Data` file with texts; ids are the row numbers.

    Parameters
    ----------
    split_index : which of several masks is the split
    text, label : keys of the texts and of the labels; empty for the usual ones

    Raises
    ------
    DataError : the file is refused, or a key is missing, of the wrong shape or type, or out of
        range
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
    """Return the graph of `edge_index`, `y` and masks in `data` with texts and class names from
    elsewhere.
    """
    where, n = str(files[0]), len(texts)
    key = label or "y"
    if key not in data:
        raise DataError(
            f"{where}: expected labels in {key!r}, found {', '.join(data)}; name them with --label"
        )
    classes = list(names) or next(
        (list(data[k]) for k in LABEL_NAME_KEYS if data.get(k) is not None), []
    )
    labels, schema = label_names(
        integers(data[key], key, where), [str(c) for c in classes], n, where
    )
    edge_index = integers(data.get("edge_index"), "edge_index", where)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise DataError(
            f"{where}: expected 'edge_index' of shape [2, m], found {list(edge_index.shape)}; transpose it"
        )
    ends = ends_of(edge_index, n, where)
    split = split_names(data, n, split_index, where)
    rows = rows_of([str(i) for i in range(n)], list(texts), labels, split)
    return Incoming(kind, files, rows, lambda ids: ends, tuple(schema))


def as_mapping(content: Any, file: Path) -> Mapping[str, Any]:
    """Return the keys of a `Data` object, of a dict, or of the first entry of a saved PyG data set."""
    from torch_geometric.data import Data

    if isinstance(content, tuple) and content:
        content = content[0]
    if isinstance(content, Data):
        try:
            return {str(k): v for k, v in content.to_dict().items()}
        except Exception as error:  # a Data object put together from a damaged file
            raise DataError(
                f"{file}: expected a whole PyG Data object, found a broken one; get it again"
            ) from error
    if isinstance(content, dict):
        return {str(k): v for k, v in content.items()}
    raise DataError(
        f"{file}: expected a PyG Data object, found {type(content).__name__}; export it as Data"
    )


def find_texts(data: Mapping[str, Any], file: Path, key: str = "") -> list[str]:
    """Return the node texts of a `Data` object."""
    found = next((k for k in ((key,) if key else TEXT_KEYS) if k in data), None)
    if found is None:
        raise DataError(
            f"{file}: expected node texts in {key or ' or '.join(TEXT_KEYS)!r}, found {', '.join(data)}; use --text"
        )
    return strings(data[found], f"{file}: {found!r}")


def strings(values: Any, where: str) -> list[str]:
    """Return a list of texts; None counts as empty."""
    if not isinstance(values, list | tuple):
        raise DataError(
            f"{where}: expected a list of texts, found {type(values).__name__}; convert it"
        )
    wrong = next((v for v in values if not isinstance(v, str | None)), None)
    if wrong is not None:
        raise DataError(
            f"{where}: expected a list of texts, found an entry of {type(wrong).__name__}; convert it"
        )
    return [v or "" for v in values]


def integers(values: Any, key: str, where: str) -> NDArray[np.int64]:
    """Return a tensor of whole numbers as int64; [n, 1] becomes [n]."""
    if (
        not isinstance(values, torch.Tensor)
        or values.device.type != "cpu"
        or values.layout != torch.strided
    ):
        found = "a sparse tensor" if isinstance(values, torch.Tensor) else type(values).__name__
        raise DataError(f"{where}: expected a tensor {key!r}, found {found}; convert it")
    # strides of zero can make a file of a few bytes declare any number of entries
    if values.numel() * values.element_size() > max(values.untyped_storage().nbytes(), 1):
        raise DataError(
            f"{where}: expected as many entries in {key!r} as are stored, found {values.numel()}; mend it"
        )
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    array = values.detach().numpy() if values.dtype != torch.bfloat16 else values.float().numpy()
    if array.dtype.kind == "f" and not (
        np.isfinite(array).all() and (array == np.floor(array)).all()
    ):
        raise DataError(
            f"{where}: expected whole numbers in {key!r}, found {array.dtype} with fractions or NaN; mend it"
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
    """Return each node's class name, "" where it has none (-1), and the classes of the schema."""
    if labels.shape != (num_nodes,):
        raise DataError(
            f"{where}: expected {num_nodes} labels, one per text, found {list(labels.shape)}; mend it"
        )
    if len(set(classes)) != len(classes) or "" in classes:
        raise DataError(
            f"{where}: expected class names that differ and are not empty, found {classes!r:.80}; mend them"
        )
    top = len(classes) if classes else np.iinfo(np.int64).max
    if num_nodes and not (labels.min() >= -1 and labels.max() < top):
        bound = (
            f"-1..{len(classes) - 1}, as there are {len(classes)} class names"
            if classes
            else "-1 or above"
        )
        raise DataError(
            f"{where}: expected labels in {bound}, found {labels.min()}..{labels.max()}; mend them"
        )
    if classes:
        names = np.array([*classes, ""], object)  # -1 picks the last
        return names[labels].tolist(), classes
    return [str(v) if v >= 0 else "" for v in labels.tolist()], []


def split_names(data: Mapping[str, Any], num_nodes: int, index: int, where: str) -> list[str]:
    """Return "train", "val", "test" or "" per node from vector, matrix or list masks."""
    code = np.zeros(num_nodes, np.int64)
    for number, name in enumerate(SPLIT_NAMES[1:], start=1):
        mask = data.get(f"{name}_mask")
        if mask is None:
            continue
        chosen = _mask(mask, f"{name}_mask", num_nodes, index, where)
        if (code[chosen] > 0).any():
            raise DataError(
                f"{where}: expected masks that do not overlap, found {name}_mask on other nodes; mend them"
            )
        code[chosen] = number
    return np.array(SPLIT_NAMES, object)[code].tolist()  # type: ignore[no-any-return]


def _mask(mask: Any, key: str, num_nodes: int, index: int, where: str) -> NDArray[np.bool_]:
    """Return one mask [n] of a vector, a list of vectors, or a matrix [n, k] or [k, n]."""
    if isinstance(mask, list | tuple):
        if not 0 <= index < len(mask):
            raise DataError(
                f"{where}: expected --split-index below {len(mask)}, found {index}; choose one of {key!r}"
            )
        mask = mask[index]
    values = (
        mask.numpy()
        if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool
        else integers(mask, key, where)
    )
    if values.ndim == 2 and num_nodes in values.shape:
        values = values if values.shape[0] == num_nodes else values.T
        if not 0 <= index < values.shape[1]:
            raise DataError(
                f"{where}: expected --split-index below {values.shape[1]}, found {index}; choose one"
            )
        values = values[:, index]
    if values.shape != (num_nodes,) or (values.dtype != bool and not np.isin(values, (0, 1)).all()):
        raise DataError(
            f"{where}: expected {key!r} with {num_nodes} values of true or false, found {list(values.shape)} "
            f"{values.dtype}; mend it"
        )
    return values.astype(bool)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's remarks on how the file was pickled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _reason(error: Exception) -> str:
    """Return the object that the unpickler names, or that there is something else."""
    words = " ".join(str(error).split())
    for mark in ("Unsupported global: GLOBAL ", "Unsupported class ", "Unsupported operand "):
        if mark in words:
            return words.partition(mark)[2].split(" ")[0].rstrip(".,")
    return "something else"
