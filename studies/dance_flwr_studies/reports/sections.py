"""A section of a report in which the data sets stand beside each other."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dance_flwr.errors import counted
from dance_flwr_studies.engine.cells import Picture, Row, Section
from dance_flwr_studies.reports.tables import NOTHING, Group, Metric, by_label, groups, markdown

# Heading -> cell of a line: of what names it, and of the values that each data set has in it, from
# a group and all groups of its data set.
Keys = Mapping[str, Callable[[Group], str]]
Values = Mapping[str, Callable[[Group, Sequence[Group]], str]]


def beside(
    by_dataset: Mapping[Any, Sequence[Group]],
    keys: Keys,
    values: Values,
    more: Sequence[Sequence[str]] = (),
) -> str:
    """Return the table of several data sets, and `more` lines; a dash where one has no line."""
    lines: dict[tuple[str, ...], dict[Any, list[str]]] = {}
    for dataset, compared in by_dataset.items():
        for group in compared:
            line = lines.setdefault(tuple(name(group) for name in keys.values()), {})
            line[dataset] = [cell(group, compared) for cell in values.values()]
    nothing = [NOTHING] * len(values)
    return markdown(
        [*keys, *(f"{dataset}: {value}" for dataset in by_dataset for value in values)],
        [
            *(
                [*names, *(cell for name in by_dataset for cell in cells.get(name, nothing))]
                for names, cells in lines.items()
            ),
            *more,
        ],
        len(keys),
    )


def named(label: str) -> Callable[[Group], str]:
    """Return the key that is a label with the group's note."""
    return lambda group: group.name(str(group.labels[label]))


def accuracy(group: Group, compared: Sequence[Group]) -> str:
    """Return the test accuracy in percent."""
    return group.stat("test_accuracy").percent


def mean_of(metric: Metric, digits: int) -> Callable[[Group, Sequence[Group]], str]:
    """Return the value that is the mean of a metric."""
    return lambda group, compared: group.mean_text(metric, digits)


def beyond(group: Group) -> str:
    """Return the means of `BEYOND` in %, in one cell."""
    means = [group.stat(metric).mean for metric in BEYOND.values()]
    return "/".join(NOTHING if mean is None else f"{100 * mean:.1f}" for mean in means)


BEYOND = {
    "macro-F1": "test_macro_f1",
    "balanced": "test_balanced_accuracy",
    "worst": "test_worst_client",
    "ECE": "test_calibration_error",
}
HIDDEN: Values = {"/".join(BEYOND): lambda group, _: beyond(group)}  # what accuracy hides
HOW_BEYOND = "Means in %: macro-F1, balanced accuracy, worst client, calibration error."


def side_by_side(
    how: str,
    keys: Keys,
    values: Values,
    picture: Callable[[str, Sequence[Group]], Picture] | None = None,
    stated: Collection[str] = (),
) -> Callable[[Sequence[Row]], Section]:
    """Return what renders rows as `how`, a table of all data sets, and a picture of each."""

    def render(rows: Sequence[Row]) -> Section:
        by_dataset = by_label(groups(rows, stated), "dataset")
        text = f"{how} {seeds_text([group for part in by_dataset.values() for group in part])}"
        pictures = [picture(str(name), g) for name, g in by_dataset.items()] if picture else []
        scored = HIDDEN if accuracy in values.values() else {}  # and not only seconds
        return Section((text, beside(by_dataset, keys, {**values, **scored}), *pictures))

    return render


def seeds_text(compared: Sequence[Group]) -> str:
    """Return how many seeds the groups have; lines with unfinished seeds say so themselves."""
    numbers = sorted({len(group.rows) for group in compared}) or [0]
    if len(numbers) > 1:
        return f"{numbers[0]} to {numbers[-1]} seeds."
    return f"{counted(numbers[0], 'seed')}."
