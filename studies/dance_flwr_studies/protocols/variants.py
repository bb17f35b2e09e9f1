"""What experiments on variants of a method share: cells, and differences over the same seeds."""

from collections.abc import Mapping, Sequence

from dance_flwr.config.options import Value
from dance_flwr.methods import get_spec
from dance_flwr_studies.engine.cells import Cell, Label, Request, dataset_name
from dance_flwr_studies.reports import paper_values as paper
from dance_flwr_studies.reports.tables import Group, stat_of

RATIO: Mapping[str, Value] = {"condensation-ratio": 0.08}  # of studies that do not vary it
# Data sets that are divided by their column `site`: the largest maintainer teams of at most 700
# packages. The other data sets' files say 60 rounds, too.
BY_SITE: Mapping[str, Mapping[str, Value]] = {
    "debian": {"partition": "by-column", "clients": 5, "max-client-nodes": 700, "rounds": 60},
}
SEED_TEXT = "Mean ± standard deviation over seeds, of differences too."
REFERENCE = "fedavg-full"  # the method that others are compared with


# What one point of a grid is called in tables, beside data set, method and seed; and its settings.
Point = tuple[Mapping[str, Label], Mapping[str, Value]]


def variant_cells(
    request: Request, dataset: str, method: str, point: Point, rules: str = ""
) -> list[Cell]:
    """Return one cell per seed at a point, at the data set's largest condensation ratio."""
    labels, settings = point
    values = dict(settings)
    # --set may ask for another ratio: no label names it, and tables print it.
    if get_spec(method).card.by_ratio and "condensation-ratio" not in request.overrides:
        largest = paper.main_ratios(dataset_name(dataset))[0]
        values = {"condensation-ratio": largest, **values}
    return request.cells(dataset, method, labels, values, rules)


def point_cells(
    request: Request, points: Sequence[Point], methods: Sequence[str] = ("dance",)
) -> list[Cell]:
    """Return the cells of each method at each point, data set by data set."""
    return [
        cell
        for dataset in request.datasets
        for point in points
        for method in methods
        for cell in variant_cells(request, dataset, method, point)
    ]


def gain_text(group: Group | None, reference: Group | None) -> str:
    """Return the gain in test accuracy over the seeds that both have, in points.

    Empty where there is nothing to compare.
    """
    if group is None or reference is None or group is reference:
        return ""
    mine, theirs = (side.by_seed("test_accuracy") for side in (group, reference))
    differences = [value - theirs[seed] for seed, value in mine.items() if seed in theirs]
    return stat_of(differences, len(group.rows)).points


def find(compared: Sequence[Group], **labels: Label) -> Group | None:
    """Return the first group with these labels, None if there is none."""
    return next(
        (group for group in compared if all(group.labels.get(k) == v for k, v in labels.items())),
        None,
    )
