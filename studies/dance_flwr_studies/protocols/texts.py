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
from dance_flwr_studies.protocols.variants import BY_SITE
from dance_flwr_studies.reports.figures import points
from dance_flwr_studies.reports.sections import seeds_text
from dance_flwr_studies.reports.tables import NOTHING, Group, groups, markdown, stat_of

RULES = (COVERAGE, LABEL_AWARE, RANDOM_LABELLED, RANDOM)
RATIOS = (0.005, 0.02, 0.08)
ALL = 1.0  # every text, without a core
SHOWN = (CLEAN, TEXT)
HOW = (
    "Test accuracy in %, mean ± standard deviation over seeds; descriptive, without verdicts. A "
    "core is chosen in round 1 and kept. *texts*: in the cores of all clients together, medians "
    f"over seeds. *all*: {READS}, without a core. *coverage*: facility location within each class; "
    "*label-aware*: the paper's score; *random-labelled*: labelled nodes at random with the same "
    "quotas; *random*: any nodes."
)


def _cells(request: Request) -> list[Cell]:
    cells: list[Cell] = []
    for dataset in request.datasets:
        name = dataset_name(dataset)
        # On sites the regime alone in which texts mislead.
        for regime in SHOWN[1:] if name in BY_SITE else SHOWN:
            method, reads = VARIANTS[READS]
            points: list[tuple[str, float, str, Mapping[str, Value]]] = [
                (rule, ratio, "dance", _once(rule, ratio)) for ratio in RATIOS for rule in RULES
            ]
            for rule, ratio, of, settings in (*points, ("all", ALL, method, reads)):
                values = {**BY_SITE.get(name, {}), **REGIMES[regime], **settings}
                labels: dict[str, Label] = {"regime": regime, "ratio": ratio, "rule": rule}
                cells += request.cells(dataset, of, labels, values)
    return cells


def _once(rule: str, ratio: float) -> dict[str, Value]:
    values: dict[str, Value] = {"dance.core-refresh-every": 0, "condensation-ratio": ratio}
    return values | {"dance.core-rule": rule}


Places = Mapping[float, Mapping[str, Group]]  # ratio -> rule -> group


def _render(rows: Sequence[Row]) -> Section:
    found: dict[tuple[str, str], dict[float, dict[str, Group]]] = {}
    compared = groups(rows)
    for group in compared:
        labels = group.labels
        at = found.setdefault((str(labels["dataset"]), str(labels["regime"])), {})
        at.setdefault(float(labels["ratio"]), {})[str(labels["rule"])] = group
    lines = [
        [
            f"{data}: {regime}",
            _texts(part),
            *(_accuracy(part.get(rule)) for rule in (*RULES, "all")),
        ]
        for (data, regime), places in found.items()
        for part in places.values()
    ]
    table = markdown(["", "texts", *RULES, "all"], lines, 2)
    datasets = dict.fromkeys(data for data, _ in found)
    pictures = [
        Picture(
            f"texts-{data}",
            f"Accuracy on {data} by the number of texts in all cores. Grey: all texts.",
            partial(_draw, {r: places for (d, r), places in found.items() if d == data}),
            (9.0, 3.2),
        )
        for data in datasets
    ]
    return Section((f"{HOW} {seeds_text(compared)}", table, *pictures))


def _number(part: Mapping[str, Group]) -> int:
    numbers = sorted(
        sum(sum(core.values()) for core in row.result["facts"]["core_per_class"])
        if row.labels["rule"] != "all"
        else sum(row.result["nodes_per_client"])
        for group in part.values()
        for row in group.rows
        if row.result
    )
    return int(numbers[len(numbers) // 2]) if numbers else 0


def _texts(part: Mapping[str, Group]) -> str:
    return f"{_number(part):,}" if _number(part) else NOTHING


def _accuracy(group: Group | None) -> str:
    return NOTHING if group is None else group.stat("test_accuracy").percent


def _draw(regimes: Mapping[str, Places], figure: Any) -> None:
    axes = figure.subplots(1, len(regimes), squeeze=False)[0]
    nothing = stat_of([], 0)
    for ax, (regime, places) in zip(axes, regimes.items(), strict=True):
        cores = [part for ratio, part in places.items() if ratio != ALL and _number(part)]
        lines = {
            rule: [part[rule].stat("test_accuracy") if rule in part else nothing for part in cores]
            for rule in RULES
        }
        points(ax, [_number(part) for part in cores], lines)
        whole = places.get(ALL, {}).get("all")
        if whole and (mean := whole.stat("test_accuracy").mean) is not None:
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
