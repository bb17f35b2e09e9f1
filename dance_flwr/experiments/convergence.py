"""Convergence: validation accuracy by round, of the main table's own runs."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from dance_flwr.config.plugins import METHODS
from dance_flwr.experiments import paper
from dance_flwr.experiments.cells import (
    Cell,
    Experiment,
    Picture,
    Request,
    Row,
    Section,
    dataset_name,
)
from dance_flwr.experiments.figures import curves
from dance_flwr.experiments.main_table import method_cells
from dance_flwr.experiments.tables import Group, by_label, groups, markdown

HOW = (
    "The curves are of the validation nodes: a run reads its test nodes once, at the end, so there is no test curve "
    "to select by (the paper shows test accuracy). Line: mean over seeds; band: one sample standard deviation. "
    "The table counts rounds until a run first reaches a share of its own best validation accuracy."
)


def _cells(request: Request) -> list[Cell]:
    return [
        cell
        for dataset in request.datasets
        for method in request.methods or tuple(METHODS)
        for cell in method_cells(
            request, dataset, method, paper.main_ratios(dataset_name(dataset))[:1], curve=True
        )
    ]


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str | Picture] = [HOW]
    for dataset, found in by_label(groups(rows), "dataset").items():
        parts += [f"**{dataset}**", _table(found)]
        caption = f"Validation accuracy by round on {dataset}."
        parts.append(Picture(f"convergence-{dataset}", caption, partial(_draw, found)))
    return Section(tuple(parts))


def _table(found: Sequence[Group]) -> str:
    headings = [
        "method",
        "r",
        "seeds",
        "rounds to 95 % of its best",
        "rounds to 99 % of its best",
        "best round",
    ]
    headings += ["best validation %", "validation %, last third of the rounds"]
    lines = []
    for group in found:
        best = group.stat("best_round")
        line = [group.name(str(group.labels["method"])), str(group.labels["ratio"]), best.seeds]
        line += [group.stat(_rounds_to(share)).text(1) for share in (0.95, 0.99)]
        line += [best.text(1), group.stat("val_accuracy").percent, group.stat(_late).percent]
        lines.append(line)
    return markdown(headings, lines)


def _rounds_to(share: float) -> Callable[[Row], float | None]:
    def first(row: Row) -> float | None:
        curve = [
            -1.0 if value is None else value
            for value in row.result.get("val_accuracy_by_round", [])
        ]
        enough = [i for i, value in enumerate(curve, 1) if value >= share * max(curve)]
        return float(enough[0]) if enough else None

    return first


def _late(row: Row) -> float | None:
    """Mean over the validations in the last third of the rounds: what a run settles at, without a
    lucky round.
    """
    curve = row.result.get("val_accuracy_by_round", [])
    values = [value for value in curve[len(curve) - len(curve) // 3 :] if value is not None]
    return fmean(values) if values else None


def _draw(found: Sequence[Group], figure: Any) -> None:
    lines = {}
    for group in found:
        done = [row.result["val_accuracy_by_round"] for row in group.rows if row.result]
        shortest = min((len(curve) for curve in done), default=0)
        if shortest:
            scaled = [[None if v is None else 100 * v for v in curve[:shortest]] for curve in done]
            lines[group.name(str(group.labels["method"]))] = scaled
    axes = figure.subplots()
    curves(axes, lines)
    axes.set(xlabel="communication round", ylabel="validation accuracy (%)")
    if lines:
        axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    name="convergence",
    title="Convergence",
    question="DANCE reaches competitive accuracy in earlier rounds than the others (the paper's convergence figure).",
    cells=_cells,
    render=_render,
)
