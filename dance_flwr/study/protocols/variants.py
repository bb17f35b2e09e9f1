"""What experiments on variants of a method share: cells, and differences over the same seeds."""

from collections.abc import Mapping, Sequence

from dance_flwr.config.options import Value, choices_of
from dance_flwr.config.tree import flat_fields
from dance_flwr.methods import get_spec
from dance_flwr.study.engine.cells import Cell, Label, Request, Row, Section, dataset_name
from dance_flwr.study.reports import paper_values as paper
from dance_flwr.study.reports.tables import Group, Stat, dataset_section, markdown, stat_of

SEED_TEXT = (
    "Mean ± sample standard deviation over seeds; differences are taken seed by seed, then "
    "averaged."
)
REFERENCE = "fedavg-full"  # the method that others are compared with


def variant_cells(
    request: Request,
    dataset: str,
    method: str,
    settings: Mapping[str, Value],
    labels: Mapping[str, Label],
    rules: str = "",
) -> list[Cell]:
    """Return one cell per seed with these settings, at the data set's largest condensation ratio.

    Parameters
    ----------
    labels : of each cell, beside data set, method and seed
    rules : as in `cells.tuned_file`
    """
    shared: dict[str, Label] = {"dataset": dataset_name(dataset), "method": method, **labels}
    # --set may ask for another ratio: no label names it, and tables print it.
    ratio = {} if "condensation-ratio" in request.overrides else ratio_setting(dataset, method)
    values = ratio | dict(settings)
    return [
        Cell({**shared, "seed": seed}, request.config(dataset, method, seed, values, rules))
        for seed in request.seeds
    ]


def point_cells(
    request: Request,
    points: Sequence[tuple[Mapping[str, Label], Mapping[str, Value]]],
    methods: Sequence[str] = ("dance",),
) -> list[Cell]:
    """Return the cells of each method at each point (labels, settings), data set by data set."""
    return [
        cell
        for dataset in request.datasets
        for labels, settings in points
        for method in methods
        for cell in variant_cells(request, dataset, method, settings, labels)
    ]


def ratio_setting(dataset: str, method: str) -> dict[str, Value]:
    """Return the main table's largest ratio as a setting; empty if the method has none."""
    if not get_spec(method).card.by_ratio:
        return {}
    return {"condensation-ratio": paper.main_ratios(dataset_name(dataset))[0]}


def choices(key: str) -> tuple[str, ...]:
    """Return what a configuration key accepts."""
    return choices_of(flat_fields()[key][0])


def gain(group: Group, reference: Group, metric: str) -> Stat:
    """Return metric(group) - metric(reference) over the seeds that both have."""
    theirs = by_seed(reference, metric)
    differences = [
        value - theirs[seed] for seed, value in by_seed(group, metric).items() if seed in theirs
    ]
    return stat_of(differences, len(group.rows))


def gain_text(group: Group | None, reference: Group | None) -> str:
    """Return the gain in test accuracy in points; empty where there is nothing to compare."""
    if group is None or reference is None or group is reference:
        return ""
    return points_text(gain(group, reference, "test_accuracy"))


def by_seed(group: Group, metric: str) -> dict[Label, float]:
    """Return seed -> value of the rows with a result."""
    return {row.labels["seed"]: float(row.result[metric]) for row in group.rows if row.result}


def find(compared: Sequence[Group], **labels: Label) -> Group | None:
    """Return the first group with these labels, None if there is none."""
    return next(
        (group for group in compared if all(group.labels.get(k) == v for k, v in labels.items())),
        None,
    )


def stat_at(compared: Sequence[Group], metric: str, **labels: Label) -> Stat:
    """Return the statistics of the first group with these labels, empty ones if there is none."""
    group = find(compared, **labels)
    return group.stat(metric) if group else stat_of((), 0)


def points_text(stat: Stat) -> str:
    """Return a difference of shares in points, with a sign."""
    text = stat.text(2, 100)
    return f"+{text}" if stat.mean is not None and stat.mean >= 0 else text


def reference_section(
    rows: Sequence[Row], how: str, label: str, metric: str, heading: str
) -> Section:
    """Return the accuracy of each method at each value of a label, and its gain over fedavg-full.

    Parameters
    ----------
    metric, heading : of the last column, a share in percent
    """
    return dataset_section(
        rows, how, lambda dataset, compared: [_reference_table(compared, label, metric, heading)]
    )


def _reference_table(compared: Sequence[Group], label: str, metric: str, heading: str) -> str:
    lines = []
    for group in compared:
        value, accuracy = group.labels[label], group.stat("test_accuracy")
        reference = find(compared, **{label: value}, method=REFERENCE)
        line = [group.name(str(value)), str(group.labels["method"]), accuracy.percent]
        line += [accuracy.seeds, gain_text(group, reference), group.stat(metric).percent]
        lines.append(line)
    headings = [label, "method", "accuracy %", "seeds", f"against {REFERENCE}, points", heading]
    return markdown(headings, lines)
