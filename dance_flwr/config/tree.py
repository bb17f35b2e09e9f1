"""The run configuration: one frozen, typed dataclass tree, read from Flower's flat `run-config`.

The sections are the single source of defaults. `pyproject.toml` repeats them because Flower rejects
keys that it does not declare; `python -m dance_flwr.config.text` prints that block, and a test
compares the two.

A `RunConfig` inherits the sections of every run, so that a function can take the section it reads,
such as `TrainingConfig`. The sections of plug-ins are in `RunConfig.sections`; `Section.of` returns
one of them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast

from dance_flwr.config.options import BOUNDS, FlatFields, Section, Value, choices_of, leaves_of
from dance_flwr.config.plugins import METHODS, Registry
from dance_flwr.config.privacy import PrivacyConfig, privacy_problems
from dance_flwr.config.sections import (
    AUTO,
    BudgetConfig,
    DataConfig,
    FederationConfig,
    MethodConfig,
    ModelConfig,
    OutputConfig,
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


def _default_sections() -> tuple[Section, ...]:
    return tuple(section() for section in section_types())


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
    BudgetConfig,
    MethodConfig,
    DataConfig,
):
    """Every key of a run."""

    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    sections: tuple[Section, ...] = field(default_factory=_default_sections)


def flat_fields() -> FlatFields:
    """Return flat key -> (dataclass field, type) of every key of a run, in order."""
    leaves = leaves_of(RunConfig)
    for section in section_types():
        leaves |= leaves_of(section, f"{section.name}.")
    return leaves


def common_sections() -> dict[str, FlatFields]:
    """Return the keys of every run by the title of their section, without `StartConfig`."""
    types = [kind for kind in reversed(RunConfig.__mro__[1:-1]) if kind is not StartConfig]
    sections = {kind.__name__.removesuffix("Config"): leaves_of(kind) for kind in types}
    return sections | {"Privacy": leaves_of(PrivacyConfig, "privacy.")}


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
    problems = [_unknown(key, leaves) for key in values if key not in leaves]
    known: dict[str, Value] = {}
    for key, value in values.items():
        if key in leaves:
            item, kind = leaves[key]
            # TOML tells 1 from 1.0; a user need not.
            known[key] = _as_float(value) if kind is float else value
            problem = _problem(key, known[key], item, kind)
            problems += [problem] if problem else []
    # Only values that are valid by themselves can be compared with each other.
    if not problems:
        # Why last (decision 19): `paper = true` is the method as published, whatever else is set.
        config = _settled(_build(known | paper_values(known)))
        problems = _cross_checks(config)
    if problems:
        raise ConfigError(problems)
    return config


def flatten(config: RunConfig) -> dict[str, Value]:
    """Return the flat keys of `config` that its run can read: those of every run and of its method.

    Sections of other methods stay out: their keys do not travel, and another release or a node
    without a rival's package need not know them. `parse(flatten(c))` has their defaults.
    """
    values = {key: read(config) for key, read in _readers(RunConfig)}
    read_by_method = METHODS.get(config.method).sections
    for section in config.sections:
        kind: type = type(section)
        if kind in read_by_method:
            for key, read in _readers(kind):
                values[f"{section.name}.{key}"] = read(section)
    return values


def defaults() -> dict[str, Value]:
    """Return the default of every key."""
    leaves = {key: item for key, (item, _) in flat_fields().items()}
    return {key: cast(Value, item.default) for key, item in leaves.items()}


@lru_cache(maxsize=128)  # a grid names its runs by thousands of configurations
def _readers(cls: type) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return (flat key, function that reads it) of a configuration class."""
    return [(key, attrgetter(key.replace("-", "_"))) for key in leaves_of(cls)]


def _as_float(value: Value) -> Value:
    """Return an integer as a float, infinite if it is too large for one; other values unchanged."""
    if type(value) is not int:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _build(known: Mapping[str, Value]) -> RunConfig:
    privacy = PrivacyConfig(**_arguments(known, "privacy."))
    sections = [section(**_arguments(known, f"{section.name}.")) for section in section_types()]
    return RunConfig(**_arguments(known, ""), privacy=privacy, sections=tuple(sections))


def _settled(config: RunConfig) -> RunConfig:
    """Replace "auto" by what the run's method prefers."""
    preferred = METHODS.get(config.method).reading
    chosen = {key: value for key, value in preferred.items() if getattr(config, key) == AUTO}
    return replace(config, **chosen) if chosen else config


def _arguments(known: Mapping[str, Value], prefix: str) -> dict[str, Any]:
    """Return the keys directly below `prefix` as keyword arguments."""
    below = {
        key.removeprefix(prefix): value for key, value in known.items() if key.startswith(prefix)
    }
    return {key.replace("-", "_"): value for key, value in below.items() if "." not in key}


def paper_values(known: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values that `paper = true` fixes; keys on which the paper is silent are free."""
    if not known.get("paper"):
        return {}
    values: dict[str, Value] = {}
    for section in section_types():
        values |= section.paper_values(known)
    return values


def _unknown(key: str, leaves: Mapping[str, Any]) -> str:
    """Return one line about an unknown key, with the most similar key."""
    if similar := near(key, leaves):
        return f"unknown key {key!r}: did you mean {similar!r}?"
    return f"unknown key {key!r}: `dance-flwr config --all` lists the keys"


def _problem(key: str, value: Value, item: Field[Any], kind: type) -> str:
    """Return one line about an invalid value; empty if the value is valid."""
    # By `type`: a bool is an int for isinstance, but `rounds = true` is a mistake.
    if type(value) is not kind:
        return f"{key}: expected {kind.__name__}, found {value!r}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{key}: expected a finite number, found {value!r}"
    choices = item.metadata["choices"]
    if value not in choices_of(item) and isinstance(choices, Registry):
        return choices.refusal([str(value)], key)
    if choices and value not in choices:
        return unknown(key, [str(value)], choices)
    rules = item.metadata
    limits = [(sign, rules[name], holds) for name, sign, _, holds in BOUNDS if name in rules]
    if all(holds(value, bound) for _, bound, holds in limits):
        return ""
    expected = " and ".join(f"{sign} {bound:g}" for sign, bound, _ in limits)
    return f"{key}: expected {expected}, found {value!r}"


def _cross_checks(config: RunConfig) -> list[str]:
    """Return the contradictions between keys, one line each."""
    problems = []
    total = config.train_ratio + config.val_ratio + config.test_ratio
    # Three decimal shares rarely sum to exactly 1.
    if abs(total - 1) > 1e-6:
        problems.append(
            f"train-ratio + val-ratio + test-ratio: expected a sum of 1, found {total:g}"
        )
    if config.resume and not config.out:
        problems.append("resume: expected `out`, the folder of the run to resume, found none")
    problems += [problem for section in config.sections for problem in section.problems()]
    sampled = max(1, int(config.clients * config.client_fraction))
    problems += privacy_problems(
        config.privacy,
        config.clients,
        config.client_fraction,
        config.min_valid_replies,
        config.upload_precision,
    )
    if config.min_valid_replies > sampled:
        problems.append(
            f"min-valid-replies: expected at most {sampled}, the number of clients sampled per "
            f"round, found {config.min_valid_replies}"
        )
    return problems
