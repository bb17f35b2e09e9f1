"""Convergence: validation accuracy by round, from the runs of the main table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from dance_flwr_studies.engine.cells import Cell, Experiment, Picture, Request, Row, dataset_name
from dance_flwr_studies.engine.compact_rows import CURVE
from dance_flwr_studies.protocols.main_table import RIVALS, method_cells
from dance_flwr_studies.protocols.variants import find
from dance_flwr_studies.reports import paper_values as paper
from dance_flwr_studies.reports.figures import validation_curves
from dance_flwr_studies.reports.sections import mean_of, named, side_by_side
from dance_flwr_studies.reports.tables import Group
from dance_flwr_studies.reports.verdicts import Expected, expect, of_datasets

_SHARES = (0.95, 0.99)
HOW = (
    "Curves are of validation nodes (the paper shows test accuracy). Line: mean over seeds; band: "
    "one sample standard deviation. The table counts rounds until a run first reaches a share of "
    "its own best validation accuracy."
)


def _cells(request: Request) -> list[Cell]:
    return [
        # The runs are those of the main table; only these rows keep their curves.
        replace(cell, curve=True)
        for dataset in request.datasets
        for method in request.methods
        for cell in method_cells(
            request, dataset, method, paper.main_ratios(dataset_name(dataset))[:1]
        )
    ]


def _picture(dataset: str, compared: Sequence[Group]) -> Picture:
    by_name = {named("method")(group): group for group in compared}
    caption = f"Validation accuracy by round on {dataset}."
    return Picture(f"convergence-{dataset}", caption, partial(validation_curves, by_name))


def _rounds_to(share: float) -> Callable[[Row], float | None]:
    """Return a metric: the first round at `share` of the run's best validation accuracy."""

    def first(row: Row) -> float | None:
        # A round without validation reaches no share.
        curve = [-1.0 if value is None else value for value in row.result.get(CURVE, [])]
        reached = [i for i, value in enumerate(curve, 1) if value >= share * max(curve)]
        return float(reached[0]) if reached else None

    return first


def _later(dataset: str, compared: Sequence[Group]) -> Iterator[Expected]:
    """Compare the rounds that others and DANCE take to the first of `_SHARES`."""
    dance, metric = find(compared, method="dance"), _rounds_to(_SHARES[0])
    for group in compared:
        name = named("method")(group)
        what = f"rounds to {100 * _SHARES[0]:g} % of {name} minus those of DANCE on {dataset}"
        yield from expect(what, group, dance, metric=metric, unit=("rounds", 1.0))


EXPERIMENT = Experiment(
    title="Convergence",
    question="DANCE reaches competitive accuracy in earlier rounds than the others (the paper's "
    "convergence figure).",
    cells=_cells,
    render=side_by_side(
        HOW,
        {"method": named("method")},
        {f"to {100 * share:g} %": mean_of(_rounds_to(share), 1) for share in _SHARES},
        _picture,
    ),
    verdict=of_datasets(_later),
    # Those that the main table compares: more curves than these cannot be told apart.
    methods=("dance", *RIVALS),
)
