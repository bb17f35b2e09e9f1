"""Backbones: the same methods over other graph networks."""

from collections.abc import Sequence

from dance_flwr.study.engine.cells import Cell, Experiment, Request, Row, Section
from dance_flwr.study.protocols.variants import SEED_TEXT, choices, point_cells, reference_section

BACKBONES = ("gcn", "gat", "sage", "gin", "appnp", "sgc")
HOW = f"Settings are those of the main table and were not tuned per backbone. {SEED_TEXT}"


def _cells(request: Request) -> list[Cell]:
    names = [name for name in BACKBONES if name in choices("backbone")]
    points = [({"backbone": name}, {"backbone": name}) for name in names]
    return point_cells(request, points, request.methods)


def _render(rows: Sequence[Row]) -> Section:
    return reference_section(rows, HOW, "backbone", "val_accuracy", "validation %")


EXPERIMENT = Experiment(
    name="backbone",
    title="Backbones",
    question="DANCE is robust to the graph backbone (an appendix of the paper, which prints no "
    "numbers).",
    cells=_cells,
    render=_render,
    methods=("fedavg-full", "dance"),
)
