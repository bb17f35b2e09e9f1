"""Text bank: chunk embeddings on disk, addressed by the content of the text, encoded once."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.text.bank_slice import META, BankSlice, read_meta
from dance_flwr.data.text.chunking import CHUNKER_VERSION, Chunks, chunk_texts
from dance_flwr.data.text.encoder import EncoderSpec, TextEncoder
from dance_flwr.disk import append_to, atomic_file, awaited_lock
from dance_flwr.errors import DataError
from dance_flwr.terminal import Bar, bar

DATA, INDEX = "embeddings.f16", "index.jsonl"


class BankIndex:
    """Index of a bank, one JSON line per text, read incrementally.

    Parameters
    ----------
    folder : folder of the bank
    dim : length of an embedding

    Attributes
    ----------
    entries : text key -> "row" (first row), "tokens" and "spans" of its chunks, and "cut" (whether
        its end is omitted)
    rows : number of rows of all entries
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self._path, self._data, self._row_bytes = folder / INDEX, folder / DATA, 2 * dim
        self._forget()

    def _forget(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.rows = self._offset = 0

    def read(self) -> None:
        """Read the lines added since the last call, without an incomplete last line."""
        size = self._path.stat().st_size if self._path.is_file() else 0
        if size < self._offset:  # the bank was removed
            self._forget()
        if size > self._offset:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                lines = file.read().splitlines(keepends=True)
            for number, line in enumerate(lines):
                if not self._add(line):
                    # A killed process may leave half of the last line, which `repair` cuts off.
                    if number < len(lines) - 1:
                        raise self._damaged(
                            f"line {len(self.entries) + 1} of {INDEX} is not an entry"
                        )
                    break
        held = self._data.stat().st_size if self._data.is_file() else 0
        if held < self.rows * self._row_bytes:
            raise self._damaged(f"{DATA} has {held} bytes, not {self.rows * self._row_bytes}")

    def _add(self, line: bytes) -> bool:
        try:
            entry = json.loads(line)
            good = (
                line.endswith(b"\n")
                and entry["row"] == self.rows
                and isinstance(entry["cut"], bool)
            )
            good = good and len(entry["spans"]) == len(entry["tokens"]) > 0
            if good:
                self.entries[entry.pop("text")] = entry
        except (ValueError, KeyError, TypeError):
            return False
        if good:
            self.rows += len(entry["tokens"])
            self._offset += len(line)
        return bool(good)

    def repair(self) -> None:
        """Truncate the files after the last complete entry; the caller must hold the lock."""
        self.read()
        for path, size in ((self._path, self._offset), (self._data, self.rows * self._row_bytes)):
            if path.is_file() and path.stat().st_size > size:
                os.truncate(path, size)

    def _damaged(self, found: str) -> DataError:
        return DataError(
            f"text bank {self._path.parent}: expected an undamaged bank, found that {found}; "
            "remove the folder to encode again"
        )


def text_key(text: str) -> str:
    """Return the key of a text: the sha256 hex of its UTF-8 bytes."""
    # A text may hold half a character, which strict UTF-8 refuses.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def index_line(key: str, row: int, chunks: Chunks, text: int) -> bytes:
    """Return the index line of text number `text` of `chunks`; `row` is its first row."""
    rows = slice(chunks.ptr[text], chunks.ptr[text + 1])
    entry = {
        "text": key,
        "row": row,
        "tokens": chunks.tokens[rows].tolist(),
        "spans": chunks.spans[rows].tolist(),
        "cut": bool(chunks.truncated[text]),
    }
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    """Append bytes to a file and flush them to the device; the caller must hold the lock."""
    with append_to(path) as file:
        file.write(data)
        file.flush()
        # A line of the index must not be on the disk before the rows that it names.
        os.fsync(file.fileno())


BLOCK_CHUNKS = 1024  # chunks per commit: the most work that a crash can lose

_PATIENCE = 1.0  # seconds to wait for another process before saying so
_GROUP = 128  # chunks per update of the progress bar
_TOKENS_ON_CARD = 32_768  # Why (decision 31): as many keep a card busy
_SPECIAL_TOKENS = 2  # the encoder adds one token before and one after every chunk


@dataclass(frozen=True)
class BankStats:
    """Statistics of a call of `TextBank.ensure`.

    Attributes
    ----------
    texts_total : number of texts in the call
    texts_encoded, chunks_encoded : numbers that were missing and are now encoded
    seconds : wall-clock time
    """

    texts_total: int
    texts_encoded: int
    chunks_encoded: int
    seconds: float


class TextBank:
    """An append-only store of chunk embeddings under `<root>/bank/<fingerprint[:16]>/`.

    Embeddings are committed before the index line that refers to them, so a crash leaves at most
    unindexed rows, which the next writer removes. Any number of processes may read at the same
    time, also while one encodes; another one that has texts to encode waits for it.

    Parameters
    ----------
    root : folder of the banks
    encoder : a resolved encoder, loaded only if a text is missing, or a loaded one
    chunk_tokens : maximum number of tokens per chunk
    max_chunks : maximum number of chunks per text
    device : torch device to encode on

    Attributes
    ----------
    fingerprint : sha256 hex of the encoder, the chunk settings and the version of the chunker
    meta : content of bank.json

    Raises
    ------
    DataError : chunks would be longer than the encoder's input, or the folder holds another bank
    """

    def __init__(
        self,
        root: Path,
        encoder: EncoderSpec | TextEncoder,
        chunk_tokens: int,
        max_chunks: int,
        device: str = "cpu",
    ) -> None:
        self._encoder = encoder if isinstance(encoder, TextEncoder) else None
        self.spec = encoder.spec if isinstance(encoder, TextEncoder) else encoder
        self.chunk_tokens, self.max_chunks, self._device = chunk_tokens, max_chunks, device
        longest = self.spec.max_seq_tokens - _SPECIAL_TOKENS
        if (
            chunk_tokens < 1
            or max_chunks < 1
            or 0 < self.spec.max_seq_tokens < chunk_tokens + _SPECIAL_TOKENS
        ):
            raise DataError(
                f"text bank: expected chunk_tokens in 1..{longest} for encoder {self.spec.name!r} "
                f"and max_chunks >= 1, found {chunk_tokens} and {max_chunks}; change them"
            )
        settings = {
            "encoder_fingerprint": self.spec.fingerprint,
            "chunk_tokens": chunk_tokens,
            "max_chunks": max_chunks,
            "chunker_version": CHUNKER_VERSION,
        }
        self.fingerprint = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        self.meta: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "encoder": self.spec.name,
            "weights_sha256": self.spec.weights_sha256,
            "precision": self.spec.precision,
            "dim": self.spec.dim,
            **settings,
        }
        self.folder = Path(root) / "bank" / self.fingerprint[:16]
        self._index = BankIndex(self.folder, self.spec.dim)
        self._check_meta()

    def ensure(self, texts: Sequence[str], progress: bool = True) -> BankStats:
        """Encode the texts that the bank lacks, in blocks that are committed one by one.

        Parameters
        ----------
        texts : n texts, which may repeat
        progress : show how many tokens are encoded, and the time left
        """
        begin = time.perf_counter()
        by_key = {text_key(text): text for text in texts}
        self._index.read()
        encoded = Chunks.none()
        if by_key.keys() - self._index.entries.keys():
            line = f"waiting: another process is encoding for the text bank {self.folder}"
            lock = self.folder.with_suffix(".lock")
            with awaited_lock(lock, _PATIENCE, lambda: print(line, file=sys.stderr)):
                # Another process may have written some of them meanwhile.
                self._index.repair()
                known = self._index.entries
                missing = {key: text for key, text in by_key.items() if key not in known}
                encoded = self._encode(missing, progress)
        seconds = time.perf_counter() - begin
        return BankStats(len(texts), len(encoded.ptr) - 1, len(encoded.tokens), seconds)

    def gather(self, texts: Sequence[str]) -> BankSlice:
        """Return the chunks of these texts, in order, copied from the memory-mapped bank."""
        self._index.read()
        keys = [text_key(text) for text in texts]
        if absent := sum(key not in self._index.entries for key in keys):
            raise DataError(
                f"text bank: expected all {len(keys)} texts in it, {absent} are missing; "
                "run ensure() first"
            )
        entries = [self._index.entries[key] for key in keys]
        counts = np.array([len(entry["tokens"]) for entry in entries], np.int64)
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        start = np.array([entry["row"] for entry in entries], np.int64)
        rows = np.repeat(start - ptr[:-1], counts) + np.arange(ptr[-1])
        spans = np.array([span for entry in entries for span in entry["spans"]], np.int32)
        tokens = np.array([count for entry in entries for count in entry["tokens"]], np.int32)
        embeddings = np.zeros((0, self.spec.dim), np.float16)
        if len(rows):
            shape = (self._index.rows, self.spec.dim)
            stored = np.memmap(self.folder / DATA, np.float16, "r", shape=shape)
            embeddings = np.asarray(stored[rows])
        return BankSlice(embeddings, spans.reshape(-1, 2), tokens, ptr)

    def _check_meta(self) -> None:
        if not (self.folder / META).is_file():
            return
        meta = read_meta(self.folder)
        # Different names may refer to the same weights, so the fingerprint decides.
        wrong = [key for key in self.meta if key != "encoder" and meta.get(key) != self.meta[key]]
        if wrong:
            raise DataError(
                f"text bank {self.folder}: expected {wrong[0]} {self.meta[wrong[0]]!r}, "
                f"found {meta.get(wrong[0])!r}; remove the folder to encode again"
            )

    def _encode(self, missing: Mapping[str, str], progress: bool) -> Chunks:
        if self._encoder is None:
            self._encoder = TextEncoder.from_spec(self.spec, self._device)
        keys, texts = list(missing), list(missing.values())
        chunks = chunk_texts(texts, self._encoder.tokenizer, self.chunk_tokens, self.max_chunks)
        if not (self.folder / META).is_file():
            with atomic_file(self.folder / META, lasting=True) as file:
                file.write(json.dumps(self.meta, indent=1).encode())
        self._check_meta()
        # It counts tokens, as chunks differ in length.
        with bar("texts", int(chunks.tokens.sum()), "tokens", visible=progress) as shown:
            for block in _blocks(chunks.ptr):
                rows = slice(chunks.ptr[block.start], chunks.ptr[block.stop])
                owner = np.repeat(block, np.diff(chunks.ptr)[block.start : block.stop])
                spans = zip(owner.tolist(), chunks.spans[rows].tolist(), strict=True)
                parts = [texts[i][start:end] for i, (start, end) in spans]
                vectors = self._encode_block(parts, chunks.tokens[rows], shown)
                first = self._index.rows - chunks.ptr[block.start]
                lines = [index_line(keys[i], int(first + chunks.ptr[i]), chunks, i) for i in block]
                append(self.folder / DATA, vectors.tobytes())
                append(self.folder / INDEX, b"".join(lines))
                self._index.read()
        return chunks

    def _encode_block(
        self, parts: list[str], tokens: NDArray[np.int32], shown: Bar
    ) -> NDArray[np.float16]:
        assert self._encoder is not None
        vectors = np.empty((len(parts), self.spec.dim), np.float16)
        order = np.argsort(tokens, kind="stable")
        size = _GROUP if self._device == "cpu" else _TOKENS_ON_CARD // (int(tokens.max()) + 2)
        options = {} if self._device == "cpu" else {"batch": size}
        for group in np.split(order, range(size, len(order), size)):
            vectors[group] = self._encoder.encode([parts[i] for i in group], **options)
            shown.update(int(tokens[group].sum()))
        return vectors


def _blocks(ptr: NDArray[np.int64]) -> Iterator[range]:
    """Yield ranges of texts with at least BLOCK_CHUNKS chunks; the last may have fewer."""
    first = 0
    while first < len(ptr) - 1:
        last = min(int(np.searchsorted(ptr, ptr[first] + BLOCK_CHUNKS)), len(ptr) - 1)
        yield range(first, last)
        first = last
