"""Puts the masks of `dance_flwr.privacy.masks` in the place of Flower's, at client and server.

Client and server modules of Flower hold the generator under one name each; `install` replaces both.
"""

import hashlib
import importlib
import inspect
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

from dance_flwr.errors import UserError
from dance_flwr.privacy.masks import masks

# By path: the package `flwr.client.mod` also exports a function called `secaggplus_mod`.
CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"
UTILS = "flwr.common.secure_aggregation.secaggplus_utils"
NAME = "pseudo_rand_gen"
# sha256 of the source of Flower's generator that `install` knows; another one must be read before
# it is replaced.
KNOWN_SHA256 = "19ee2545ed58c0174c0b1a56f4211d635347156163ae76a711613badad4b25e9"


def install() -> None:
    """Make Flower's SecAgg+ use `masks`, at the client and at the server; calling it again does
    nothing.

    Raises
    ------
    UserError : this Flower's generator is not the one that was read and replaced
    """
    found = _fingerprint(getattr(importlib.import_module(UTILS), NAME))
    if found != KNOWN_SHA256:
        raise UserError(
            f"privacy.secure-aggregation: expected Flower's mask generator with sha256 {KNOWN_SHA256[:12]}, found "
            f"{found[:12]}; use flwr>=1.41,<1.42, or read the new one and update dance_flwr/federation/secagg_masks.py"
        )
    for module in _users():
        if not hasattr(module, NAME):
            raise UserError(
                f"privacy.secure-aggregation: expected {NAME} in {module.__name__}, found none"
            )
        setattr(module, NAME, masks)


@lru_cache(maxsize=4)  # `install` runs with every message of the protocol
def _fingerprint(function: Callable[..., Any]) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()


def _users() -> list[ModuleType]:
    return [importlib.import_module(CLIENT), importlib.import_module(SERVER)]
