"""Backbones: the same methods over other graph networks."""

from collections.abc import Sequence

from dance_flwr.experiments.cells import Cell, Experiment, Request, Row, Section
from dance_flwr.experiments.tables import by_label, groups, markdown
from dance_flwr.experiments.variants import (
    SEED_TEXT,
    choices,
    find,
    gain,
    points_text,
    variant_cells,
)

WANTED = ("gcn", "gat", "sage", "gin", "appnp", "sgc")


def _cells(request: Request) -> list[Cell]:
    return [
        cell
        for dataset in request.datasets
        for backbone in WANTED
        if backbone in choices("backbone")
        for method in request.methods
        for cell in variant_cells(
            request, dataset, method, {"backbone": backbone}, {"backbone": backbone}
        )
    ]


def _render(rows: Sequence[Row]) -> Section:
    parts = [f"Settings are those of the main table and were not tuned per backbone. {SEED_TEXT}"]
    for dataset, found in by_label(groups(rows), "dataset").items():
        lines = []
        for group in found:
            accuracy = group.stat("test_accuracy")
            reference = find(found, backbone=group.labels["backbone"], method="fedavg-full")
            against = (
                points_text(gain(group, reference, "test_accuracy"))
                if reference not in (None, group)
                else ""
            )
            line = [
                group.name(str(group.labels["backbone"])),
                str(group.labels["method"]),
                accuracy.percent,
            ]
            lines.append([*line, accuracy.seeds, against, group.stat("val_accuracy").percent])
        headings = [
            "backbone",
            "method",
            "accuracy %",
            "seeds",
            "against fedavg-full, points",
            "validation %",
        ]
        parts += [f"**{dataset}**", markdown(headings, lines)]
    return Section(tuple(parts))


EXPERIMENT = Experiment(
    name="backbone",
    title="Backbones",
    question="DANCE is robust to the graph backbone (an appendix of the paper, which prints no numbers).",
    cells=_cells,
    render=_render,
    methods=("fedavg-full", "dance"),
)
