"""Masks of secure aggregation from a 256-bit stream, in place of Flower's 32-bit generator.

Flower 1.41 folds the shared secret of two clients to 32 bits and seeds NumPy's Mersenne Twister
with them: a server can try all 2^32 seeds and remove the mask (flwrlabs/flower, issue 7522). Here
the secret is the key of ChaCha20 from `cryptography`. Flower derives the secret of two clients from
their keys alone; here the derivation also has a context. `dance_flwr.federation.secagg_masks`
replaces both.
"""

import base64
import hashlib
from collections.abc import Sequence
from math import prod

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from numpy.typing import NDArray

_LABEL = b"dance-flwr secure aggregation mask"
_SHARED_LABEL = b"dance-flwr secure aggregation key"


def shared_key(
    private: ec.EllipticCurvePrivateKey, public: ec.EllipticCurvePublicKey, context: bytes
) -> bytes:
    """Return the secret of two clients: ECDH, then HKDF-SHA256 with a context (RFC 5869, `info`).

    Parameters
    ----------
    private, public : the key of one client and that of the other; both are part of the context, in
        the same order at both sides
    context : purpose and run

    Returns
    -------
    44 bytes, base64 of 32: the form that Flower's encryption of shares takes
    """
    pair = sorted(
        key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        for key in (private.public_key(), public)
    )
    info = b"|".join([_SHARED_LABEL, context, *pair])
    derive = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive
    return base64.urlsafe_b64encode(derive(private.exchange(ec.ECDH(), public)))


def stream(secret: bytes, length: int) -> bytes:
    """Return `length` bytes of the ChaCha20 key stream under sha256(label || secret).

    RFC 8439, block counter 0, nonce 0. The nonce may be constant because a secret is used for one
    mask only: clients draw new keys and seeds in every round.
    """
    return key_stream(hashlib.sha256(_LABEL + secret).digest(), bytes(12), length)


def key_stream(key: bytes, nonce: bytes, length: int) -> bytes:
    """Return the ChaCha20 key stream from block 0; `key` has 32 bytes, `nonce` 12."""
    counter = bytes(4)
    return Cipher(ChaCha20(key, counter + nonce), mode=None).encryptor().update(bytes(length))


def masks(
    secret: bytes, modulus: int, shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[np.int64]]:
    """Return one array of uniform integers in [0, modulus) per shape.

    The signature is that of Flower's generator.

    Parameters
    ----------
    secret : any number of bytes, all of which count
    modulus : a power of two, at most 2^32

    Raises
    ------
    ValueError : any other modulus, for which the integers would not be uniform
    """
    if modulus < 2 or modulus & (modulus - 1) or modulus > 2**32:
        raise ValueError(f"expected a power of two from 2 to 2^32 as modulus, found {modulus}")
    sizes = [prod(shape) for shape in shapes]
    words = np.frombuffer(stream(secret, 4 * sum(sizes)), "<u4") & np.uint32(modulus - 1)
    parts = np.split(words.astype(np.int64), np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
