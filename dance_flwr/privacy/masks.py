"""Masks of secure aggregation from a 256-bit stream, in place of Flower's 32-bit generator.

Flower 1.41 folds the shared secret of two clients to 32 bits and seeds NumPy's Mersenne Twister with them: a server can
try all 2^32 seeds and take the mask off (flwrlabs/flower, issue 7522). Here the secret is the key of ChaCha20 from
`cryptography`. Client and server modules of Flower hold the generator under one name each; `install` replaces both.
"""

import hashlib
import importlib
import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from dance_flwr.errors import UserError

# By path: the package `flwr.client.mod` also exports a function called `secaggplus_mod`.
CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"
UTILS = "flwr.common.secure_aggregation.secaggplus_utils"
NAME = "pseudo_rand_gen"
# sha256 of the source of Flower's generator that `install` knows; another one must be read before it is replaced.
KNOWN_SHA256 = "19ee2545ed58c0174c0b1a56f4211d635347156163ae76a711613badad4b25e9"
_LABEL = b"dance-flwr secure aggregation mask"


def stream(secret: bytes, length: int) -> bytes:
    """ChaCha20 key stream (RFC 8439, block counter 0, nonce 0) under sha256(label || secret); `length` bytes.

    The nonce may be constant because a secret makes one mask only: clients draw new keys and seeds in every round.
    """
    return key_stream(hashlib.sha256(_LABEL + secret).digest(), bytes(12), length)


def key_stream(key: bytes, nonce: bytes, length: int) -> bytes:
    """ChaCha20 key stream from block 0; `key` of 32 bytes, `nonce` of 12."""
    counter = bytes(4)
    return Cipher(ChaCha20(key, counter + nonce), mode=None).encryptor().update(bytes(length))


def masks(secret: bytes, modulus: int, shapes: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
    """Return one array of uniform integers in [0, modulus) per shape; same signature as Flower's generator.

    Parameters
    ----------
    secret : all of its bits count
    modulus : a power of two, at most 2^32

    Raises
    ------
    ValueError : another modulus, for which the integers would not be uniform
    """
    if modulus < 2 or modulus & (modulus - 1) or modulus > 2**32:
        raise ValueError(f"expected a power of two from 2 to 2^32 as modulus, found {modulus}")
    sizes = [prod(shape) for shape in shapes]
    words = np.frombuffer(stream(secret, 4 * sum(sizes)), "<u4") & np.uint32(modulus - 1)
    parts = np.split(words.astype(np.int64), np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def install() -> None:
    """Make Flower's SecAgg+ use `masks`, at the client and at the server; calling it again does nothing.

    Raises
    ------
    UserError : this Flower's generator is not the one that was read and replaced
    """
    found = _fingerprint(getattr(importlib.import_module(UTILS), NAME))
    if found != KNOWN_SHA256:
        raise UserError(
            f"privacy.secure-aggregation: expected Flower's mask generator with sha256 {KNOWN_SHA256[:12]}, found "
            f"{found[:12]}; use flwr>=1.41,<1.42, or read the new one and update dance_flwr/privacy/masks.py"
        )
    for module in _users():
        if not hasattr(module, NAME):
            raise UserError(f"privacy.secure-aggregation: expected {NAME} in {module.__name__}, found none")
        setattr(module, NAME, masks)


@lru_cache(maxsize=4)  # `install` runs with every message of the protocol
def _fingerprint(function: Callable[..., Any]) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()


def _users() -> list[ModuleType]:
    return [importlib.import_module(CLIENT), importlib.import_module(SERVER)]
