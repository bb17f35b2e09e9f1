"""Cores: which nodes a core should have, if it moves and if it is chosen once.

A core that is chosen once is a budget of texts: those that a person or a language model would have
to summarise.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.dance.config import COVERAGE, LABEL_AWARE, RANDOM_LABELLED
from dance_flwr_studies.engine.cells import (
    Cell,
    Experiment,
    Label,
    Picture,
    Request,
    Row,
    Section,
    dataset_name,
)
from dance_flwr_studies.protocols.regimes.grid import BY_SITE
from dance_flwr_studies.protocols.variants import find, variant_cells
from dance_flwr_studies.reports.figures import points
from dance_flwr_studies.reports.sections import seeds_text
from dance_flwr_studies.reports.significance import corrected, paired_test
from dance_flwr_studies.reports.tables import NOTHING, Group, groups, markdown, stat_of
from dance_flwr_studies.reports.verdicts import Expected, expect, verdict

RULES = (LABEL_AWARE, RANDOM_LABELLED, COVERAGE)
PAIRS = ((COVERAGE, LABEL_AWARE), (COVERAGE, RANDOM_LABELLED), (RANDOM_LABELLED, LABEL_AWARE))
ONCE, MOVING, FOREIGN = "once", "moving", "foreign text"
SETTINGS: Mapping[str, Mapping[str, Value]] = {
    ONCE: {"dance.core-refresh-every": 0},
    MOVING: {"dance.core-refresh-every": 10},
    FOREIGN: {"dance.core-refresh-every": 0, "foreign-text-ratio": 0.75},
}
PLACES = (
    *((core, ratio) for core in (ONCE, MOVING) for ratio in (0.005, 0.02)),
    *((FOREIGN, ratio) for ratio in (0.005, 0.02, 0.04)),
)
_FEWER_SEEDS = 5  # with foreign text: the default is decided on clean text
HOW = (
    "Accuracy/macro-F1 in %, means over seeds (foreign text: the first five). *label-aware*: the "
    "paper's score; *random-labelled*: labelled nodes at random, same quotas; *coverage*: facility "
    "location within each class. *once*: chosen in round 1 and kept; *moving*: every ten rounds; "
    "*foreign text*: three of four chunks, chosen once. Differences as in the main table, Holm's "
    "correction over the data set."
)


def _cells(request: Request) -> list[Cell]:
    return [
        cell
        for dataset in request.datasets
        for core, ratio in PLACES
        # On sites the figure alone.
        if core == FOREIGN or dataset_name(dataset) not in BY_SITE
        for rule in RULES
        for cell in _cells_at(request, dataset, core, ratio, rule)
    ]


def _cells_at(request: Request, dataset: str, core: str, ratio: float, rule: str) -> list[Cell]:
    labels: dict[str, Label] = {"core": core, "ratio": ratio, "rule": rule}
    settings = BY_SITE.get(dataset_name(dataset), {}) | dict(SETTINGS[core])
    settings |= {"condensation-ratio": ratio, "dance.core-rule": rule}
    seeds = request.seeds[:_FEWER_SEEDS] if core == FOREIGN else request.seeds
    return variant_cells(replace(request, seeds=seeds), dataset, "dance", (labels, settings))


def _render(rows: Sequence[Row]) -> Section:
    lines: list[list[str]] = []
    pictures: list[Picture] = []
    # Names state the share of foreign text.
    compared = groups(rows, ("foreign-text-ratio",))
    by_name: dict[str, list[Group]] = {}
    for group in compared:
        by_name.setdefault(group.name(str(group.labels["dataset"])), []).append(group)
    for name, members in by_name.items():
        places = _by_place(members)
        lines += [[f"{name}: {line[0]}", *line[1:]] for line in _lines(places)]
        caption = f"Accuracy on {name} with foreign text, by the texts in all cores."
        file = re.sub(r"[^\w.]+", "-", f"cores-{name}").rstrip("-")
        pictures.append(Picture(file, caption, partial(_draw, places), (4.8, 3.4)))
    headings = ["core", "r", "texts", *RULES, *(f"{rule} minus {other}" for rule, other in PAIRS)]
    return Section((f"{HOW} {seeds_text(compared)}", markdown(headings, lines, 3), *pictures))


Places = Mapping[tuple[str, float], Mapping[str, Group]]


def _by_place(compared: Sequence[Group]) -> Places:
    found: dict[tuple[str, float], dict[str, Group]] = {}
    for group in compared:
        place = str(group.labels["core"]), float(group.labels["ratio"])
        found.setdefault(place, {})[str(group.labels["rule"])] = group
    return {place: found[place] for place in PLACES if place in found}


def _texts(part: Mapping[str, Group]) -> int | None:
    """Return the number of nodes in the last cores of all clients, which all rules share."""
    cores = [
        row.result["facts"]["core_per_class"]
        for group in part.values()
        for row in group.rows
        if row.result
    ]
    return sum(sum(core.values()) for core in cores[0]) if cores else None


def _lines(places: Places) -> list[list[str]]:
    tests = corrected(
        {
            (place, pair): paired_test(part[pair[0]], part[pair[1]])
            for place, part in places.items()
            for pair in PAIRS
            if part.keys() >= set(pair)
        }
    )
    return [
        [
            *map(str, place),
            str(_texts(part) or NOTHING),
            *(_scores(part.get(rule)) for rule in RULES),
            *(tests[place, pair].text if (place, pair) in tests else NOTHING for pair in PAIRS),
        ]
        for place, part in places.items()
    ]


def _scores(group: Group | None) -> str:
    if group is None or (accuracy := group.stat("test_accuracy")).mean is None:
        return NOTHING
    macro_f1 = group.stat("test_macro_f1").mean or 0.0
    return f"{100 * accuracy.mean:.2f}/{100 * macro_f1:.1f}{accuracy.missing}"


def _draw(places: Places, figure: Any) -> None:
    axes = figure.subplots()
    by_size = {
        size: part
        for (core, _), part in places.items()
        if core == FOREIGN and (size := _texts(part)) is not None
    }
    nothing = stat_of([], 0)
    lines = {
        rule: [
            part[rule].stat("test_accuracy") if rule in part else nothing
            for part in by_size.values()
        ]
        for rule in RULES
    }
    points(axes, list(by_size), lines)
    axes.set(xlabel="texts in the cores of all clients", ylabel="test accuracy (%)", xscale="log")
    axes.legend(fontsize=8)


def _verdict(rows: Sequence[Row]) -> str:
    """Compare the core that covers with the paper's, where it is chosen once."""
    expected: list[Expected] = []
    compared = groups(rows, ("foreign-text-ratio",))
    for group in compared:
        core, ratio = group.labels["core"], group.labels["ratio"]
        if core != MOVING and group.labels["rule"] == COVERAGE:
            same = {**group.labels, "rule": LABEL_AWARE}
            where = f"{group.name(str(group.labels['dataset']))}, {core}, r = {ratio}"
            what = f"{COVERAGE} minus {LABEL_AWARE} on {where}"
            expected += expect(what, group, find(compared, **same))
    return verdict(expected)


EXPERIMENT = Experiment(
    name="cores",
    title="Cores",
    question="The score that orders the core matters where the core has to last: not a claim of "
    "the paper.",
    cells=_cells,
    render=_render,
    verdict=_verdict,
    datasets=("cora", "citeseer", *BY_SITE),
    seeds=tuple(range(5, 25)),
)
