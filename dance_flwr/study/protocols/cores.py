"""Which nodes a small core should hold: three rules, a core that lasts or moves, and few texts.

The family of comparisons is fixed here, before any run: each other rule against the paper's score,
per ratio and movement, with Holm's correction over all of a data set.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.dance.config import COVERAGE, RANDOM_LABELLED
from dance_flwr.study.engine.cells import (
    Cell,
    Experiment,
    Picture,
    Request,
    Row,
    Section,
    dataset_name,
)
from dance_flwr.study.protocols.regimes.grid import BY_SITE
from dance_flwr.study.protocols.variants import find
from dance_flwr.study.reports import significance
from dance_flwr.study.reports.figures import COLOURS, LINES, MARKERS
from dance_flwr.study.reports.tables import NOTHING, Group, by_label, groups, markdown

SCORE = "label-aware"
RULES = (SCORE, COVERAGE, RANDOM_LABELLED)
_REFRESH = ("dance.core-refresh-every", "dance.text-refresh-every")
STATIC: dict[str, Value] = dict.fromkeys(_REFRESH, 0)
MOVEMENTS: dict[str, dict[str, Value]] = {"static": STATIC, "moving": {}}
RATIOS = (0.005, 0.02)
TEXT_RATIOS = (0.005, 0.01, 0.02, 0.04, 0.08)
RULES_PART, TEXTS_PART = "rules", "texts"
HOW = (
    "Test accuracy in %, mean ± sample standard deviation over seeds; below it the difference from "
    "the paper's score as in the main table, Holm's correction over all of a data set."
)
CAPTION = (
    "Accuracy over the chunks that a static core reads as evidence, each once, all clients "
    "together, 75 % foreign text, at r = 0.5 to 8 %: what a budget for reading or summarising buys."
)


def _cells(request: Request) -> list[Cell]:
    grid = [
        (RULES_PART, rule, ratio, movement, {**settings})
        for ratio in RATIOS
        for movement, settings in MOVEMENTS.items()
        for rule in RULES
    ]
    grid += [
        (TEXTS_PART, rule, ratio, "static", STATIC | {"foreign-text-ratio": 0.75})
        for ratio in TEXT_RATIOS
        for rule in RULES
    ]
    return [
        Cell(
            {
                "dataset": dataset_name(dataset),
                "method": "dance",
                "part": part,
                "rule": rule,
                "ratio": ratio,
                "movement": movement,
                "seed": seed,
            },
            request.config(
                dataset,
                "dance",
                seed,
                {**BY_SITE.get(dataset_name(dataset), {}), **settings, "dance.core-rule": rule}
                | {"condensation-ratio": ratio},
            ),
        )
        for dataset in request.datasets
        for part, rule, ratio, movement, settings in grid
        for seed in request.seeds
    ]


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str | Picture] = [HOW]
    stated = {"dance.core-rule", "foreign-text-ratio", "condensation-ratio", *_REFRESH}
    for dataset, compared in by_label(groups(rows, stated), "dataset").items():
        by_part = by_label(compared, "part")
        if decided := by_part.get(RULES_PART):
            parts += [f"**{dataset}**", _table(decided)]
        if read := by_part.get(TEXTS_PART):
            parts.append(Picture(f"cores-{dataset}", CAPTION, partial(_draw, read)))
    return Section(tuple(parts))


def _table(compared: Sequence[Group]) -> str:
    columns = [(ratio, movement) for ratio in RATIOS for movement in MOVEMENTS]

    def at(rule: str, column: tuple[float, str]) -> Group | None:
        return find(compared, rule=rule, ratio=column[0], movement=column[1])

    scores = [
        [
            rule,
            *(g.stat("test_accuracy").percent if (g := at(rule, c)) else NOTHING for c in columns),
        ]
        for rule in RULES
    ]
    pairs = [
        (rule, column, mine, paper)
        for rule in RULES[1:]
        for column in columns
        if (mine := at(rule, column)) and (paper := at(SCORE, column))
    ]
    tests = significance.corrected([significance.paired_test(m, p) for *_, m, p in pairs])
    by_pair = {pair[:2]: test.text for pair, test in zip(pairs, tests, strict=True)}
    distances = [
        [f"{rule} minus {SCORE}", *(by_pair.get((rule, column), NOTHING) for column in columns)]
        for rule in RULES[1:]
    ]
    return markdown(["%", *(f"r = {r:.1%}, {m}" for r, m in columns)], [*scores, *distances])


def _draw(compared: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    for i, rule in enumerate(RULES):
        members = [group for group in compared if group.labels["rule"] == rule]
        points = [(g.stat(_chunks).mean, g.stat("test_accuracy")) for g in members]
        known = sorted((x, s) for x, s in points if x is not None and s.mean is not None)
        axes.errorbar(
            [x for x, _ in known],
            [100 * (stat.mean or 0.0) for _, stat in known],
            yerr=[100 * (stat.std or 0.0) for _, stat in known],
            label=rule,
            color=COLOURS[i],
            linestyle=LINES[i],
            marker=MARKERS[i],
            capsize=3,
        )
    axes.set(xlabel="chunks of text read", ylabel="test accuracy %", xscale="log")
    axes.legend()


def _chunks(row: Row) -> float:
    return float(row.result["tokens"]["evidence"]["distinct_chunks"])


EXPERIMENT = Experiment(
    name="cores",
    title="Rules for the core",
    question="A core of nodes nearest to their class prototype is better than a covering or a "
    "random one: what the paper's node condensation needs.",
    cells=_cells,
    render=_render,
    datasets=("cora", "citeseer", *BY_SITE),
)
