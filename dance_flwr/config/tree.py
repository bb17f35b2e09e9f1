"""The run configuration: one frozen, typed dataclass tree, read from Flower's flat `run-config`.

The defaults of the sections are the only ones. `pyproject.toml` repeats them because Flower refuses
keys that are not declared there; `python -m dance_flwr.config.text` prints that block, and a test
compares the two.

Functions take the part that they read, such as `TrainingConfig`; a `RunConfig` is each of these
parts. The sections of plug-ins are in `sections`, and are found with `Section.of`.
"""

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from typing import Any

from dance_flwr.config.options import BOUNDS, Section, Value, choices_of, leaves_of, option
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.sections import (
    BudgetConfig,
    DataConfig,
    FederationConfig,
    ModelConfig,
    PrivacyConfig,
    TrainingConfig,
    privacy_problems,
)
from dance_flwr.errors import ConfigError

RENAMED = {"dance.ratio": "condensation-ratio"}  # old key -> the one that took its place


def section_types() -> tuple[type[Section], ...]:
    """Return the sections of all registered methods, each once, in the order of the registry."""
    found = [section for spec in METHODS.all().values() for section in spec.sections]
    return tuple(dict.fromkeys(found))


def _defaults() -> tuple[Section, ...]:
    return tuple(section() for section in section_types())


# Dataclasses put the fields of the last base first: read the bases from right to left.
@dataclass(frozen=True)
class RunConfig(FederationConfig, TrainingConfig, BudgetConfig, ModelConfig, DataConfig):
    """Every key of a run."""

    method: str = option("dance", "client method", choices=METHODS.names)
    paper: bool = option(
        False, "the paper's method alone: every extension of it off, whatever other keys say"
    )
    out: str = option(
        "", "folder of result.json and model.safetensors; empty = runs/ under data-root"
    )
    resume: bool = option(False, "go on from the last whole round in `out`")
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    sections: tuple[Section, ...] = field(default_factory=_defaults)


def flat_fields() -> dict[str, tuple[Field[Any], type]]:
    """Return flat key -> (dataclass field, type) of every key of a run, in order."""
    leaves = leaves_of(RunConfig)
    for section in section_types():
        leaves |= leaves_of(section, f"{section.name}.")
    return leaves


def parse(values: Mapping[str, Value]) -> RunConfig:
    """Build a checked `RunConfig` from flat keys; keys that are missing keep their default.

    Raises
    ------
    ConfigError : unknown keys, wrong types, values out of range; all of them in one message
    """
    leaves = flat_fields()
    problems = [_unknown(key, leaves) for key in values if key not in leaves]
    known: dict[str, Value] = {}
    for key, value in values.items():
        if key in leaves:
            item, kind = leaves[key]
            number = float(value) if kind is float and type(value) is int else value
            problem = _problem(key, number, item, kind)
            problems += [problem] if problem else []
            known[key] = number
    if not problems:
        config = _build(known | _paper_values(known))
        problems = _cross_checks(config)
    if problems:
        raise ConfigError(problems)
    return config


def flatten(config: RunConfig) -> dict[str, Value]:
    """Return the flat keys of `config`; `parse(flatten(c)) == c`."""
    values = {}
    for key in leaves_of(RunConfig):
        node: Any = config
        for part in key.replace("-", "_").split("."):
            node = getattr(node, part)
        values[key] = node
    for section in config.sections:
        for key in leaves_of(type(section)):
            values[f"{section.name}.{key}"] = getattr(section, key.replace("-", "_"))
    return values


def _build(known: Mapping[str, Value]) -> RunConfig:
    own = _arguments(known, "")
    privacy = PrivacyConfig(**_arguments(known, "privacy."))
    sections = [section(**_arguments(known, f"{section.name}.")) for section in section_types()]
    return RunConfig(**own, privacy=privacy, sections=tuple(sections))


def _arguments(known: Mapping[str, Value], prefix: str) -> dict[str, Any]:
    """Return the keys directly below `prefix` as keyword arguments."""
    below = {
        key.removeprefix(prefix): value for key, value in known.items() if key.startswith(prefix)
    }
    return {key.replace("-", "_"): value for key, value in below.items() if "." not in key}


def _paper_values(known: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values that `paper = true` fixes; choices where the paper is silent keep their
    keys.
    """
    if not known.get("paper"):
        return {}
    values: dict[str, Value] = {}
    for section in section_types():
        values |= section.paper_values(known)
    return values


def _unknown(key: str, leaves: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    if key in RENAMED:
        return f"unknown key {key!r}: it is {RENAMED[key]!r} now"
    near = get_close_matches(key, leaves, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`dance-flwr config` lists the keys"
    return f"unknown key {key!r}: {hint}"


def _problem(key: str, value: Value, item: Field[Any], kind: type) -> str:
    """Return what is wrong with one value, or an empty string."""
    if type(value) is not kind:
        return f"{key}: expected {kind.__name__}, found {value!r}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{key}: expected a finite number, found {value!r}"
    choices = choices_of(item)
    if choices and value not in choices:
        return f"{key}: expected one of {', '.join(choices)}, found {value!r}"
    rules = item.metadata
    limits = [(sign, rules[name], holds) for name, sign, holds in BOUNDS if rules[name] is not None]
    if all(holds(value, bound) for _, bound, holds in limits):
        return ""
    expected = " and ".join(f"{sign} {bound:g}" for sign, bound, _ in limits)
    return f"{key}: expected {expected}, found {value!r}"


def _cross_checks(config: RunConfig) -> list[str]:
    """Return what is wrong between keys."""
    problems = []
    total = config.train_ratio + config.val_ratio + config.test_ratio
    if abs(total - 1) > 1e-6:
        problems.append(
            f"train-ratio + val-ratio + test-ratio: expected a sum of 1, found {total:g}"
        )
    if config.resume and not config.out:
        problems.append("resume: expected `out`, the folder of the run that goes on, found none")
    problems += [problem for section in config.sections for problem in section.problems()]
    asked = max(1, int(config.clients * config.client_fraction))
    problems += privacy_problems(
        config.privacy, config.clients, config.client_fraction, config.min_valid_replies
    )
    if config.min_valid_replies > asked:
        problems.append(
            f"min-valid-replies: expected at most the {asked} clients asked per round, found "
            f"{config.min_valid_replies}"
        )
    return problems
