"""DANCE beside fedavg-full over numbers of clients, backbones, and ways to divide the graph."""

from collections.abc import Iterator, Sequence
from functools import partial

from dance_flwr.config.options import Value
from dance_flwr_studies.engine.cells import Experiment
from dance_flwr_studies.protocols.variants import (
    REFERENCE,
    SEED_TEXT,
    Point,
    find,
    gain_text,
    point_cells,
)
from dance_flwr_studies.reports.sections import accuracy, named, side_by_side
from dance_flwr_studies.reports.significance import MARGIN
from dance_flwr_studies.reports.tables import Group, by_label
from dance_flwr_studies.reports.verdicts import Expected, expect, of_datasets

COUNTS: list[Point] = [({"clients": count}, {"clients": count}) for count in (3, 5, 10, 20)]
BACKBONES: list[Point] = [
    ({"backbone": name}, {"backbone": name})
    for name in ("gcn", "gat", "sage", "gin", "appnp", "sgc")
]
_DIVISIONS: dict[str, dict[str, Value]] = {
    "louvain": {"partition": "louvain"},
    "metis": {"partition": "metis"},
    "label-dirichlet 1.0": {"partition": "label-dirichlet", "dirichlet-alpha": 1.0},
    "label-dirichlet 0.1": {"partition": "label-dirichlet", "dirichlet-alpha": 0.1},
    "random": {"partition": "random"},
}
# A setting that is a label needs no note in the names of groups.
DIVISIONS: list[Point] = [
    ({"division": name, "dirichlet-alpha": 0.0, **settings}, settings)
    for name, settings in _DIVISIONS.items()
]


def _beside(label: str, dataset: str, compared: Sequence[Group]) -> Iterator[Expected]:
    """Compare DANCE with fedavg-full at each value of a label: no point behind it."""
    for value, members in by_label(compared, label).items():
        what = f"DANCE minus {REFERENCE} on {dataset}, {label} {value}"
        dance, reference = (find(members, method=name) for name in ("dance", REFERENCE))
        yield from expect(what, dance, reference, -MARGIN)


def _experiment(
    title: str, question: str, how: str, label: str, points: Sequence[Point]
) -> Experiment:
    def gain(group: Group, compared: Sequence[Group]) -> str:
        reference = find(compared, **{label: group.labels[label]}, method=REFERENCE)
        return gain_text(group, reference)

    return Experiment(
        title=title,
        question=question,
        cells=lambda request: point_cells(request, points, request.methods),
        render=side_by_side(
            f"{how} {SEED_TEXT}",
            {label: named(label), "method": lambda group: str(group.labels["method"])},
            {"accuracy %": accuracy, f"against {REFERENCE}, points": gain},
        ),
        verdict=of_datasets(partial(_beside, label)),
        methods=(REFERENCE, "dance"),
    )


CLIENTS = _experiment(
    "Number of clients",
    "DANCE stays stable and competitive as the number of clients grows (the paper's scaling "
    "figure).",
    "Clients are Louvain communities of one graph.",
    "clients",
    COUNTS,
)
BACKBONE = _experiment(
    "Backbones",
    "DANCE is robust to the graph backbone (an appendix of the paper, which prints no numbers).",
    "Settings are those of the main table and were not tuned per backbone.",
    "backbone",
    BACKBONES,
)
NON_IID = _experiment(
    "Non-IID data",
    "DANCE is robust to Non-IID clients (question 3 of the paper, which prints no numbers).",
    "Communities (louvain, metis) keep edges and skew labels a little; label-dirichlet skews "
    "labels by its concentration, the lower the more; random does neither and cuts most edges.",
    "division",
    DIVISIONS,
)
