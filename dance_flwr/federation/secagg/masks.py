"""Masks of two clients from all bits of their secret, in place of those of Flower's SecAgg+.

Flower 1.42 folds the shared secret of two clients to 32 bits and seeds NumPy's Mersenne Twister
with them: a server can try all 2^32 seeds and remove the mask (flwrlabs/flower, issue 7522). Here
the secret is the key of ChaCha20 from `cryptography`. Flower derives the secret of two clients from
their keys alone; here the derivation also has a context. Flower's client and server modules each
hold both functions under their names; `install` replaces them.
"""

import base64
import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from numpy.typing import NDArray

from dance_flwr.errors import UserError
from dance_flwr.federation import flower
from dance_flwr.federation.privacy.noise import key_stream

# One label per use of a secret, so that no output is ever that of another use.
_LABEL = b"dance-flwr secure aggregation mask"
_SHARED_LABEL = b"dance-flwr secure aggregation key"
# sha256 of the source of each function that `install` may replace. Read another one first.
KNOWN_SHA256 = {
    "pseudo_rand_gen": "19ee2545ed58c0174c0b1a56f4211d635347156163ae76a711613badad4b25e9",
    "generate_shared_key": "5ee640972ced1faa1d7ac8c607eb96afd4e4268a1cb184d51a5d632206686118",
}
# What two clients share a secret for. The secret of the masks depends on the request, that of the
# shares does not: clients exchange shares before they know what is asked.
MASKS, SHARES = "masks", "shares"
_CONTEXT: ContextVar[bytes] = ContextVar("derivation")


@contextmanager
def derivation(run: int, purpose: str, request: str = "") -> Iterator[None]:
    """Derive the secrets of two clients for this run and this purpose during the block.

    Parameters
    ----------
    request : the `request_digest` of the sum, for masks
    """
    token = _CONTEXT.set(f"{purpose}|{run}|{request}".encode())
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def shared_key(private: ec.EllipticCurvePrivateKey, public: ec.EllipticCurvePublicKey) -> bytes:
    """Return the secret of two clients: ECDH, then HKDF-SHA256 (RFC 5869, `info`) in a context.

    Parameters
    ----------
    private, public : the key of one client and that of the other

    Returns
    -------
    44 bytes, base64 of 32: the form that Flower's encryption of shares takes

    Raises
    ------
    LookupError : outside `derivation`, where there is no context
    """
    # Both public keys are part of the context, in one order at both sides, so that a secret is
    # bound to the pair and not only to the point that both reach.
    pair = sorted(
        key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        for key in (private.public_key(), public)
    )
    info = b"|".join([_SHARED_LABEL, _CONTEXT.get(), *pair])
    derive = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive
    return base64.urlsafe_b64encode(derive(private.exchange(ec.ECDH(), public)))


def stream(secret: bytes, length: int) -> bytes:
    """Return `length` bytes of the ChaCha20 key stream under sha256(label || secret).

    RFC 8439, block counter 0, nonce 0. The nonce may be constant because a secret is used for one
    mask only: clients draw new keys and seeds in every round.
    """
    return key_stream(hashlib.sha256(_LABEL + secret).digest(), bytes(12), length)


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
    # The lowest bits of a uniform word are uniform, as the modulus is a power of two.
    words = np.frombuffer(stream(secret, 4 * sum(sizes)), "<u4") & np.uint32(modulus - 1)
    parts = np.split(words.astype(np.int64), np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def install() -> None:
    """Make Flower's SecAgg+ use our functions, at client and server; further calls do nothing."""
    for theirs, ours in (
        (flower.pseudo_rand_gen, masks),
        (flower.generate_shared_key, shared_key),
    ):
        name, digest = theirs.__name__, _source_sha256(theirs)
        if digest != KNOWN_SHA256[name]:
            raise UserError(
                f"privacy.secure-aggregation: expected Flower's {name} with sha256 "
                f"{KNOWN_SHA256[name][:12]}, found {digest[:12]}; use flwr>=1.42,<1.43, or read "
                "the new one and update dance_flwr/federation/secagg/masks.py"
            )
        for path in flower.MASK_USERS:
            module = import_module(path)
            if not hasattr(module, name):
                raise UserError(
                    f"privacy.secure-aggregation: expected {name} in {path}, found none; "
                    "use flwr>=1.42,<1.43"
                )
            setattr(module, name, ours)


@lru_cache(maxsize=4)  # `install` runs with every message of the protocol
def _source_sha256(function: Callable[..., Any]) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
