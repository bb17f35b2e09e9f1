"""The harness's own settings: running average, smoothing and backbone, for both methods alike."""

from collections.abc import Sequence

from dance_flwr.dance.config import PAPER_DANCE, PAPER_READING, DanceConfig
from dance_flwr_studies.engine.cells import Cell, Experiment, Label, Request, Row, Section
from dance_flwr_studies.protocols.variants import (
    REFERENCE,
    SEED_TEXT,
    Point,
    find,
    gain_text,
    variant_cells,
)
from dance_flwr_studies.reports.sections import Columns, dataset_section
from dance_flwr_studies.reports.tables import Group

EMA, SMOOTH = 0.9, "correct-and-smooth"
KEYS = ("backbone", "ema-decay", "smoothing")
POINTS = (("gcn", EMA, "none"), ("sage", EMA, SMOOTH))  # of `KEYS`
HOW = (
    "These settings belong to the harness, not to a method. `paper` is the paper's method alone, "
    "without any extension of this project, once as published and once with the harness's running "
    f"average and learning-rate schedule; both with what a search of the first found. {SEED_TEXT}"
)


def _cells(request: Request) -> list[Cell]:
    return [
        cell
        for dataset in request.datasets
        for method in request.methods
        for point in _points(method)
        for cell in variant_cells(
            request, dataset, method, point, "" if point[0]["paper"] == "no" else "paper"
        )
    ]


def _points(method: str) -> list[Point]:
    points: list[Point] = [
        (
            {**dict(zip(KEYS, point, strict=True)), "paper": "no"},
            dict(zip(KEYS, point, strict=True)),
        )
        for point in POINTS
    ]
    if method == "dance":
        labels: dict[str, Label] = {"backbone": "gcn", "ema-decay": 0.0, "smoothing": "none"}
        points.append(({**labels, "paper": "yes"}, {"paper": True, "backbone": "gcn"}))
        rules = {
            **PAPER_DANCE,
            **PAPER_READING,
            # The paper preselects B_2 candidates.
            "dance.hop2-pool": DanceConfig.hop2_budget,
            "backbone": "gcn",
        }
        rules["ema-decay"] = EMA
        points.append(({**labels, "ema-decay": EMA, "paper": "its rules"}, rules))
    return points


def _render(rows: Sequence[Row]) -> Section:
    values = ("accuracy %", f"against {REFERENCE} alike, points")
    return dataset_section(rows, HOW, Columns(("method", *KEYS), values, _line))


def _line(group: Group, compared: Sequence[Group]) -> tuple[list[str], list[str]]:
    labels = {key: group.labels[key] for key in KEYS}
    reference = find(compared, **labels, method=REFERENCE)
    suffix = "" if group.labels["paper"] == "no" else ", paper"
    name = group.name(f"{group.labels['method']}{suffix}")
    values = [group.stat("test_accuracy").percent, gain_text(group, reference)]
    return [name, *map(str, labels.values())], values


EXPERIMENT = Experiment(
    name="settings",
    title="Settings of the harness",
    question="How much of an accuracy is the method's, and how much the harness's: not a claim of "
    "the paper.",
    cells=_cells,
    render=_render,
    methods=("fedavg-full", "dance"),
)
