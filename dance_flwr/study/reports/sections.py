"""A section of a report in which the data sets stand beside each other."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dance_flwr.study.engine.cells import Picture, Row, Section
from dance_flwr.study.reports.tables import NOTHING, Group, by_label, groups, markdown


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

    def table(self, by_dataset: Mapping[Any, Sequence[Group]]) -> str:
        """Return the Markdown table; a dash where a data set does not have a line."""
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
                [*keys, *(cell for dataset in by_dataset for cell in cells.get(dataset, nothing))]
                for keys, cells in lines.items()
            ],
        )


def dataset_section(
    rows: Sequence[Row],
    how: str,
    columns: Columns,
    picture: Callable[[str, Sequence[Group]], Picture] | None = None,
    stated: Collection[str] = (),
) -> Section:
    """Return `how`, a table of all data sets, and a picture of each.

    Parameters
    ----------
    picture : (data set, its groups) -> picture
    stated : as in `groups`
    """
    by_dataset = by_label(groups(rows, stated), "dataset")
    text = f"{how} {seeds_text([group for part in by_dataset.values() for group in part])}"
    pictures = [picture(str(name), part) for name, part in by_dataset.items()] if picture else []
    return Section((text, columns.table(by_dataset), *pictures))


def seeds_text(compared: Sequence[Group]) -> str:
    """Return how many seeds the groups have; lines of fewer finished seeds say so themselves."""
    return f"{max((len(group.rows) for group in compared), default=0)} seeds."
