"""Text bank: chunk embeddings in an SQLite file, by the content of the text, encoded once."""

import errno
import hashlib
import json
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.text.bank_slice import BankSlice
from dance_flwr.data.text.chunking import CHUNKER_VERSION, Chunks, chunk_texts
from dance_flwr.data.text.encoder import EncoderSpec, TextEncoder
from dance_flwr.disk import append_to, awaited_lock, create_folder
from dance_flwr.errors import DataError
from dance_flwr.terminal import Bar, bar

FILE = "bank.sqlite"
_TABLE = "CREATE TABLE IF NOT EXISTS texts (key TEXT PRIMARY KEY, spans, tokens, embeddings)"
_KEYS_AT_ONCE = 500  # in a query
_SECONDS = 60.0  # to wait for another process, which writes a block in milliseconds

BLOCK_CHUNKS = 1024  # chunks per commit: the most work that a crash can lose

_PATIENCE = 1.0  # seconds to wait for another process before saying so
_GROUP = 128  # chunks per update of the progress bar
_TOKENS_ON_CARD = 32_768  # Why (decision 31): as many keep a card busy
_SPECIAL_TOKENS = 2  # the encoder adds one token before and one after every chunk


def text_key(text: str) -> str:
    """Return the key of a text: the sha256 hex of its UTF-8 bytes."""
    # A text may hold half a character, which strict UTF-8 refuses.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
    """A store of chunk embeddings under `<root>/bank/<fingerprint[:16]>/`.

    Any number of processes may read at the same time, also while one encodes; another one that has
    texts to encode waits for it. A killed process loses the block that it was encoding.

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
    meta : `bank.json` of the slices of clients, but for their sizes

    Raises
    ------
    DataError : chunks would be longer than the encoder's input
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
                f"chunk-tokens: expected 1 to {longest} for encoder {self.spec.name!r}, and "
                f"max-chunks from 1, found {chunk_tokens} and {max_chunks}; change them"
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

    def ensure(self, texts: Sequence[str], progress: bool = True) -> BankStats:
        """Encode the texts that the bank lacks, in blocks that are committed one by one.

        Parameters
        ----------
        texts : n texts, which may repeat
        progress : show how many tokens are encoded, and the time left
        """
        begin = time.perf_counter()
        by_key = {text_key(text): text for text in texts}
        encoded = None
        if self._missing(by_key):
            line = f"waiting: another process is encoding for the text bank {self.folder}"
            lock = self.folder.with_suffix(".lock")
            with awaited_lock(lock, _PATIENCE, lambda: print(line, file=sys.stderr)):
                # Another process may have written some of them meanwhile.
                encoded = self._encode(self._missing(by_key), progress)
        new = (len(encoded.ptr) - 1, len(encoded.tokens)) if encoded else (0, 0)
        return BankStats(len(texts), *new, time.perf_counter() - begin)

    def gather(self, texts: Sequence[str]) -> BankSlice:
        """Return the chunks of these texts, in order."""
        keys = [text_key(text) for text in texts]
        if absent := self._missing(dict.fromkeys(keys, "")):
            raise DataError(
                f"text bank: expected all {len(keys)} texts in it, found {len(absent)} missing; "
                "run ensure() first"
            )
        columns: tuple[list[bytes], ...] = [], [], []
        counts: list[int] = []
        for part, found in self._read(keys, "spans", "tokens", "embeddings"):
            rows = [found[key] for key in part]
            counts += [len(tokens) // np.int32().itemsize for _, tokens, _ in rows]
            for column, entries in zip(columns, zip(*rows, strict=True), strict=True):
                column.append(b"".join(entries))
        spans, tokens, embeddings = (
            np.frombuffer(b"".join(column), kind)
            for column, kind in zip(columns, (np.int32, np.int32, np.float16), strict=True)
        )
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return BankSlice(embeddings.reshape(-1, self.spec.dim), spans.reshape(-1, 2), tokens, ptr)

    def _missing(self, by_key: Mapping[str, str]) -> dict[str, str]:
        known = {key for _, found in self._read(list(by_key)) for key in found}
        return {key: text for key, text in by_key.items() if key not in known}

    def _read(
        self, keys: Sequence[str], *columns: str
    ) -> Iterator[tuple[Sequence[str], dict[str, list[bytes]]]]:
        """Yield some of the keys, and key -> these columns of those that the bank has."""
        if not (self.folder / FILE).is_file():
            return
        with self._database() as database:
            for first in range(0, len(keys), _KEYS_AT_ONCE):
                part = keys[first : first + _KEYS_AT_ONCE]
                marks = ", ".join("?" * len(part))
                query = f"SELECT {', '.join(['key', *columns])} FROM texts WHERE key IN ({marks})"
                yield part, {key: entries for key, *entries in database.execute(query, part)}

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Open the file of the bank, which must exist, for a transaction.

        Raises
        ------
        DataError : it is damaged
        OSError : the disk is full
        """
        path = self.folder / FILE
        try:
            with closing(sqlite3.connect(path, timeout=_SECONDS)) as database, database:
                database.execute(_TABLE)
                yield database
        except sqlite3.DatabaseError as error:
            # The last byte is the kind of an error; others tell which call failed.
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise OSError(errno.ENOSPC, str(error), str(path)) from error
            raise DataError(
                f"text bank {self.folder}: expected an undamaged bank, found: {error}; "
                "remove the folder to encode again"
            ) from None

    def _encode(self, missing: Mapping[str, str], progress: bool) -> Chunks:
        if self._encoder is None:
            self._encoder = TextEncoder.from_spec(self.spec, self._device)
        keys, texts = list(missing), list(missing.values())
        chunks = chunk_texts(texts, self._encoder.tokenizer, self.chunk_tokens, self.max_chunks)
        create_folder(self.folder)
        append_to(self.folder / FILE).close()  # of this user alone, which SQLite would not make it
        # It counts tokens, as chunks differ in length.
        with bar("texts", int(chunks.tokens.sum()), "tokens", visible=progress) as shown:
            for block in _blocks(chunks.ptr):
                rows = slice(chunks.ptr[block.start], chunks.ptr[block.stop])
                owner = np.repeat(block, np.diff(chunks.ptr)[block.start : block.stop])
                spans = zip(owner.tolist(), chunks.spans[rows].tolist(), strict=True)
                parts = [texts[i][start:end] for i, (start, end) in spans]
                vectors = self._encode_block(parts, chunks.tokens[rows], shown)
                with self._database() as database:
                    for i in block:
                        first, last = chunks.ptr[i : i + 2]
                        arrays = (
                            chunks.spans[first:last],
                            chunks.tokens[first:last],
                            vectors[first - rows.start : last - rows.start],
                        )
                        entry = (keys[i], *(array.tobytes() for array in arrays))
                        database.execute("INSERT INTO texts VALUES (?, ?, ?, ?)", entry)
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
