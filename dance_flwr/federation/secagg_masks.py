"""Replace two functions of Flower's SecAgg+ with those of `dance_flwr.privacy.masks`.

They make the masks and the secret of two clients. Flower's client and server modules each hold both
under their names; `install` replaces them.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from dance_flwr.errors import UserError
from dance_flwr.federation import flower
from dance_flwr.privacy.masks import masks
from dance_flwr.privacy.masks import shared_key as derive

# sha256 of the source of each function that `install` may replace. Read another one first.
KNOWN_SHA256 = {
    "pseudo_rand_gen": "19ee2545ed58c0174c0b1a56f4211d635347156163ae76a711613badad4b25e9",
    "generate_shared_key": "5ee640972ced1faa1d7ac8c607eb96afd4e4268a1cb184d51a5d632206686118",
}
# What two clients share a secret for.
MASKS, SHARES = "masks", "shares"
_CONTEXT: ContextVar[bytes] = ContextVar("derivation")


@contextmanager
def derivation(run: int, purpose: str, asked: str = "") -> Iterator[None]:
    """Derive the secrets of two clients for this run and this purpose during the block.

    Parameters
    ----------
    asked : the `request_digest` of the sum, for masks
    """
    token = _CONTEXT.set(f"{purpose}|{run}|{asked}".encode())
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def shared_key(private: ec.EllipticCurvePrivateKey, public: ec.EllipticCurvePublicKey) -> bytes:
    """Return the secret of two clients in the context of `derivation`.

    Raises
    ------
    LookupError : there is none
    """
    return derive(private, public, _CONTEXT.get())


def install() -> None:
    """Make Flower's SecAgg+ use our functions at client and server; further calls change nothing.

    Raises
    ------
    UserError : this version of Flower has other functions, or keeps them elsewhere
    """
    for theirs, ours in (
        (flower.pseudo_rand_gen, masks),
        (flower.generate_shared_key, shared_key),
    ):
        name, digest = theirs.__name__, _fingerprint(theirs)
        if digest != KNOWN_SHA256[name]:
            raise UserError(
                f"privacy.secure-aggregation: expected Flower's {name} with sha256 "
                f"{KNOWN_SHA256[name][:12]}, found {digest[:12]}; use flwr>=1.41,<1.42, or read "
                "the new one and update dance_flwr/federation/secagg_masks.py"
            )
        for path in flower.MASK_USERS:
            module = import_module(path)
            if not hasattr(module, name):
                raise UserError(
                    f"privacy.secure-aggregation: expected {name} in {path}, found none; "
                    "use flwr>=1.41,<1.42"
                )
            setattr(module, name, ours)


@lru_cache(maxsize=4)  # `install` runs with every message of the protocol
def _fingerprint(function: Callable[..., Any]) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
