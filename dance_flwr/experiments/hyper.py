"""Hyper-parameters: evidence budgets, the mix of chunks and context, and the weights of
self-expression.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dance_flwr.config.options import Value
from dance_flwr.experiments.cells import Cell, Experiment, Label, Picture, Request, Row, Section
from dance_flwr.experiments.figures import heat, points
from dance_flwr.experiments.tables import Group, by_label, groups, markdown
from dance_flwr.experiments.variants import find, point_cells

HOP1, HOP2 = (1, 3, 5), (0, 2, 4)
MIX = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ALPHA, BETA = (4.0, 8.0, 12.0), (3.0, 5.0, 10.0)
# part -> (label of the rows, label of the columns, axis names); what a label is called on an axis
_AXES = {"budgets": ("hop1", "hop2"), "alpha-beta": ("alpha", "beta")}
_NAMES = {
    "hop1": "1-hop budget B1",
    "hop2": "2-hop budget B2",
    "alpha": "alpha",
    "beta": "beta",
    "mix": "mix",
}
HOW = (
    "Maps and curves show validation accuracy, by which settings are selected; the tables hold test accuracy beside "
    "it. All other settings are those of the main table. The 2-hop pool holds 4 x B2 candidates, at least one."
)


def _cells(request: Request) -> list[Cell]:
    return point_cells(request, _points())


def _points() -> list[tuple[dict[str, Label], dict[str, Value]]]:
    """Return (labels, settings) of every point."""
    made: list[tuple[dict[str, Label], dict[str, Value]]] = []
    for one in HOP1:
        for two in HOP2:
            settings: dict[str, Value] = {"dance.hop1-budget": one, "dance.hop2-budget": two}
            settings["dance.hop2-pool"] = max(4 * two, 1)
            made.append(({"part": "budgets", "hop1": one, "hop2": two}, settings))
    made += [({"part": "mix", "mix": mix}, {"dance.mix": mix}) for mix in MIX]
    made += [
        (
            {"part": "alpha-beta", "alpha": alpha, "beta": beta},
            {"dance.alpha": alpha, "dance.beta": beta},
        )
        for alpha in ALPHA
        for beta in BETA
    ]
    return made


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str | Picture] = [HOW]
    for dataset, found in by_label(groups(rows), "dataset").items():
        parts.append(f"**{dataset}**")
        for part, own in by_label(found, "part").items():
            parts.append(_table(own))
            draw, what = (
                (_draw_mix, "mix") if part == "mix" else (partial(_draw_map, str(part)), str(part))
            )
            caption = f"Validation accuracy over {what} on {dataset}."
            parts.append(
                Picture(f"hyper-{part}-{dataset}", caption, partial(draw, own), (4.5, 3.4))
            )
    return Section(tuple(parts))


def _table(own: Sequence[Group]) -> str:
    keys = [key for key in own[0].labels if key in _NAMES]
    lines = []
    for group in own:
        values = [str(group.labels[key]) for key in keys]
        test = group.stat("test_accuracy")
        line = [
            group.name(values[0]),
            *values[1:],
            group.stat("val_accuracy").percent,
            test.percent,
            test.seeds,
        ]
        lines.append(line)
    return markdown([*(_NAMES[key] for key in keys), "validation %", "test %", "seeds"], lines)


def _draw_map(part: str, own: Sequence[Group], figure: Any) -> None:
    down, across = _AXES[part]
    rows, cols = (list(dict.fromkeys(group.labels[key] for group in own)) for key in (down, across))
    values = np.full((len(rows), len(cols)), np.nan)
    for i, row in enumerate(rows):
        for j, col in enumerate(cols):
            group = find(own, **{down: row, across: col})
            value = group.stat("val_accuracy").mean if group else None
            values[i, j] = np.nan if value is None else value
    axes = figure.subplots()
    heat(figure, axes, values, [f"{value:g}" for value in rows], [f"{value:g}" for value in cols])
    axes.set(ylabel=_NAMES[down], xlabel=_NAMES[across])


def _draw_mix(own: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    names = {"validation": "val_accuracy", "test": "test_accuracy"}
    points(
        axes,
        [float(group.labels["mix"]) for group in own],
        {name: [group.stat(key) for group in own] for name, key in names.items()},
    )
    axes.set(xlabel="mix: share of chunk evidence against neighbour context", ylabel="accuracy (%)")
    axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    name="hyper",
    title="Hyper-parameters",
    question="Accuracy is stable over wide ranges of evidence budgets, mix, alpha and beta (the paper's "
    "hyper-parameter figures).",
    cells=_cells,
    render=_render,
    seeds=(0, 1),
)
