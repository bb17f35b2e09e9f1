"""Regimes: where DANCE is ahead of the controls that could refute it, and where it is not."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from dance_flwr.errors import counted
from dance_flwr_studies.engine.cells import Experiment, Picture, Row, Section
from dance_flwr_studies.protocols.regimes import grid as regimes_grid
from dance_flwr_studies.protocols.regimes.grid import (
    AS_DANCE_READS,
    CONDENSED_TEXT,
    CORE,
    EVERYWHERE,
    LEVELS,
    RIVALS,
    ROTATING,
    STANDARD,
)
from dance_flwr_studies.protocols.regimes.results import Place, Results, results_of
from dance_flwr_studies.reports.figures import COLOURS, MARKERS
from dance_flwr_studies.reports.sections import BEYOND, HOW_BEYOND, beyond_cell
from dance_flwr_studies.reports.significance import PairedTest, comparison_table
from dance_flwr_studies.reports.tables import NOTHING, Group, markdown, shared_settings
from dance_flwr_studies.reports.trained_nodes import tokens_of_a_refresh
from dance_flwr_studies.reports.verdicts import Expected, verdict

HOW = (
    "Each regime varies one thing of the standard cell: 60 % training labels, Louvain clients "
    "(debian: maintainer teams), 8 % condensed nodes. *labels*: per class; *skew*: of labels; "
    "*text*: share of foreign chunks; *edges*: random ones per edge; *core*: r. w/o NC: a random "
    "core. fedavg-rotating: 2.25 K labelled nodes drawn anew in each round. "
    f"{CONDENSED_TEXT}: pooled by agreement. {AS_DANCE_READS}: pooling, weights of edges and class "
    "prior are DANCE's. A method that ignores r has its standard row at every r. Differences as in "
    "the main table, Holm's correction over all cells of one rival. Costs: tokens of a refresh's "
    "evidence (else of all local texts), MB up of a client, seconds of one core without encoding."
)
HOW_SUMMARY = (
    "The other method that DANCE is least ahead of, or most behind. Brackets: 95 % interval of the "
    "corrected paired t-test, undecided where it includes 0; not corrected for their number."
)
SHARED = ("clients", "partition", "rounds", "backbone")
_EVERYWHERE = [variant.name for variant in EVERYWHERE]
_RIVALS = [variant.name for variant in RIVALS]


def _render(rows: Sequence[Row]) -> Section:
    results = results_of(rows)
    parts: list[str | Picture] = [HOW]
    for dataset in results.datasets:
        places = results.places(dataset)
        members = results.groups.get(Place(dataset, STANDARD, STANDARD), ())
        shared = shared_settings([row for group in members for row in group.rows], SHARED)
        # The cells in which other methods ran, too.
        wide = [p for p in places if len(results.groups[p]) > len(EVERYWHERE)]
        others = {name: None for p in wide for name in results.rivals(p) if name not in _RIVALS}
        parts += [
            f"**{dataset}**, standard cell: {shared}",
            *_accuracies(results, places, _EVERYWHERE),
            _comparisons(results, places, _RIVALS),
        ]
        if others:
            parts += [_comparisons(results, wide, others), _picture(results, dataset, wide)]
    return Section(tuple(parts), summary=f"{_summary(results)}\n\n{HOW_SUMMARY}")


def _summary(results: Results) -> str:
    lines = []
    claimed = {(level.regime, level.level) for level in LEVELS if level.claim}
    for place in results.groups:
        if (place.regime, place.level) not in claimed:
            continue
        tests = {
            name: test
            for name, test in results.rivals(place).items()
            if test.difference.mean is not None
        }
        if not tests:
            continue
        best = min(tests, key=lambda name: tests[name].difference.mean or 0.0)
        line = [place.dataset, place.name, best, tests[best].interval_text]
        lines.append([*line, _decided(tests[best])])
    headings = ["data set", "regime", "best other method", "DANCE's distance, points"]
    return markdown([*headings, ""], lines)


def _decided(test: PairedTest) -> str:
    """Return "ahead" or "behind", or "undecided" if the interval includes 0."""
    if test.test is None:
        return test.verdict
    low, high = test.test.interval
    return "ahead" if low > 0 else "behind" if high < 0 else "undecided"


def _accuracies(results: Results, places: Sequence[Place], names: Collection[str]) -> list[str]:
    columns = [_by_name(results, place) for place in places]
    seeds = [max(len(group.rows) for group in results.groups[place]) for place in places]
    variants = dict.fromkeys(
        name
        for by_name in columns
        for name, group in by_name.items()
        if group.labels["variant"] in names
    )
    lines = [
        [name, *(_cell(column.get(name), n) for column, n in zip(columns, seeds, strict=True))]
        for name in variants
    ]
    headings = ["accuracy %", *(place.name for place in places)]
    table = markdown(headings, [*lines, ["seeds", *map(str, seeds)]])
    claims = [column for column, place in zip(columns, places, strict=True) if place.regime != CORE]
    beyond = [
        [name, *(beyond_cell(at[name]) if name in at else NOTHING for at in claims)]
        for name in variants
    ]
    headings = ["/".join(BEYOND), *(place.name for place in places if place.regime != CORE)]
    is_first = places[0].dataset == results.datasets[0]  # what it is, is said once
    return [table, *([HOW_BEYOND] if is_first else []), markdown(headings, beyond)]


def _by_name(results: Results, place: Place) -> dict[str, Group]:
    """Return the groups of a cell by name; at another r, also those that ignore it."""
    members = list(results.groups[place])
    if place.regime == CORE:
        ran = {group.labels["variant"] for group in members}
        standard = results.groups.get(place.standard, ())
        members += [group for group in standard if group.labels["variant"] not in ran]
    return {group.name(str(group.labels["variant"])): group for group in members}


def _cell(group: Group | None, seeds: int) -> str:
    if group is None:
        return NOTHING
    stat = group.stat("test_accuracy")
    fewer = 0 < stat.n == stat.requested < seeds
    return f"{stat.percent} ({counted(stat.n, 'seed')})" if fewer else stat.percent


def _comparisons(results: Results, places: Sequence[Place], names: Collection[str]) -> str:
    tests = {
        (name, place.name): results.tests[place, name]
        for place in places
        for name in names
        if (place, name) in results.tests
    }
    return comparison_table("DANCE minus", tests)


def selected_tokens(row: Row) -> float:
    """Return thousand tokens of one refresh's evidence; of all texts for a method without any."""
    tokens = tokens_of_a_refresh(row)
    return (sum(row.result["encoder_tokens"]) if tokens is None else tokens) / 1000


def megabytes_up(row: Row) -> float:
    """Return megabytes that a client uploads in the whole run."""
    return float(row.result["bytes_up"] * row.result["rounds"] / 1e6)


def seconds(row: Row) -> float:
    """Return the processor seconds of the whole run, all clients and the server."""
    return float(row.result["facts"]["cpu_seconds"])


COSTS: Mapping[str, Callable[[Row], float | None]] = {
    "thousand tokens": selected_tokens,
    "MB up per client": megabytes_up,
    "seconds": seconds,
}


def _picture(results: Results, dataset: str, places: Sequence[Place]) -> Picture:
    draw = partial(_draw, results, places)
    caption = f"Accuracy against cost on {dataset}."
    return Picture(f"regimes-costs-{dataset}", caption, draw, (9.0, 7.0))


def _draw(results: Results, places: Sequence[Place], figure: Any) -> None:
    axes = figure.subplots(len(places), len(COSTS), squeeze=False, sharey="row")
    names = dict.fromkeys(
        g.name(str(g.labels["variant"])) for p in places for g in results.groups[p]
    )
    styles = {name: _style(i) for i, name in enumerate(names)}
    handles: dict[str, Any] = {}
    for place, row in zip(places, axes, strict=True):
        row[0].set_ylabel(f"test accuracy (%), {place.name}")
        for ax, (title, cost) in zip(row, COSTS.items(), strict=True):
            for group in results.groups[place]:
                name = group.name(str(group.labels["variant"]))
                x, y = group.stat(cost).mean, group.stat("test_accuracy").mean
                if x is not None and y is not None:
                    (handles[name],) = ax.plot([x], [100 * y], linestyle="", **styles[name])
            ax.set(xlabel=title)
            if ax.lines:
                ax.set_xscale("log")
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=7
        )


def _style(i: int) -> dict[str, Any]:
    """Return colour and marker of the i-th method; no two of 64 share both."""
    return {"color": COLOURS[i % 8], "marker": MARKERS[(i + i // 8) % 8], "markersize": 6}


def _verdict(rows: Sequence[Row]) -> str:
    """Compare with rotated labels and with pooled text in every regime."""
    return verdict(
        Expected(f"DANCE minus {rival} on {place.dataset}, {place.name}", test)
        for (place, rival), test in results_of(rows).tests.items()
        if rival in (ROTATING, CONDENSED_TEXT) and test.difference.mean is not None
    )


EXPERIMENT = Experiment(
    name="regimes",
    title="Regimes",
    question="Condensation adds something that rotation of labels and pooled text "
    "do not: not a claim of the paper.",
    cells=regimes_grid.cells,
    render=_render,
    verdict=_verdict,
    datasets=("cora", "citeseer", *regimes_grid.BY_SITE),
    seeds=regimes_grid.SEEDS,
)
