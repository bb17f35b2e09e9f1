"""Fingerprints of code and of models."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

APP = "_app"  # folder of the package in a wheel: what lies beside the package in a checkout
_PACKAGE = Path(__file__).parent


@lru_cache(maxsize=1)
def code_fingerprint() -> str:
    """Return 16 hex digits of sha256 over the sources of the package and the two apps, by name.

    A checkout, what Flower unpacks and an installed wheel of the same sources have the same.
    """
    digest = hashlib.sha256()
    inside = _PACKAGE / APP
    sources = [path for path in sorted(_PACKAGE.rglob("*.py")) if inside not in path.parents]
    beside = inside if inside.is_dir() else _PACKAGE.parent
    for path in [*sources, beside / "client_app.py", beside / "server_app.py"]:
        if path.is_file():
            base = beside if path.parent == beside else _PACKAGE.parent
            digest.update(path.relative_to(base).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def model_fingerprint(state: Mapping[str, Tensor]) -> str:
    """Return 16 hex digits of sha256 over names, shapes and bytes of a state dict, by name."""
    digest = hashlib.sha256()
    for name in sorted(state):
        array = state[name].detach().cpu().contiguous().numpy()
        digest.update(f"{name}:{array.dtype}:{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def file_sha256(file: Path) -> str:
    """Return the sha256 hex of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
