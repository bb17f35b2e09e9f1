"""Slices of a text bank: the chunks of one graph as memory-mapped .npy files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.disk import atomic_file, mapped_array
from dance_flwr.errors import DataError

META = "bank.json"
# float16 halves what a client maps; rows of length 1 are far from its limits.
_SLICE_FILES = {
    "embeddings": ("chunk_embeddings.npy", np.float16, 2),
    "spans": ("chunk_spans.npy", np.int32, 2),
    "tokens": ("chunk_tokens.npy", np.int32, 1),
    "ptr": ("chunk_ptr.npy", np.int64, 1),
}
SLICE_FILES = tuple(name for name, _, _ in _SLICE_FILES.values())


@dataclass(frozen=True)
class BankSlice:
    """Chunks of n texts in order; those of text i are the rows ptr[i]:ptr[i+1].

    Attributes
    ----------
    embeddings : float16 [R, dim], rows of length 1
    spans : int32 [R, 2], character start and end in the text
    tokens : int32 [R], tokens without special tokens
    ptr : int64 [n+1], first row of each text
    """

    embeddings: NDArray[np.float16]
    spans: NDArray[np.int32]
    tokens: NDArray[np.int32]
    ptr: NDArray[np.int64]


def save_slice(folder: Path, part: BankSlice, meta: Mapping[str, Any]) -> None:
    """Write a slice as four .npy files and bank.json; nobody reads a mixture of two slices.

    Nothing is flushed: the digests of a client's card find what a power failure has torn.
    """
    text = json.dumps({**meta, "texts": len(part.ptr) - 1, "chunks": len(part.tokens)}, indent=1)
    (folder / META).unlink(missing_ok=True)  # a slice without it is incomplete
    for field, (name, dtype, _) in _SLICE_FILES.items():
        with atomic_file(folder / name) as file:
            np.save(file, np.ascontiguousarray(getattr(part, field), dtype=dtype))
    with atomic_file(folder / META) as file:
        file.write(text.encode())


def load_slice(folder: Path) -> BankSlice:
    """Open a slice; its embeddings are memory-mapped and read-only."""
    meta, arrays = read_meta(folder), {}
    for field, (name, dtype, ndim) in _SLICE_FILES.items():
        try:
            # Only embeddings are large.
            read = mapped_array if field == "embeddings" else np.load
            array = read(folder / name)
        except (OSError, ValueError, EOFError) as error:
            raise _bad_slice(folder, f"{name} that opens", str(error).splitlines()[0]) from error
        if array.dtype != dtype or array.ndim != ndim:
            raise _bad_slice(
                folder,
                f"{np.dtype(dtype)} with {ndim} axes in {name}",
                f"{array.dtype} {array.shape}",
            )
        arrays[field] = array
    part = BankSlice(**arrays)
    rows, texts = len(part.tokens), len(part.ptr) - 1
    expected = (
        (rows, meta.get("dim", part.embeddings.shape[1])),
        (rows, 2),
        meta.get("chunks", rows),
        meta.get("texts", texts),
    )
    actual = (part.embeddings.shape, part.spans.shape, rows, texts)
    if expected != actual:
        raise _bad_slice(folder, f"shapes {expected}", str(actual))
    if texts < 0 or part.ptr[0] != 0 or part.ptr[-1] != rows or (np.diff(part.ptr) < 0).any():
        raise _bad_slice(folder, f"chunk_ptr.npy that rises from 0 to {rows}", str(part.ptr))
    return part


def read_meta(folder: Path) -> dict[str, Any]:
    """Return bank.json of a slice."""
    try:
        meta = json.loads((folder / META).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _bad_slice(folder, f"a readable {META}", type(error).__name__) from error
    if not isinstance(meta, dict):
        raise _bad_slice(folder, f"an object in {META}", type(meta).__name__)
    return meta


def _bad_slice(folder: Path, expected: str, found: str) -> DataError:
    return DataError(
        f"text bank {folder}: expected {expected}, found {found}; "
        "remove the folder and prepare it again"
    )
