"""PyG `Data` objects saved with `torch.save`, read without running any code in the file."""

import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from dance_flwr.data.imports.archives import check_pickles, check_zip
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


def as_mapping(content: Any, file: Path) -> Mapping[str, Any]:
    """Return the content of a `Data` object, a dict, or the first entry of a saved PyG data set."""
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


def strings(values: Any, where: str) -> list[str]:
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
