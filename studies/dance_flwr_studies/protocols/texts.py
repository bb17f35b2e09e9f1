"""Accuracy by the number of texts: what a core that is chosen once is worth as a budget of texts.

The core's texts are those that a person would have to review, or a language model to read.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.dance.config import COVERAGE, LABEL_AWARE, RANDOM, RANDOM_LABELLED
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
from dance_flwr_studies.protocols.primary import CLEAN, READS, REGIMES, TEXT, VARIANTS
from dance_flwr_studies.protocols.variants import BY_SITE, find
from dance_flwr_studies.reports.figures import points
from dance_flwr_studies.reports.sections import seeds_text
from dance_flwr_studies.reports.tables import (
    NOTHING,
    Group,
    Stat,
    by_label,
    groups,
    markdown,
    stat_of,
)

RULES = (COVERAGE, LABEL_AWARE, RANDOM_LABELLED, RANDOM)
RATIOS = (0.005, 0.02, 0.08)
ALL = 1.0  # every text, without a core
SHOWN = (CLEAN, TEXT)
_ONCE: Mapping[str, Value] = {"dance.core-refresh-every": 0}
HOW = (
    "Test accuracy in %, mean ± standard deviation over seeds; descriptive, without verdicts. A "
    "core is chosen in round 1 and kept. *texts*: in the cores of all clients together, medians "
    f"over seeds. *all*: {READS}, without a core. *coverage*: facility location within each class; "
    "*label-aware*: the paper's score; *random-labelled*: labelled nodes at random with the same "
    "quotas; *random*: any nodes."
)


def _cells(request: Request) -> list[Cell]:
    cells: list[Cell] = []
    points = [
        (rule, ratio, "dance", {**_ONCE, "condensation-ratio": ratio, "dance.core-rule": rule})
        for ratio in RATIOS
        for rule in RULES
    ]
    method, reads = VARIANTS[READS]
    for dataset in request.datasets:
        site = BY_SITE.get(dataset_name(dataset), {})
        # On sites the regime alone in which texts mislead.
        for regime in SHOWN[1:] if site else SHOWN:
            for rule, ratio, of, settings in (*points, ("all", ALL, method, reads)):
                values = {**site, **REGIMES[regime], **settings}
                labels: dict[str, Label] = {"regime": regime, "ratio": ratio, "rule": rule}
                cells += request.cells(dataset, of, labels, values)
    return cells


def _render(rows: Sequence[Row]) -> Section:
    compared = groups(rows)
    places: dict[str, list[Group]] = {}
    for group in compared:
        places.setdefault("{dataset}: {regime}".format(**group.labels), []).append(group)
    lines = [
        [
            place,
            f"{_number(part):,}" if _number(part) else NOTHING,
            *(_stat(part, rule).percent for rule in (*RULES, "all")),
        ]
        for place, members in places.items()
        for part in by_label(members, "ratio").values()
    ]
    table = markdown(["", "texts", *RULES, "all"], lines, 2)
    pictures = [
        Picture(
            f"texts-{data}",
            f"Accuracy on {data} by the number of texts in all cores. Grey: all texts.",
            partial(_draw, by_label(found, "regime")),
            (9.0, 3.2),
        )
        for data, found in by_label(compared, "dataset").items()
    ]
    return Section((f"{HOW} {seeds_text(compared)}", table, *pictures))


def _number(part: Sequence[Group]) -> int:
    numbers = sorted(
        sum(sum(core.values()) for core in row.result["facts"]["core_per_class"])
        if row.labels["rule"] != "all"
        else sum(row.result["nodes_per_client"])
        for group in part
        for row in group.rows
        if row.result
    )
    return int(numbers[len(numbers) // 2]) if numbers else 0


def _stat(part: Sequence[Group], rule: str) -> Stat:
    group = find(part, rule=rule)
    return group.stat("test_accuracy") if group else stat_of([], 0)


def _draw(regimes: Mapping[str, Sequence[Group]], figure: Any) -> None:
    axes = figure.subplots(1, len(regimes), squeeze=False)[0]
    for ax, (regime, members) in zip(axes, regimes.items(), strict=True):
        parts = by_label(members, "ratio")
        cores = [part for ratio, part in parts.items() if ratio != ALL and _number(part)]
        lines = {rule: [_stat(part, rule) for part in cores] for rule in RULES}
        points(ax, [_number(part) for part in cores], lines)
        if (mean := _stat(parts.get(ALL, []), "all").mean) is not None:
            ax.axhline(100 * mean, color="0.6", linewidth=1)
        # A logarithmic axis needs a point.
        ax.set(title=regime, xlabel="texts", xscale="log" if cores else "linear")
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].legend(fontsize=7)


EXPERIMENT = Experiment(
    title="A budget of texts",
    question="How accurate is a model that was trained on a few texts: not a claim of the paper.",
    cells=_cells,
    render=_render,
    datasets=("cora", "citeseer", *BY_SITE),
)
