"""The registry of client methods: one file, one class, one line here."""

from importlib import import_module

from dance_flwr.errors import UserError
from dance_flwr.methods.base import Method

METHODS = {
    "dance": "dance_flwr.methods.dance:Dance",
    "fedavg-full": "dance_flwr.methods.fedavg_full:FedAvgFull",
    "random-core": "dance_flwr.methods.selected_core:RandomCore",
    "herding-core": "dance_flwr.methods.selected_core:HerdingCore",
    "k-center-core": "dance_flwr.methods.selected_core:KCenterCore",
    "gcond": "dance_flwr.methods.gcond:GCond",
}


def get_method(name: str) -> Method:
    """Return the method of this name, imported only now.

    Raises
    ------
    UserError : there is no such method; the message lists the choices
    """
    if name not in METHODS:
        raise UserError(f"method: expected one of {', '.join(METHODS)}, found {name!r}")
    module, attribute = METHODS[name].split(":")
    return getattr(import_module(module), attribute)()  # type: ignore[no-any-return]
