"""The encoder of a client's texts, and a comparison of its embeddings with those texts."""

import secrets
from collections.abc import Sequence

import numpy as np

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.data.text.bank_slice import read_meta
from dance_flwr.data.text.encoder import EncoderSpec, loaded, resolve_local
from dance_flwr.errors import DataError, counted

# The same chunk in another batch, on another machine or in bfloat16 has more, another chunk less.
MIN_COSINE = 0.99


def own_encoder(data: ClientData) -> EncoderSpec:
    """Return the encoder of a client's texts after checking its files; it is not loaded.

    Raises
    ------
    DataError : its files are not on this machine, or are others than those that encoded the texts
    """
    meta = read_meta(data.folder / "text")
    name, precision = str(meta["encoder"]), str(meta["precision"])
    try:
        spec = resolve_local(name, precision, str(meta["weights_sha256"]))
    except OSError as error:
        raise DataError(
            f"encoder {name!r}: expected its files on this machine, found {type(error).__name__}; "
            "encode the client's texts again here"
        ) from None
    # Vectors of two encoders cannot be compared: new texts need the files that encoded the chunks.
    if spec.fingerprint != meta.get("encoder_fingerprint"):
        raise DataError(
            f"encoder {name!r}: expected the files that encoded the client's texts, found others; "
            "install that version again, or encode the texts again"
        )
    return spec


def encoded_again(data: ClientData, texts: Sequence[str], count: int) -> str:
    """Encode chunks that are drawn at random; return in words what was compared.

    Parameters
    ----------
    texts : of the client's nodes
    count : of chunks, at most; 0 = none

    Raises
    ------
    DataError : an embedding is not that of its chunk
    """
    every = len(data.bank.tokens)
    # Why no seed (decision 20): whoever alters embeddings could leave those alone that a seed
    # draws.
    drawn = secrets.SystemRandom().sample(range(every), min(count, every))
    rows = np.array(sorted(drawn), np.int64)
    if not len(rows):
        return "no embedding computed again"
    try:
        spec = own_encoder(data)
    except DataError as error:
        return f"no embedding computed again, {error}"
    node = np.searchsorted(data.bank.ptr, rows, side="right") - 1
    spans = data.bank.spans[rows].tolist()
    chunks = [texts[owner][start:end] for owner, (start, end) in zip(node, spans, strict=True)]
    stored = np.asarray(data.bank.embeddings[rows], np.float32)
    cosine = (loaded(spec).encode(chunks) * stored).sum(axis=1)
    # Not "<", which is false for NaN.
    wrong = np.flatnonzero(~(cosine >= MIN_COSINE))
    if len(wrong):
        start, end = spans[wrong[0]]
        raise DataError(
            f"{data.folder}: node {data.ids()[node[wrong[0]]]!r}, characters {start}-{end}: "
            f"expected the embedding of encoder {spec.name!r}, found one of cosine "
            f"{cosine[wrong[0]]:.2f} with it; encode the texts again"
        )
    alike = f"{cosine.min():.4f} alike or more"
    return f"{len(rows)} of {counted(every, 'text passage')} encoded again, {alike} (cosine)"
