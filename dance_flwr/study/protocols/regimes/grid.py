"""The grid of the study of regimes: what is varied, which methods run where, and on which seeds.

The two tables `LEVELS` and `EVERYWHERE` are the whole plan. A regime varies one thing and leaves
the others as in the standard cell: 60 % training labels, Louvain clients or real sites, clean texts
and edges, 8 % condensed nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dance_flwr.config.options import Value
from dance_flwr.methods import get_spec
from dance_flwr.study.engine.cells import Cell, Label, Request, dataset_name, default_methods
from dance_flwr.study.protocols import ablation

SEEDS = (5, 6, 7, 8, 9, 10, 11, 12, 13, 14)  # no configuration was chosen on them
ELSEWHERE = 5  # the first seeds, where no claim is made, and for the other methods
STANDARD, LABELS, SKEW, TEXT, EDGES, CORE = "standard", "labels", "skew", "text", "edges", "core"
RATIO: dict[str, Value] = {"condensation-ratio": 0.08}  # the standard cell's
# Data sets that are divided by their column `site`: the largest maintainer teams of at most 700
# packages. The other data sets' files say 60 rounds, too.
BY_SITE: dict[str, dict[str, Value]] = {
    "debian": {"partition": "by-column", "clients": 5, "max-client-nodes": 700, "rounds": 60},
}


@dataclass(frozen=True)
class Level:
    """One level of a regime: the settings that differ from the standard cell.

    Attributes
    ----------
    claim : whether a claim may be made of it, so that it takes all seeds, not the first five
    by_site : whether it also runs on data sets of `BY_SITE`
    rivals : whether every other method runs, too
    """

    regime: str
    level: str
    settings: Mapping[str, Value]
    claim: bool
    by_site: bool
    rivals: bool = False


def _skew(alpha: float) -> dict[str, Value]:
    return {"partition": "label-dirichlet", "dirichlet-alpha": alpha}


#   regime, level, settings, claim (ten seeds), by site, every other method
LEVELS = (
    Level(STANDARD, STANDARD, {}, True, True, True),
    Level(LABELS, "5", {"labels-per-class": 5}, True, True),
    Level(SKEW, "Dirichlet 0.1", _skew(0.1), True, False),
    Level(TEXT, "0.75", {"foreign-text-ratio": 0.75}, True, True, True),
    Level(EDGES, "1", {"random-edge-ratio": 1.0}, True, True),
    Level(CORE, "0.02", {"condensation-ratio": 0.02}, False, False),
    Level(CORE, "0.005", {"condensation-ratio": 0.005}, False, False),
)


@dataclass(frozen=True)
class Variant:
    """A method under settings of its own, as tables name it."""

    name: str
    method: str
    settings: Mapping[str, Value] = field(default_factory=dict)


DANCE, FULL, SELF_TRAINING = "dance", "fedavg-full", "self-training"
ROTATING = ("fedavg-rotating 1 K", "fedavg-rotating 2.25 K")
CONDENSED_TEXT = "fedavg-full on condensed text"
AS_DANCE_READS = "fedavg-full as DANCE reads"  # what DANCE reads, without a core and its evidence
ABLATIONS = {name: f"dance {name}" for name, settings in ablation.VARIANTS.items() if settings}
EVERYWHERE = (
    Variant(DANCE, "dance"),
    *(Variant(ABLATIONS[name], "dance", ablation.VARIANTS[name]) for name in ABLATIONS),
    Variant(FULL, "fedavg-full"),
    Variant(ROTATING[0], "fedavg-rotating", {"rotating.supervised-ratio": 1.0}),
    Variant(ROTATING[1], "fedavg-rotating", {"rotating.supervised-ratio": 2.25}),
    Variant(SELF_TRAINING, "self-training"),
    Variant(CONDENSED_TEXT, "fedavg-full", {"text-pooling": "agreement"}),
    Variant(
        AS_DANCE_READS,
        "fedavg-full",
        {"text-pooling": "probe", "edge-gates": "probe", "class-prior": "labels"},
    ),
)


def other_methods() -> tuple[Variant, ...]:
    """Return the methods that run at levels with `rivals` only, in the order of the registry.

    Those that ask a language model are left out; their controls are among them.
    """
    known = {variant.method for variant in EVERYWHERE}
    return tuple(Variant(name, name) for name in default_methods() if name not in known)


def levels_of(dataset: str) -> tuple[Level, ...]:
    """Return the levels that run on a data set."""
    by_site = dataset_name(dataset) in BY_SITE
    return tuple(level for level in LEVELS if level.by_site or not by_site)


def variants_at(level: Level, methods: Sequence[str] = ()) -> tuple[Variant, ...]:
    """Return what runs at a level; a method that ignores r is not repeated over it."""
    variants = (*EVERYWHERE, *(other_methods() if level.rivals else ()))
    return tuple(
        variant
        for variant in variants
        if (not methods or variant.method in methods)
        and (level.regime != CORE or get_spec(variant.method).card.by_ratio)
    )


def cells(request: Request) -> list[Cell]:
    """Return one cell per data set, level, variant and seed."""
    return [
        cell
        for dataset in request.datasets
        for level in levels_of(dataset)
        for variant in variants_at(level, request.methods)
        for cell in _cells(request, dataset, level, variant)
    ]


def _cells(request: Request, dataset: str, level: Level, variant: Variant) -> Iterator[Cell]:
    name = dataset_name(dataset)
    labels: dict[str, Label] = {"dataset": name, "method": variant.method}
    labels |= {"variant": variant.name, "regime": level.regime, "level": level.level}
    # --set may ask for another ratio of every cell but those that vary it.
    free = "condensation-ratio" in request.overrides
    ratio = RATIO if get_spec(variant.method).card.by_ratio and not free else {}
    settings = ratio | BY_SITE.get(name, {}) | dict(level.settings) | dict(variant.settings)
    every = level.claim and variant in EVERYWHERE
    for seed in request.seeds if every else request.seeds[:ELSEWHERE]:
        config = request.config(dataset, variant.method, seed, settings)
        yield Cell({**labels, "seed": seed}, config)
