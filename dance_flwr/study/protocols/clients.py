"""Number of clients: the same graph divided among more and more of them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dance_flwr.study.engine.cells import Cell, Experiment, Picture, Request, Row, Section
from dance_flwr.study.protocols.variants import SEED_TEXT, point_cells, stat_at
from dance_flwr.study.reports.figures import points
from dance_flwr.study.reports.tables import Group, by_label, dataset_section, markdown

COUNTS = (3, 5, 10, 20)
HOW = f"M clients from Louvain communities of the same graph. {SEED_TEXT}"


def _cells(request: Request) -> list[Cell]:
    sizes = [({"clients": count}, {"clients": count}) for count in COUNTS]
    return point_cells(request, sizes, request.methods)


def _render(rows: Sequence[Row]) -> Section:
    return dataset_section(rows, HOW, _parts)


def _parts(dataset: str, compared: Sequence[Group]) -> list[str | Picture]:
    caption = f"Test accuracy over the number of clients on {dataset}."
    picture = Picture(f"clients-{dataset}", caption, partial(_draw, compared), (4.8, 3.4))
    return [_table(compared), picture]


def _table(compared: Sequence[Group]) -> str:
    lines = []
    for group in compared:
        accuracy = group.stat("test_accuracy")
        line = [group.name(f"{group.labels['clients']}"), str(group.labels["method"])]
        line += [accuracy.percent, accuracy.seeds]
        line += [group.stat("test_macro_f1").percent, group.stat("val_accuracy").percent]
        lines.append(line)
    return markdown(["M", "method", "accuracy %", "seeds", "macro-F1 %", "validation %"], lines)


def _draw(compared: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    counts = list(dict.fromkeys(group.labels["clients"] for group in compared))
    lines = {
        str(method): [stat_at(members, "test_accuracy", clients=count) for count in counts]
        for method, members in by_label(compared, "method").items()
    }
    points(axes, [float(count) for count in counts], lines)
    axes.set(xlabel="number of clients M", ylabel="test accuracy (%)", xticks=counts)
    axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    name="clients",
    title="Number of clients",
    question="DANCE stays stable and competitive as the number of clients grows (the paper's "
    "scaling figure).",
    cells=_cells,
    render=_render,
    methods=("fedavg-full", "dance"),
)
