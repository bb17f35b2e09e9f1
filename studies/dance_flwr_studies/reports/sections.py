"""A section of a report in which the data sets stand beside each other."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dance_flwr.errors import counted
from dance_flwr_studies.engine.cells import Picture, Row, Section
from dance_flwr_studies.reports.tables import NOTHING, Group, by_label, groups, markdown


@dataclass(frozen=True)
class Columns:
    """A table of several data sets, whose values stand beside each other.

    Attributes
    ----------
    keys : headings of what names a line; values : headings of what each data set has in it
    line : (group, all groups of its data set) -> the cells under `keys`, and those under `values`
    """

    keys: Sequence[str]
    values: Sequence[str]
    line: Callable[[Group, Sequence[Group]], tuple[Sequence[str], Sequence[str]]]

    def table(
        self, by_dataset: Mapping[Any, Sequence[Group]], more: Sequence[Sequence[str]] = ()
    ) -> str:
        """Return the Markdown table, and `more` lines; a dash where a data set has no line."""
        lines: dict[tuple[str, ...], dict[Any, Sequence[str]]] = {}
        for dataset, compared in by_dataset.items():
            for group in compared:
                keys, values = self.line(group, compared)
                lines.setdefault(tuple(keys), {})[dataset] = values
        nothing = [NOTHING] * len(self.values)
        return markdown(
            [
                *self.keys,
                *(f"{dataset}: {value}" for dataset in by_dataset for value in self.values),
            ],
            [
                *(
                    [*keys, *(cell for name in by_dataset for cell in cells.get(name, nothing))]
                    for keys, cells in lines.items()
                ),
                *more,
            ],
            len(self.keys),
        )


def beyond_accuracy(columns: Columns, by_dataset: Mapping[Any, Sequence[Group]]) -> str:
    """Return the table of `columns`, with what accuracy hides at its end."""

    def line(group: Group, compared: Sequence[Group]) -> tuple[Sequence[str], Sequence[str]]:
        keys, values = columns.line(group, compared)
        return keys, [*values, beyond_cell(group)]

    values = (*columns.values, "/".join(BEYOND))
    return Columns(columns.keys, values, line).table(by_dataset)


def beyond_cell(group: Group) -> str:
    """Return the means of `BEYOND` in %, in one cell."""
    means = [group.stat(metric).mean for metric in BEYOND.values()]
    return "/".join(NOTHING if mean is None else f"{100 * mean:.1f}" for mean in means)


BEYOND = {
    "macro-F1": "test_macro_f1",
    "balanced": "test_balanced_accuracy",
    "worst": "test_worst_client",
    "ECE": "test_calibration_error",
}
HOW_BEYOND = "Means in %: macro-F1, balanced accuracy, worst client, calibration error."


def dataset_section(
    rows: Sequence[Row],
    how: str,
    columns: Columns,
    picture: Callable[[str, Sequence[Group]], Picture] | None = None,
    stated: Collection[str] = (),
) -> Section:
    """Return `how`, tables of all data sets, and a picture of each."""
    by_dataset = by_label(groups(rows, stated), "dataset")
    text = f"{how} {seeds_text([group for part in by_dataset.values() for group in part])}"
    pictures = [picture(str(name), part) for name, part in by_dataset.items()] if picture else []
    scored = any("accuracy" in heading for heading in columns.values)  # and not only seconds
    table = beyond_accuracy(columns, by_dataset) if scored else columns.table(by_dataset)
    return Section((text, table, *pictures))


def seeds_text(compared: Sequence[Group]) -> str:
    """Return how many seeds the groups have; lines with unfinished seeds say so themselves."""
    numbers = sorted({len(group.rows) for group in compared}) or [0]
    if len(numbers) > 1:
        return f"{numbers[0]} to {numbers[-1]} seeds."
    return f"{counted(numbers[0], 'seed')}."
