"""DANCE: federated learning on text-attributed graphs, as a Flower app.

    from dance_flwr import condense, explain, federate, load

What these four do, and the types that they take and return, is in `dance_flwr.api`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dance_flwr.api import TextGraph, condense, explain, federate, load, load_graph

__version__ = "0.1.0"
# Why (decision 26): two releases work together as long as what they exchange is the same, whatever
# else differs. Raise it with the schema in tests/golden/schema.json, whose test says when.
PROTOCOL = 1
"""Number of the messages and of the state of runs.

It decides whether a node may join, whether a run may be resumed, and what `deploy check` expects.
"""

__all__ = ["TextGraph", "condense", "explain", "federate", "load", "load_graph"]


def __getattr__(name: str) -> Any:
    # Imported when first used: every process of a federation imports this package, and few need
    # torch at once (decision 23).
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dance_flwr import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return ["__version__", *__all__]
