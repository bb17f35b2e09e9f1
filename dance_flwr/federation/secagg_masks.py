"""Replace the masks of Flower's SecAgg+ with those of `dance_flwr.privacy.masks`.

Flower's client and server modules each hold the generator under one name; `install` replaces both.
"""

import hashlib
import inspect
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from dance_flwr.errors import UserError
from dance_flwr.federation import flower
from dance_flwr.privacy.masks import masks

NAME = "pseudo_rand_gen"
# sha256 of the source of the generator that `install` may replace. Read another one first.
KNOWN_SHA256 = "19ee2545ed58c0174c0b1a56f4211d635347156163ae76a711613badad4b25e9"


def install() -> None:
    """Make Flower's SecAgg+ use `masks` at client and server; further calls change nothing.

    Raises
    ------
    UserError : this version of Flower has another generator, or keeps it elsewhere
    """
    digest = _fingerprint(flower.pseudo_rand_gen)
    if digest != KNOWN_SHA256:
        raise UserError(
            f"privacy.secure-aggregation: expected Flower's mask generator with sha256 "
            f"{KNOWN_SHA256[:12]}, found {digest[:12]}; use flwr>=1.41,<1.42, or read the new one "
            "and update dance_flwr/federation/secagg_masks.py"
        )
    for path in flower.MASK_USERS:
        module = import_module(path)
        if not hasattr(module, NAME):
            raise UserError(
                f"privacy.secure-aggregation: expected {NAME} in {path}, found none; "
                "use flwr>=1.41,<1.42"
            )
        setattr(module, NAME, masks)


@lru_cache(maxsize=4)  # `install` runs with every message of the protocol
def _fingerprint(function: Callable[..., Any]) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
