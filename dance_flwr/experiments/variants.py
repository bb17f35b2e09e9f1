"""What experiments on variants of a method share: their cells, and differences over the same seeds."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from dance_flwr.config.options import Value, choices_of
from dance_flwr.config.tree import flat_fields
from dance_flwr.experiments import paper
from dance_flwr.experiments.cells import Cell, Label, Request, dataset_name
from dance_flwr.experiments.tables import Group, Stat, stat_of
from dance_flwr.methods import get_spec

SEED_TEXT = "Mean ± sample standard deviation over seeds; differences are taken seed by seed, then averaged."


def variant_cells(
    request: Request,
    dataset: str,
    method: str,
    settings: Mapping[str, Value],
    labels: Mapping[str, Label],
) -> list[Cell]:
    """Return one cell per seed at the data set's largest condensation ratio, with these settings
    and labels.
    """
    named: dict[str, Label] = {"dataset": dataset_name(dataset), "method": method}
    # Another ratio may be asked for: no label names it, and tables print it.
    ratio = {} if "condensation-ratio" in request.overrides else ratio_setting(dataset, method)
    own = ratio | dict(settings)
    return [
        Cell({**named, **labels, "seed": seed}, request.config(dataset, method, seed, own))
        for seed in request.seeds
    ]


def point_cells(
    request: Request, points: Sequence[tuple[Mapping[str, Label], Mapping[str, Value]]]
) -> list[Cell]:
    """Return the cells of DANCE at each point (labels, settings) of a sweep, data set by data set."""
    return [
        cell
        for dataset in request.datasets
        for labels, settings in points
        for cell in variant_cells(request, dataset, "dance", settings, labels)
    ]


def named_variants(variants: Mapping[str, Mapping[str, Value]], request: Request) -> list[Cell]:
    """Return the cells of DANCE under each named set of settings, labelled "variant"."""
    return [
        cell
        for dataset in request.datasets
        for name, settings in variants.items()
        for cell in variant_cells(request, dataset, "dance", settings, {"variant": name})
    ]


def ratio_setting(dataset: str, method: str) -> dict[str, Value]:
    """Return the largest ratio of the main table as a setting; nothing for a method that does not
    condense.
    """
    if not get_spec(method).card.condenses:
        return {}
    return {"condensation-ratio": paper.main_ratios(dataset_name(dataset))[0]}


def choices(key: str) -> tuple[str, ...]:
    """Return what a configuration key accepts."""
    return choices_of(flat_fields()[key][0])


def gain(group: Group, reference: Group, metric: str) -> Stat:
    """Return mean and deviation of metric(group) - metric(reference) over the seeds that both have."""
    theirs = by_seed(reference, metric)
    pairs = [
        value - theirs[seed] for seed, value in by_seed(group, metric).items() if seed in theirs
    ]
    return stat_of(pairs, len(group.rows))


def by_seed(group: Group, metric: str) -> dict[Label, float]:
    """Return seed -> value of the rows with a result."""
    return {row.labels["seed"]: float(row.result[metric]) for row in group.rows if row.result}


def find(parts: Sequence[Group], **labels: Label) -> Group | None:
    """Return the first group with these labels, None if there is none."""
    return next((g for g in parts if all(g.labels.get(k) == v for k, v in labels.items())), None)


def points_text(stat: Stat) -> str:
    """Return a difference of shares in points, with a sign."""
    text = stat.text(2, 100)
    return f"+{text}" if stat.mean is not None and stat.mean >= 0 else text


def mean_of(values: Sequence[float]) -> float | None:
    """Return the mean, None of nothing."""
    return fmean(values) if values else None
