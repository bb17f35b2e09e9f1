"""Layers of torch-geometric in a process that may write to its own folder only."""

from typing import Any, TypeVar, cast

from torch_geometric.nn import MessagePassing

Layer = TypeVar("Layer", bound=MessagePassing)


def compiled_nowhere(layer: type[Layer]) -> type[Layer]:
    """Return the layer without the code that torch-geometric writes for it when one is built.

    It writes to the temporary folder and runs what it finds there: a client opens its own folder
    only. A class with methods of its own is left alone, and computes the same.
    """

    # torch-geometric generates no code for a class that defines these two itself.
    def propagate(self: MessagePassing, *args: Any, **values: Any) -> Any:
        return MessagePassing.propagate(self, *args, **values)

    def edge_updater(self: MessagePassing, *args: Any, **values: Any) -> Any:
        return MessagePassing.edge_updater(self, *args, **values)

    attributes = {"propagate": propagate, "edge_updater": edge_updater, "__module__": __name__}
    return cast(type[Layer], type(layer.__name__, (layer,), attributes))
