"""Non-IID data: ways to divide the graph among clients, from communities to chance."""

from collections.abc import Sequence

from dance_flwr.config.options import Value
from dance_flwr.study.engine.cells import Cell, Experiment, Label, Request, Row, Section
from dance_flwr.study.protocols.variants import SEED_TEXT, point_cells, reference_section

DIVISIONS: dict[str, dict[str, Value]] = {
    "louvain": {"partition": "louvain"},
    "metis": {"partition": "metis"},
    "label-dirichlet 1.0": {"partition": "label-dirichlet", "dirichlet-alpha": 1.0},
    "label-dirichlet 0.1": {"partition": "label-dirichlet", "dirichlet-alpha": 0.1},
    "random": {"partition": "random"},
}
HOW = (
    "Communities (louvain, metis) keep edges and skew labels a little; label-dirichlet skews "
    "labels by its concentration, the lower the more; random does neither and cuts most edges. "
    f"`dance-flwr partition show` prints the skew of each. {SEED_TEXT}"
)


def _cells(request: Request) -> list[Cell]:
    points: list[tuple[dict[str, Label], dict[str, Value]]] = []
    for division, settings in DIVISIONS.items():
        labels: dict[str, Label] = {"division": division, "partition": str(settings["partition"])}
        labels["dirichlet-alpha"] = float(settings.get("dirichlet-alpha", 0.0))
        points.append((labels, settings))
    return point_cells(request, points, request.methods)


def _render(rows: Sequence[Row]) -> Section:
    return reference_section(rows, HOW, "division", "test_macro_f1", "macro-F1 %")


EXPERIMENT = Experiment(
    name="non-iid",
    title="Non-IID data",
    question="DANCE is robust to Non-IID clients (question 3 of the paper, which prints no "
    "numbers).",
    cells=_cells,
    render=_render,
    methods=("fedavg-full", "dance"),
)
