"""The run configuration: one frozen, typed dataclass tree, read from Flower's flat `run-config`.

The sections are the single source of defaults. `pyproject.toml` repeats them because Flower rejects
keys that it does not declare; `python -m dance_flwr.config.text` prints that block, and a test
compares the two.

A `RunConfig` inherits the sections of every run, so that a function can take the section it reads,
such as `TrainingConfig`. The sections of plug-ins are in `RunConfig.sections`; `Section.of` returns
one of them.
"""

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, replace
from typing import Any, cast

from dance_flwr.config.options import BOUNDS, FlatFields, Section, Value, leaves_of
from dance_flwr.config.plugins import METHODS, Registry
from dance_flwr.config.sections import (
    AUTO,
    FLOAT32,
    DataConfig,
    FederationConfig,
    MethodConfig,
    ModelConfig,
    OutputConfig,
    PrivacyConfig,
    ReadingConfig,
    StartConfig,
    TrainingConfig,
)
from dance_flwr.errors import ConfigError, UserError, near, unknown

# Keys that may change when a run resumes: places and timeouts, never what it computes.
FREE = (
    *("data-root", "out", "resume", "overwrite", "device", "torch-threads"),
    *("round-timeout", "node-timeout"),
)


def section_types() -> tuple[type[Section], ...]:
    """Return the sections of all registered methods, each once, in the order of the registry."""
    specs = METHODS.all().values()
    types = tuple(dict.fromkeys(section for spec in specs for section in spec.sections))
    names = ["privacy", *(section.name for section in types)]
    for section, name in zip(types, names[1:], strict=True):
        if names.count(name) > 1:
            raise UserError(
                f"section {name!r} of {section.__module__}: expected a name of its own, found one "
                "that is in use; rename the section"
            )
    return types


# Fields of a dataclass start with those of its last base: the keys are listed from `DataConfig` to
# `StartConfig`.
@dataclass(frozen=True)
class RunConfig(
    StartConfig,
    OutputConfig,
    FederationConfig,
    TrainingConfig,
    ModelConfig,
    ReadingConfig,
    MethodConfig,
    DataConfig,
):
    """Every key of a run."""

    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    sections: tuple[Section, ...] = field(
        default_factory=lambda: tuple(section() for section in section_types())
    )


def flat_fields() -> FlatFields:
    """Return flat key -> dataclass field of every key of a run, in order."""
    kinds = (RunConfig, PrivacyConfig, *section_types())
    return {key: item for kind in kinds for key, item in leaves_of(kind).items()}


def quorum(config: RunConfig, clients: int) -> int:
    """Return how many valid replies of so many clients are enough: `min-valid-replies`.

    By default more than half of them, and three at least. Under masks and differential privacy all:
    a masked sum is bound to the clients of the first one, and noise is made for a number of them.
    """
    if config.min_valid_replies:
        return min(config.min_valid_replies, clients)
    if config.privacy.secure_aggregation or config.privacy.dp != "none":
        return clients
    # Three: of two updates no median tells which is the outlier, and each client could compute
    # the other's from the mean.
    return min(clients, max(3, clients // 2 + 1))


def parse(values: Mapping[str, Value]) -> RunConfig:
    """Build and validate a `RunConfig` from flat keys; missing keys keep their defaults.

    Raises
    ------
    ConfigError : unknown keys, wrong types, values out of range or in contradiction, all in one
        message
    """
    leaves = flat_fields()
    known: dict[str, Value] = {}
    problems = []
    for key, value in values.items():
        if key in leaves:
            known[key], wrong = checked(key, value, leaves[key])
            problems += wrong
        elif similar := near(key, leaves):
            problems.append(f"unknown key {key!r}: did you mean {similar!r}?")
        else:
            problems.append(f"unknown key {key!r}: `dance-flwr list keys all` lists the keys")
    # Only values that are valid by themselves can be compared with each other.
    if not problems:
        # Why last (decision 19): `paper = true` is the method as published, whatever else is set.
        config = _build(known | paper_values(known))
        problems = _cross_checks(config)
    if problems:
        raise ConfigError(problems)
    return config


def parse_stored(values: Mapping[str, Value]) -> RunConfig:
    """Build the `RunConfig` that a run, or a bundle, stored.

    Earlier releases stored the keys of every method: those that the run did not read are left out.

    Raises
    ------
    ConfigError : as in `parse`
    """
    name = values.get("method", MethodConfig.method)
    sections = METHODS.get(str(name)).sections if name in METHODS else ()  # `parse` refuses others
    read = {"privacy", *(section.name for section in sections)}
    kept = (key for key in values if "." not in key or key.partition(".")[0] in read)
    return parse({key: values[key] for key in kept})


_NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def checked(key: str, value: Value, item: Field[Any]) -> tuple[Value, list[str]]:
    """Return the value of a key in the type of its default, and one line if it is not valid.

    TOML tells 1 from 1.0; a user need not.
    """
    kind, rules, choices = type(item.default), item.metadata, item.metadata["choices"]
    # By `type`: a bool is an int for isinstance, but `rounds = true` is a mistake.
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < 1e300 else math.inf
    noun = _NOUNS[kind]
    if type(value) is not kind:
        return value, [f"{key}: expected {noun}, found {value!r}"]
    if isinstance(value, float) and not math.isfinite(value):
        return value, [f"{key}: expected a finite number, found {value!r}"]
    if choices and value not in choices:
        if isinstance(choices, Registry):
            return value, [choices.refusal([str(value)], key)]
        return value, [unknown(key, [str(value)], choices)]
    limits = [(sign, rules[name], holds) for name, sign, holds in BOUNDS if name in rules]
    if all(holds(value, bound) for _, bound, holds in limits):
        return value, []
    expected = " and ".join(f"{sign} {bound:g}" for sign, bound, _ in limits)
    return value, [f"{key}: expected {noun} {expected}, found {value!r}"]


def flatten(config: RunConfig) -> dict[str, Value]:
    """Return the flat keys of `config` that its run can read: those of every run and of its method.

    Sections of other methods stay out: their keys do not travel, and another release or a node
    without a rival's package need not know them. `parse(flatten(c))` has their defaults.
    """
    of_method = METHODS.get(config.method).sections
    own = [section for section in config.sections if type(section) in of_method]
    parts: list[Any] = [config, config.privacy, *own]
    return {
        key: getattr(part, item.name)
        for part in parts
        for key, item in leaves_of(part.__class__).items()
    }


def defaults() -> dict[str, Value]:
    """Return the default of every key."""
    return {key: cast(Value, item.default) for key, item in flat_fields().items()}


def paper_values(known: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values that `paper = true` fixes; keys on which the paper is silent are free."""
    if not known.get("paper"):
        return {}
    values: dict[str, Value] = {}
    for section in section_types():
        values |= section.paper_values(known)
    return values


def _build(known: Mapping[str, Value]) -> RunConfig:
    """Return the configuration of valid keys, with what the run's method prefers for "auto"."""

    def arguments(kind: type) -> dict[str, Any]:
        return {item.name: known[key] for key, item in leaves_of(kind).items() if key in known}

    sections = tuple(kind(**arguments(kind)) for kind in section_types())
    privacy = PrivacyConfig(**arguments(PrivacyConfig))
    config = RunConfig(**arguments(RunConfig), privacy=privacy, sections=sections)
    preferred = METHODS.get(config.method).reading
    chosen = {key: value for key, value in preferred.items() if getattr(config, key) == AUTO}
    return replace(config, **chosen) if chosen else config


def _cross_checks(config: RunConfig) -> list[str]:
    total = config.train_ratio + config.val_ratio + config.test_ratio
    sampled = max(1, int(config.clients * config.client_fraction))  # rounded down, as Flower does
    checks = [
        (  # three decimal shares rarely sum to exactly 1
            abs(total - 1) > 1e-6,
            f"train-ratio + val-ratio + test-ratio: expected a sum of 1, found {total:g}",
        ),
        (
            config.resume and not config.out,
            "resume: expected `out`, the folder of the run to resume, found none",
        ),
        (
            config.min_valid_replies > sampled,
            f"min-valid-replies: expected at most {sampled}, the number of clients sampled per "
            f"round, found {config.min_valid_replies}",
        ),
        *_privacy_checks(config, sampled),
    ]
    problems = [problem for section in config.sections for problem in section.problems()]
    return problems + [line for is_wrong, line in checks if is_wrong]


def _privacy_checks(config: RunConfig, sampled: int) -> list[tuple[bool, str]]:
    """Return settings that would defeat what `privacy.*` promises, and whether they are set."""
    privacy, fraction, precision = config.privacy, config.client_fraction, config.upload_precision
    masked, central = privacy.secure_aggregation, privacy.dp == "central"
    rounded = precision != FLOAT32
    return [
        (
            masked and sampled < 3,
            "privacy.secure-aggregation: expected at least 3 clients per round, found "
            f"{sampled}; with two, each client learns the other's upload from the sum: add clients "
            "or set it to false",
        ),
        (
            masked and config.min_valid_replies > 0,
            "min-valid-replies: expected 0 under privacy.secure-aggregation, found "
            f"{config.min_valid_replies}; set privacy.threshold instead",
        ),
        (
            privacy.dp == "distributed" and not masked,
            "privacy.secure-aggregation: expected true under privacy.dp = distributed, found "
            "false; without masks the server reads every upload with a part of the noise only. Set "
            "it, or privacy.dp = local",
        ),
        (
            fraction < 1 and (masked or privacy.dp in ("distributed", "local")),
            f"client-fraction: expected 1, found {fraction:g}; sums over different clients can be "
            "subtracted (privacy.secure-aggregation), and noise that clients add is accounted for "
            "all of them: sample without masks, with privacy.dp = none or central",
        ),
        (
            config.evaluate_fraction < 1 and masked,
            "evaluate-fraction: expected 1 under privacy.secure-aggregation, found "
            f"{config.evaluate_fraction:g}; sums over different clients can be subtracted. Set "
            "evaluate-every to validate less often",
        ),
        (
            privacy.clipping == "adaptive" and privacy.dp == "local",
            "privacy.clipping: expected fixed under privacy.dp = local, found adaptive; a single "
            "client cannot protect the count over clients that adaptive clipping needs",
        ),
        (
            rounded and privacy.dp == "distributed",
            f"upload-precision: expected float32 under privacy.dp = distributed, found {precision};"
            " a sum of rounded parts does not have the noise that epsilon is computed for",
        ),
        (
            rounded and central and masked,
            "upload-precision: expected float32 under privacy.dp = central with secure "
            f"aggregation, found {precision}; rounded to the levels of the sum, an update may be "
            "longer than privacy.clipping-norm",
        ),
    ]
