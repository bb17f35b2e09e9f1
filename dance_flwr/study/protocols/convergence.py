"""Convergence: validation accuracy by round, from the runs of the main table."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from dance_flwr.study.engine.cells import (
    Cell,
    Experiment,
    Picture,
    Request,
    Row,
    Section,
    dataset_name,
    default_methods,
)
from dance_flwr.study.engine.compact_rows import CURVE
from dance_flwr.study.protocols.main_table import method_cells
from dance_flwr.study.reports import paper_values as paper
from dance_flwr.study.reports.figures import curves
from dance_flwr.study.reports.tables import Group, dataset_section, markdown

HOW = (
    "The curves are of the validation nodes: a run reads its test nodes once, at the end, so there "
    "is no test curve to select by (the paper shows test accuracy). Line: mean over seeds; band: "
    "one sample standard deviation. The table counts rounds until a run first reaches a share of "
    "its own best validation accuracy."
)


def _cells(request: Request) -> list[Cell]:
    return [
        cell
        for dataset in request.datasets
        for method in request.methods or default_methods()
        for cell in method_cells(
            request, dataset, method, paper.main_ratios(dataset_name(dataset))[:1], curve=True
        )
    ]


def _render(rows: Sequence[Row]) -> Section:
    return dataset_section(rows, HOW, _parts)


def _parts(dataset: str, compared: Sequence[Group]) -> list[str | Picture]:
    caption = f"Validation accuracy by round on {dataset}."
    return [
        _table(compared),
        Picture(f"convergence-{dataset}", caption, partial(_draw, compared)),
    ]


def _table(compared: Sequence[Group]) -> str:
    headings = ["method", "r", "seeds", "rounds to 95 % of its best", "rounds to 99 % of its best"]
    headings += ["best round", "best validation %", "validation %, last third of the rounds"]
    lines = []
    for group in compared:
        best = group.stat(_best_round)
        line = [group.name(str(group.labels["method"])), str(group.labels["ratio"])]
        line += [group.stat("test_accuracy").seeds]
        line += [group.stat(_rounds_to(share)).text(1) for share in (0.95, 0.99)]
        line += [best.text(1), group.stat("val_accuracy").percent]
        lines.append([*line, group.stat(late_accuracy).percent])
    return markdown(headings, lines)


def _best_round(row: Row) -> float | None:
    """Return the best round on validation, None where nothing was validated."""
    return None if row.result["val_accuracy"] is None else float(row.result["best_round"])


def _curve(row: Row) -> Sequence[float | None]:
    """Return the validation accuracy of each round, None in rounds without validation."""
    return row.result.get(CURVE, [])  # type: ignore[no-any-return]


def _rounds_to(share: float) -> Callable[[Row], float | None]:
    """Return a metric: the first round at `share` of the run's best validation accuracy."""

    def first(row: Row) -> float | None:
        curve = [-1.0 if value is None else value for value in _curve(row)]
        reached = [i for i, value in enumerate(curve, 1) if value >= share * max(curve)]
        return float(reached[0]) if reached else None

    return first


def late_accuracy(row: Row) -> float | None:
    """Return the mean of the validations in the last third of the rounds, free of lucky rounds."""
    curve = _curve(row)
    values = [value for value in curve[len(curve) - len(curve) // 3 :] if value is not None]
    return fmean(values) if values else None


def _draw(compared: Sequence[Group], figure: Any) -> None:
    lines = {}
    for group in compared:
        seeds = [row.result[CURVE] for row in group.rows if row.result]
        shortest = min((len(curve) for curve in seeds), default=0)
        if shortest:
            lines[group.name(str(group.labels["method"]))] = [
                [None if value is None else 100 * value for value in curve[:shortest]]
                for curve in seeds
            ]
    axes = figure.subplots()
    curves(axes, lines)
    axes.set(xlabel="communication round", ylabel="validation accuracy (%)")
    if lines:
        axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    name="convergence",
    title="Convergence",
    question="DANCE reaches competitive accuracy in earlier rounds than the others (the paper's "
    "convergence figure).",
    cells=_cells,
    render=_render,
)
