"""Regimes: where DANCE is ahead of the controls that could refute it, and where it is not."""

from collections.abc import Sequence

from dance_flwr.study.engine.cells import Experiment, Picture, Row, Section
from dance_flwr.study.protocols.paired import HEADINGS, STATISTICS, p_text
from dance_flwr.study.protocols.regimes import costs as regimes_costs
from dance_flwr.study.protocols.regimes import grid as regimes_grid
from dance_flwr.study.protocols.regimes.grid import (
    ABLATIONS,
    AS_DANCE_READS,
    CONDENSED_TEXT,
    CORE,
    DANCE,
    REGIMES,
    ROTATING,
    STANDARD,
    TEXT,
)
from dance_flwr.study.protocols.regimes.results import (
    BETTER_ROTATING,
    CONTROLS,
    RIVALS,
    Place,
    Results,
    better_rotating,
    group_at,
    results_of,
)
from dance_flwr.study.protocols.variants import SEED_TEXT, gain, points_text
from dance_flwr.study.reports.tables import NOTHING, Group, markdown, shared_settings

CLAIM = 0.02  # two points
WORTH = 0.005  # half a point: what a part of DANCE should add
HOW = (
    "Each regime varies one thing and leaves the rest as in the standard cell: 60 % training "
    "labels, Louvain clients (debian: maintainer teams), clean texts and edges, 8 % condensed "
    "nodes. Ten seeds where a claim is made, five elsewhere and for the methods that run in the "
    "standard and the foreign-text cells alone; no configuration was chosen on them. DANCE's parts "
    "are left out as in the ablation. "
    "fedavg-rotating is the full graph with K, or 2.25 K, labelled nodes drawn anew in each round; "
    "it is compared by the one of the two that has the higher test accuracy in the cell. "
    f"{CONDENSED_TEXT}: the chunks of every node are pooled by their agreement. "
    f"{AS_DANCE_READS}: pooling, weights of edges and class prior are DANCE's, chosen by the same "
    "probe, so that the core, its evidence and label evidence are what DANCE has beyond it. "
    "A method that ignores r has its row of the standard cell at every r. "
    f"{SEED_TEXT} {STATISTICS} The family of Holm's correction is all comparisons of this study "
    "with the same rival."
)
SHARED = ("clients", "partition", "rounds", "local-epochs", "backbone", "smoothing", "ema-decay")
_WIDE = (STANDARD, TEXT)  # regimes with a cell in which every method runs
_EVERYWHERE = {variant.name for variant in regimes_grid.EVERYWHERE}


def _render(rows: Sequence[Row]) -> Section:
    results = results_of(rows)
    parts: list[str | Picture] = [HOW, _counts(results), *_summary(results)]
    for dataset in results.datasets:
        standard = results.groups.get(Place(dataset, STANDARD, STANDARD), ())
        shared = shared_settings([row for group in standard for row in group.rows], SHARED)
        parts += [f"**{dataset}**, standard cell: {shared}", *_wide(results, dataset)]
        for regime in results.regimes(dataset):
            parts += _regime(results, dataset, regime)
        parts += ["What each part of DANCE adds, in points:", _ablations(results, dataset)]
        parts += regimes_costs.parts(results, dataset)
    return Section(tuple(parts))


def _counts(results: Results) -> str:
    """Return, for each rival, in how many cells DANCE is ahead, equivalent, undecided or behind."""
    headings = ["DANCE against", "cells", "ahead", "ahead by 2 points or more"]
    headings += ["equivalent within 1 point, not ahead", "undecided", "behind"]
    lines = []
    for rival in dict.fromkeys(rival for _, rival in results.tests):
        tests = [t for (_, name), t in results.tests.items() if name == rival and t.p is not None]
        words = [test.verdict for test in tests]
        counts = [len(tests), sum(test.is_ahead() for test in tests)]
        counts += [sum(test.is_ahead(CLAIM) for test in tests)]
        counts += [sum(word.startswith(start) for word in words) for start in _VERDICTS]
        lines.append([rival, *map(str, counts)])
    return markdown(headings, lines)


_VERDICTS = ("equivalent", "undecided", "**DANCE loses**")


def _summary(results: Results) -> list[str]:
    """Return the cells with a lead of two points over at least one rival, and a sentence."""
    lines = []
    for place in results.groups:
        ahead = {rival: results.is_ahead(place, (rival,), CLAIM) for rival in RIVALS}
        if any(ahead.values()):
            shown = [_lead(results, place, rival) if ahead[rival] else NOTHING for rival in RIVALS]
            lines.append([place.dataset, place.regime, place.level, *shown])
    headings = ["data set", "regime", "level", *RIVALS]
    places = [p for p in results.groups if results.is_ahead(p, CONTROLS, CLAIM)]
    names = "; ".join(f"{p.dataset}, {p.regime} {p.level}" for p in places)
    sentence = (
        f"DANCE is ahead of {', '.join(CONTROLS)} alike, by 2 points or more with p (Holm) below "
        f"0.05, in {len(places)} of {len(results.groups)} cells{': ' + names if names else ''}."
    )
    title = "Where DANCE is ahead by 2 points or more with p (Holm) below 0.05:"
    return [title, markdown(headings, lines), sentence] if lines else [sentence]


def _lead(results: Results, place: Place, rival: str) -> str:
    """Return the difference in points and its corrected p."""
    test = results.tests[place, rival]
    return f"{points_text(test.difference)} (p {p_text(test.p_holm)})"


def _wide(results: Results, dataset: str) -> list[str]:
    """Return all methods in the cells where all run, and DANCE against each of them."""
    places = [
        place
        for regime in _WIDE
        for place in results.places(dataset, regime)
        if regime == STANDARD or len(results.groups[place]) > len(regimes_grid.EVERYWHERE)
    ]
    if not places:
        return []
    lines = []
    for place in places:
        known = () if place.regime == STANDARD else RIVALS  # they are in the regime's own table
        rivals = [name for where, name in results.tests if where == place and name not in known]
        lines += [_comparison(results, place, rival) for rival in rivals]
    return ["All methods:", _accuracies(results, places), _comparisons(lines)]


def _regime(results: Results, dataset: str, regime: str) -> list[str]:
    """Return accuracies over the levels of a regime, and DANCE against its rivals."""
    places = results.places(dataset, regime)
    standard = places[0].standard
    shown = [*([standard] if standard in results.groups else []), *places]
    lines = [
        _comparison(results, place, rival)
        for place in places
        for rival in RIVALS
        if (place, rival) in results.tests
    ]
    title, base = REGIMES.get(regime, (regime, STANDARD))
    text = f"{dataset}, {title} (standard: {base}):"
    return [text, _accuracies(results, shown, regime), _comparisons(lines)]


def _accuracies(results: Results, places: Sequence[Place], regime: str = "") -> str:
    """Return test accuracy with a line per variant and a column per cell."""
    headings = ["accuracy %", *(_level(place, regime) for place in places)]
    columns = [_by_name(results, place) for place in places]
    names = dict.fromkeys(
        name
        for column in columns
        for name, group in column.items()
        if not regime or group.labels["variant"] in _EVERYWHERE  # the others are in the first table
    )
    seeds = [max(len(group.rows) for group in results.groups[place]) for place in places]
    cells = list(zip(columns, seeds, strict=True))
    lines = [[name, *(_cell(column.get(name), n) for column, n in cells)] for name in names]
    return markdown(headings, [*lines, ["seeds", *map(str, seeds)]])


def _by_name(results: Results, place: Place) -> dict[str, Group]:
    """Return the groups of a cell by name; at another r, also those that ignore it."""
    here = list(results.groups[place])
    if place.regime == CORE:
        ran = {group.labels["variant"] for group in here}
        standard = results.groups.get(place.standard, ())
        here += [group for group in standard if group.labels["variant"] not in ran]
    return {group.name(str(group.labels["variant"])): group for group in here}


def _level(place: Place, regime: str) -> str:
    """Return the heading of a cell; the standard cell has another name in every regime."""
    if place.regime == STANDARD:
        return REGIMES[regime][1] if regime in REGIMES else STANDARD
    return place.level if regime else f"{place.regime} {place.level}"


def _cell(group: Group | None, seeds: int) -> str:
    """Return an accuracy, and its number of seeds where some are missing or it is not `seeds`."""
    if group is None:
        return NOTHING
    stat = group.stat("test_accuracy")
    if stat.n == 0 or stat.n == stat.requested == seeds:
        return stat.percent
    return f"{stat.percent} ({stat.seeds}{' seeds' if stat.n == stat.requested else ''})"


def _comparison(results: Results, place: Place, rival: str) -> list[str]:
    """Return the line of DANCE against one rival in one cell."""
    name = rival
    if rival == BETTER_ROTATING:
        group = better_rotating(results.groups, place)
        name = str(group.labels["variant"]) if group else ROTATING[0]
    level = STANDARD if place.regime == STANDARD else place.level
    return [level, name, *results.tests[place, rival].words()]


def _comparisons(lines: Sequence[Sequence[str]]) -> str:
    return markdown(["level", "DANCE against", *HEADINGS], lines)


def _ablations(results: Results, dataset: str) -> str:
    """Return DANCE minus DANCE without each part, and which parts are worth less than half a point.

    The last columns say of whom DANCE is ahead by two points there.
    """
    headings = ["regime", "level", *(f"over {name}" for name in ABLATIONS)]
    headings += ["worth less than half a point", "DANCE ahead by 2 points of"]
    lines = []
    for place in (place for place in results.groups if place.dataset == dataset):
        full = group_at(results.groups, place, DANCE)
        gains = {
            name: gain(full, other, "test_accuracy")
            for name, variant in ABLATIONS.items()
            if full and (other := group_at(results.groups, place, variant))
        }
        small = [n for n, stat in gains.items() if stat.mean is not None and stat.mean < WORTH]
        ahead = [rival for rival in RIVALS if results.is_ahead(place, (rival,), CLAIM)]
        shown = [points_text(gains[n]) if n in gains else NOTHING for n in ABLATIONS]
        lines.append([place.regime, place.level, *shown, ", ".join(small), ", ".join(ahead)])
    return markdown(headings, lines)


EXPERIMENT = Experiment(
    name="regimes",
    title="Regimes",
    question="Condensation adds something that rotation of labels, pseudo-labels and pooled text "
    "do not: not a claim of the paper, but what its claims need.",
    cells=regimes_grid.cells,
    render=_render,
    datasets=("cora", "citeseer", *regimes_grid.BY_SITE),
    seeds=regimes_grid.SEEDS,
)
