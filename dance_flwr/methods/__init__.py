"""The contract of federated methods, DANCE, FedAvg and local training."""

from importlib import import_module
from pathlib import Path

from dance_flwr.config.plugins import METHODS, READ_EACH
from dance_flwr.config.sections import PERSONAL, TUNED
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import code_hash, provenance
from dance_flwr.methods.contract import MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig, check_reach


def get_spec(name: str) -> MethodSpec:
    """Return the spec of the method of this name.

    Raises
    ------
    UserError : unknown method; the message lists the choices
    """
    return METHODS.get(name)  # type: ignore[no-any-return]


def code_of(method: str) -> str:
    """Return the provenance of the code that computes a run of this method.

    That of this package, followed by "+" and that of the method's own package if another package
    brings it: a changed rival is other code for its own runs, and for no others.
    """
    return "+".join([provenance(), *foreign_code(method)])


def foreign_code(method: str) -> dict[str, str]:
    """Return digest -> name of what other packages bring of a method; {} for methods of this one.

    Modules of its entry point and its sides count, a package whole; digests as of `provenance`.
    """
    spec, found = get_spec(method), {}
    for part in (METHODS.target(method), spec.client, spec.server):
        module = (part if isinstance(part, str) else part.__module__).partition(":")[0]
        name = module.partition(".")[0]
        if name in ("", __name__.partition(".")[0]):
            continue
        # A folder without __init__.py has no file, and what is typed into a notebook has none.
        file = Path(import_module(name).__file__ or import_module(module).__file__ or "")
        package = file.name == "__init__.py"
        code = provenance(file.parent) if package else code_hash(file) if file.is_file() else ""
        found[code or "unsaved"] = name
    return found


def final_views(config: RunConfig) -> tuple[str, ...]:
    """Return the views that clients may count of the final model, "deployed" apart."""
    views = get_spec(config.method).views
    kinds = PERSONAL[config.personal]
    return (*views, "global", *kinds) if kinds else views


def evaluation(config: RunConfig) -> str:
    """Return which model a run scores: "global", or "personalised", each client's own."""
    kind = get_spec(config.method).card.evaluation
    return "personalised" if PERSONAL[config.personal] else kind


def check_method(config: RunConfig) -> None:
    """Refuse settings that the method of a run does not support, before anything starts.

    Raises
    ------
    UserError : uploads are masked or noised although method or strategy reads each one, `strategy`
        is set although the method brings its own server side, `label-reuse` is set although the
        method cannot read labels, or its backbone cannot be sampled
    """
    spec, method = get_spec(config.method), config.method
    masked, noised = config.privacy.secure_aggregation, config.privacy.dp != "none"
    # Under masks the server learns the sum of the uploads and nothing of a single one (decision 8).
    key = "privacy.secure-aggregation" if masked else "privacy.dp"
    if (masked or noised) and spec.uplink is Uplink.EACH:
        raise UserError(
            f"{key}: expected a method that needs sums only, found {method!r}, which reads each "
            f"client's upload; choose another method, or omit {key}"
        )
    if (masked or noised) and config.strategy in READ_EACH:
        raise UserError(
            f"strategy: expected one that averages under {key}, found {config.strategy!r}, which "
            f"reads each client's upload; choose another strategy, or omit {key}"
        )
    # A server side of its own takes the place of the strategy's step: a setting without effect is
    # refused.
    if spec.server and config.strategy != RunConfig.strategy:
        raise UserError(
            f"strategy: expected the default, {RunConfig.strategy}, since method {method!r} brings "
            f"its own server side, found {config.strategy!r}; omit it, or choose another method"
        )
    # Its clients deploy models of their own already.
    if config.personal != "off" and spec.card.evaluation != "global":
        raise UserError(
            f"personal: expected 'off' for method {method!r}, whose clients have no global model, "
            f"found {config.personal!r}; leave it out, or choose another method"
        )
    # Why (decision 30): tuning is the method's training without a server and without a second bill.
    if TUNED in PERSONAL[config.personal] and (spec.uplink is Uplink.EACH or spec.card.needs_llm):
        raise UserError(
            f"personal: expected 'off' or 'mix' for method {method!r}, whose rounds need the "
            f"server or a language model, found {config.personal!r}; choose one of these"
        )
    # Methods that condense or select a core do not read labels as an input (docs/baselines.md).
    if config.label_reuse and not spec.label_reuse:
        able = ", ".join(name for name in METHODS if get_spec(name).label_reuse)
        raise UserError(
            f"label-reuse: expected a method that can read training labels as an input ({able}), "
            f"found {method!r}; set label-reuse = false, or choose one of these methods"
        )
    if SamplingConfig in spec.sections:
        check_reach(config)
