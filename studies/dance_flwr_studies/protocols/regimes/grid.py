"""The grid of the regimes: levels, methods and seeds.

The two tables `LEVELS` and `EVERYWHERE` are the whole plan. A regime varies one thing and leaves
the others as in the standard cell: 60 % training labels, Louvain clients or real sites, clean texts
and edges, 8 % condensed nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dance_flwr.config.options import Value
from dance_flwr.methods import get_spec
from dance_flwr_studies.engine.cells import Cell, Label, Request, dataset_name
from dance_flwr_studies.protocols import ablation

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
    others : whether `OTHERS` run, too
    """

    regime: str
    level: str
    settings: Mapping[str, Value]
    claim: bool
    by_site: bool
    others: bool = False


def _skew(alpha: float) -> dict[str, Value]:
    return {"partition": "label-dirichlet", "dirichlet-alpha": alpha}


#   regime, level, settings, claim (ten seeds), by site, other methods
LEVELS = (
    Level(STANDARD, STANDARD, {}, True, True, True),
    Level(LABELS, "5", {"labels-per-class": 5}, True, True),
    Level(SKEW, "Dirichlet 0.1", _skew(0.1), True, False),
    Level(TEXT, "0.75", {"foreign-text-ratio": 0.75}, True, True, True),
    Level(EDGES, "1", {"random-edge-ratio": 1.0}, True, True),
    Level(CORE, "0.005", {"condensation-ratio": 0.005}, False, False),
)


@dataclass(frozen=True)
class Variant:
    """A method under settings of its own, as tables name it."""

    name: str
    method: str
    settings: Mapping[str, Value] = field(default_factory=dict)


DANCE, FULL, ROTATING = "dance", "fedavg-full", "fedavg-rotating"
CONDENSED_TEXT = "fedavg-full on condensed text"
AS_DANCE_READS = "fedavg-full as DANCE reads"  # what DANCE reads, without a core and its evidence
RANDOM_CORE = "dance w/o NC"
RIVALS = (
    Variant(FULL, FULL),
    Variant(ROTATING, ROTATING, {"rotating.supervised-ratio": 2.25}),
    Variant(CONDENSED_TEXT, FULL, {"text-pooling": "agreement"}),
    Variant(
        AS_DANCE_READS,
        FULL,
        {"text-pooling": "probe", "edge-gates": "probe", "class-prior": "labels"},
    ),
)
EVERYWHERE = (
    Variant(DANCE, DANCE),
    Variant(RANDOM_CORE, DANCE, ablation.VARIANTS["w/o NC"]),
    *RIVALS,
)
# Why these (decision 30): every further comparison costs power. Those that came nearest to DANCE in
# earlier runs of all methods, or ahead of it, written down before a result of these runs was read.
OTHERS = tuple(
    Variant(name, name) for name in ("local-only", "rotating-core", "fedgta", "fedgvd", "sfgc")
)


def levels_of(dataset: str) -> tuple[Level, ...]:
    """Return the levels that run on a data set."""
    by_site = dataset_name(dataset) in BY_SITE
    return tuple(level for level in LEVELS if level.by_site or not by_site)


def variants_at(level: Level, methods: Sequence[str] = ()) -> tuple[Variant, ...]:
    """Return what runs at a level; a method that ignores r is not repeated over it."""
    variants = (*EVERYWHERE, *(OTHERS if level.others else ()))
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
    # The random core is a control, not a rival that is compared.
    every = level.claim and variant in EVERYWHERE and variant.name != RANDOM_CORE
    for seed in request.seeds if every else request.seeds[:ELSEWHERE]:
        config = request.config(dataset, variant.method, seed, settings)
        yield Cell({**labels, "seed": seed}, config)
