"""The registry of client methods: one file, one class, one line here."""

from importlib import import_module

from dance_flwr.config import RunConfig
from dance_flwr.errors import UserError
from dance_flwr.methods.base import Method, Uplink

METHODS = {
    "dance": "dance_flwr.methods.dance:Dance",
    "fedavg-full": "dance_flwr.methods.fedavg_full:FedAvgFull",
    "local-only": "dance_flwr.methods.local_only:LocalOnly",
    "random-core": "dance_flwr.methods.selected_core:RandomCore",
    "herding-core": "dance_flwr.methods.selected_core:HerdingCore",
    "k-center-core": "dance_flwr.methods.selected_core:KCenterCore",
    "gcond": "dance_flwr.methods.gcond:GCond",
    "sfgc": "dance_flwr.methods.sfgc:Sfgc",
    "fedgta": "dance_flwr.methods.fedgta:FedGta",
    "fedtad": "dance_flwr.methods.fedtad:FedTad",
    "fedgvd": "dance_flwr.methods.fedgvd:FedGvd",
    "fedsage": "dance_flwr.methods.fedsage:FedSage",
    "fedgm": "dance_flwr.methods.fedgm:FedGm",
    "fedc4": "dance_flwr.methods.fedc4:FedC4",
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


def check_method(config: RunConfig) -> None:
    """Refuse, before anything starts, settings that the method of a run cannot work under.

    Raises
    ------
    UserError : uploads are masked or noised although the method reads each of them, or a strategy is asked for
        although the method brings its own server side
    """
    method = get_method(config.method)
    if method.uplink is Uplink.EACH and config.privacy.secure_aggregation:
        raise UserError(
            f"privacy.secure-aggregation: expected a method that needs sums only, found {config.method!r}, which "
            "reads each client's upload; choose another method, or switch secure aggregation off"
        )
    if method.uplink is Uplink.EACH and config.privacy.dp != "none":
        raise UserError(
            f"privacy.dp: expected a method that needs sums only, found {config.method!r}, which reads each client's "
            "upload; choose another method, or set privacy.dp = none"
        )
    if method.card.server and config.strategy != RunConfig.strategy:
        raise UserError(
            f"strategy: expected the default, {RunConfig.strategy}, since method {config.method!r} brings its own "
            f"server side, found {config.strategy!r}; leave it out, or choose another method"
        )
