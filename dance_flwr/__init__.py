"""DANCE: federated learning on text-attributed graphs, as a Flower app.

    from dance_flwr import condense, explain, federate, load

What these four do, and the types that they take and return, is in `dance_flwr.api`. Types of the
names that are imported when they are used stand in `__init__.pyi`.
"""

import os
from importlib import import_module
from typing import Any

from dance_flwr.fingerprint import PROTOCOL, VERSION

# Why this early (decision 31): cuBLAS reads it when a process first multiplies on a GPU, perhaps to
# encode texts; products then repeat to the bit.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

__version__ = VERSION
__all__ = ["PROTOCOL", "__version__"]
_OF_API = ("TextGraph", "condense", "explain", "federate", "load", "load_graph", "read_graph")


def __getattr__(name: str) -> Any:
    # Imported when first used: every process of a federation imports this package, and few need
    # torch at once (decision 23).
    if name not in _OF_API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("dance_flwr.api"), name)


def __dir__() -> list[str]:
    return [*__all__, *_OF_API]
