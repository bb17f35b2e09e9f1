"""Fingerprints of code and of models."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_PACKAGE = Path(__file__).parent


@lru_cache(maxsize=1)
def code_fingerprint() -> str:
    """Return 16 hex digits of sha256 over the sources of the package and the two apps, by name."""
    digest = hashlib.sha256()
    apps = [_PACKAGE.parent / name for name in ("client_app.py", "server_app.py")]
    for path in [*sorted(_PACKAGE.rglob("*.py")), *apps]:
        if path.is_file():
            digest.update(path.relative_to(_PACKAGE.parent).as_posix().encode())
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
