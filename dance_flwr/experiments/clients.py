"""Scaling clients: the same graph divided among more and more clients."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dance_flwr.experiments.cells import Cell, Experiment, Picture, Request, Row, Section
from dance_flwr.experiments.figures import points
from dance_flwr.experiments.tables import Group, by_label, groups, markdown
from dance_flwr.experiments.variants import SEED_TEXT, find, variant_cells

COUNTS = (3, 5, 10, 20)


def _cells(request: Request) -> list[Cell]:
    return [
        cell
        for dataset in request.datasets
        for count in COUNTS
        for method in request.methods
        for cell in variant_cells(request, dataset, method, {"clients": count}, {"clients": count})
    ]


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str | Picture] = [
        f"M clients from Louvain communities of the same graph. {SEED_TEXT}"
    ]
    for dataset, found in by_label(groups(rows), "dataset").items():
        parts += [f"**{dataset}**", _table(found)]
        caption = f"Test accuracy over the number of clients on {dataset}."
        parts.append(Picture(f"clients-{dataset}", caption, partial(_draw, found), (4.8, 3.4)))
    return Section(tuple(parts))


def _table(found: Sequence[Group]) -> str:
    lines = []
    for group in found:
        accuracy = group.stat("test_accuracy")
        line = [
            group.name(f"{group.labels['clients']}"),
            str(group.labels["method"]),
            accuracy.percent,
            accuracy.seeds,
        ]
        line += [group.stat("test_macro_f1").percent, group.stat("val_accuracy").percent]
        lines.append(line)
    return markdown(["M", "method", "accuracy %", "seeds", "macro-F1 %", "validation %"], lines)


def _draw(found: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    counts = list(dict.fromkeys(group.labels["clients"] for group in found))
    empty = Group({}, ())
    lines = {
        str(method): [(find(own, clients=count) or empty).stat("test_accuracy") for count in counts]
        for method, own in by_label(found, "method").items()
    }
    points(axes, [float(count) for count in counts], lines)
    axes.set(xlabel="number of clients M", ylabel="test accuracy (%)", xticks=counts)
    axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    name="clients",
    title="Number of clients",
    question="DANCE stays stable and competitive as the number of clients grows (the paper's scaling figure).",
    cells=_cells,
    render=_render,
    methods=("fedavg-full", "dance"),
)
