"""DANCE beside fedavg-full over numbers of clients, backbones, and ways to divide the graph."""

from collections.abc import Sequence
from functools import partial

from dance_flwr.config.options import Value
from dance_flwr_studies.engine.cells import Cell, Experiment, Label, Request, Row, Section
from dance_flwr_studies.protocols.variants import (
    REFERENCE,
    SEED_TEXT,
    Point,
    choices,
    find,
    gain_text,
    point_cells,
)
from dance_flwr_studies.reports.sections import Columns, dataset_section
from dance_flwr_studies.reports.significance import MARGIN
from dance_flwr_studies.reports.tables import Group, by_label, groups
from dance_flwr_studies.reports.verdicts import Expected, expect, verdict

COUNTS = (3, 5, 10, 20)
BACKBONES = ("gcn", "gat", "sage", "gin", "appnp", "sgc")
DIVISIONS: dict[str, dict[str, Value]] = {
    "louvain": {"partition": "louvain"},
    "metis": {"partition": "metis"},
    "label-dirichlet 1.0": {"partition": "label-dirichlet", "dirichlet-alpha": 1.0},
    "label-dirichlet 0.1": {"partition": "label-dirichlet", "dirichlet-alpha": 0.1},
    "random": {"partition": "random"},
}
_METHODS = (REFERENCE, "dance")


def _count_cells(request: Request) -> list[Cell]:
    points = [({"clients": count}, {"clients": count}) for count in COUNTS]
    return point_cells(request, points, request.methods)


def _backbone_cells(request: Request) -> list[Cell]:
    names = [name for name in BACKBONES if name in choices("backbone")]
    points = [({"backbone": name}, {"backbone": name}) for name in names]
    return point_cells(request, points, request.methods)


def _division_cells(request: Request) -> list[Cell]:
    points: list[Point] = []
    for division, settings in DIVISIONS.items():
        labels: dict[str, Label] = {"division": division, "partition": str(settings["partition"])}
        # A setting that is a label needs no note in the names of groups.
        labels["dirichlet-alpha"] = float(settings.get("dirichlet-alpha", 0.0))
        points.append((labels, settings))
    return point_cells(request, points, request.methods)


def _render(how: str, label: str, rows: Sequence[Row]) -> Section:
    """Return each method's accuracy at each value of a label, and its gain over fedavg-full."""

    def line(group: Group, compared: Sequence[Group]) -> tuple[list[str], list[str]]:
        value = group.labels[label]
        reference = find(compared, **{label: value}, method=REFERENCE)
        values = [group.stat("test_accuracy").percent, gain_text(group, reference)]
        return [group.name(str(value)), str(group.labels["method"])], values

    values = ("accuracy %", f"against {REFERENCE}, points")
    return dataset_section(rows, how, Columns((label, "method"), values, line))


def _verdict(label: str, rows: Sequence[Row]) -> str:
    """Compare DANCE with fedavg-full at each value of a label: no point behind it."""
    expected: list[Expected] = []
    for dataset, compared in by_label(groups(rows), "dataset").items():
        for value, members in by_label(compared, label).items():
            what = f"DANCE minus {REFERENCE} on {dataset}, {label} {value}"
            dance, reference = (find(members, method=name) for name in ("dance", REFERENCE))
            expected += expect(what, dance, reference, -MARGIN)
    return verdict(expected)


CLIENTS = Experiment(
    name="clients",
    title="Number of clients",
    question="DANCE stays stable and competitive as the number of clients grows (the paper's "
    "scaling figure).",
    cells=_count_cells,
    verdict=partial(_verdict, "clients"),
    render=partial(
        _render, f"Clients are Louvain communities of one graph. {SEED_TEXT}", "clients"
    ),
    methods=_METHODS,
)
BACKBONE = Experiment(
    name="backbone",
    title="Backbones",
    question="DANCE is robust to the graph backbone (an appendix of the paper, which prints no "
    "numbers).",
    cells=_backbone_cells,
    verdict=partial(_verdict, "backbone"),
    render=partial(
        _render,
        f"Settings are those of the main table and were not tuned per backbone. {SEED_TEXT}",
        "backbone",
    ),
    methods=_METHODS,
)
NON_IID = Experiment(
    name="non-iid",
    title="Non-IID data",
    question="DANCE is robust to Non-IID clients (question 3 of the paper, which prints no "
    "numbers).",
    cells=_division_cells,
    verdict=partial(_verdict, "division"),
    render=partial(
        _render,
        "Communities (louvain, metis) keep edges and skew labels a little; label-dirichlet skews "
        "labels by its concentration, the lower the more; random does neither and cuts most edges. "
        f"{SEED_TEXT}",
        "division",
    ),
    methods=_METHODS,
)
