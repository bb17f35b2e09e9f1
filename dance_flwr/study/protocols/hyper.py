"""Hyper-parameters: evidence budgets, chunk-context mix, and the weights of self-expression."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dance_flwr.config.options import Value
from dance_flwr.study.engine.cells import Cell, Experiment, Label, Picture, Request, Row, Section
from dance_flwr.study.protocols.variants import find, point_cells
from dance_flwr.study.reports.figures import heat, points
from dance_flwr.study.reports.tables import Group, by_label, dataset_section, markdown

HOP1, HOP2 = (1, 3, 5), (0, 2, 4)
MIX = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ALPHA, BETA = (4.0, 8.0, 12.0), (3.0, 5.0, 10.0)
_AXES = {"budgets": ("hop1", "hop2"), "alpha-beta": ("alpha", "beta")}  # part -> labels of the map
_NAMES = {
    "hop1": "1-hop budget B1",
    "hop2": "2-hop budget B2",
    "alpha": "alpha",
    "beta": "beta",
    "mix": "mix",
}
HOW = (
    "Maps and curves show validation accuracy, by which settings are selected; the tables hold "
    "test accuracy beside it. All other settings are those of the main table. The 2-hop pool holds "
    "4 x B2 candidates, at least one."
)


def _cells(request: Request) -> list[Cell]:
    return point_cells(request, _points())


def _points() -> list[tuple[dict[str, Label], dict[str, Value]]]:
    """Return (labels, settings) of every point."""
    grid: list[tuple[dict[str, Label], dict[str, Value]]] = []
    for one in HOP1:
        for two in HOP2:
            settings: dict[str, Value] = {"dance.hop1-budget": one, "dance.hop2-budget": two}
            settings["dance.hop2-pool"] = max(4 * two, 1)
            grid.append(({"part": "budgets", "hop1": one, "hop2": two}, settings))
    grid += [({"part": "mix", "mix": mix}, {"dance.mix": mix}) for mix in MIX]
    grid += [
        (
            {"part": "alpha-beta", "alpha": alpha, "beta": beta},
            {"dance.alpha": alpha, "dance.beta": beta},
        )
        for alpha in ALPHA
        for beta in BETA
    ]
    return grid


def _render(rows: Sequence[Row]) -> Section:
    return dataset_section(rows, HOW, _parts)


def _parts(dataset: str, compared: Sequence[Group]) -> list[str | Picture]:
    parts: list[str | Picture] = []
    for part, members in by_label(compared, "part").items():
        draw = partial(_draw_mix, members) if part == "mix" else partial(_draw_map, part, members)
        caption = f"Validation accuracy over {part} on {dataset}."
        picture = Picture(f"hyper-{part}-{dataset}", caption, draw, (4.5, 3.4))
        parts += [_table(members), picture]
    return parts


def _table(members: Sequence[Group]) -> str:
    keys = [key for key in members[0].labels if key in _NAMES]
    lines = []
    for group in members:
        first, *others = (str(group.labels[key]) for key in keys)
        test = group.stat("test_accuracy")
        line = [group.name(first), *others, group.stat("val_accuracy").percent]
        lines.append([*line, test.percent, test.seeds])
    return markdown([*(_NAMES[key] for key in keys), "validation %", "test %", "seeds"], lines)


def _draw_map(part: str, members: Sequence[Group], figure: Any) -> None:
    down, across = _AXES[part]
    rows, cols = (
        list(dict.fromkeys(group.labels[key] for group in members)) for key in (down, across)
    )
    values = np.full((len(rows), len(cols)), np.nan)
    for i, row in enumerate(rows):
        for j, col in enumerate(cols):
            group = find(members, **{down: row, across: col})
            value = group.stat("val_accuracy").mean if group else None
            values[i, j] = np.nan if value is None else value
    axes = figure.subplots()
    heat(figure, axes, values, [f"{value:g}" for value in rows], [f"{value:g}" for value in cols])
    axes.set(ylabel=_NAMES[down], xlabel=_NAMES[across])


def _draw_mix(members: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    names = {"validation": "val_accuracy", "test": "test_accuracy"}
    points(
        axes,
        [float(group.labels["mix"]) for group in members],
        {name: [group.stat(key) for group in members] for name, key in names.items()},
    )
    axes.set(xlabel="mix: share of chunk evidence against neighbour context", ylabel="accuracy (%)")
    axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    name="hyper",
    title="Hyper-parameters",
    question="Accuracy is stable over wide ranges of evidence budgets, mix, alpha and beta (the "
    "paper's hyper-parameter figures).",
    cells=_cells,
    render=_render,
)
