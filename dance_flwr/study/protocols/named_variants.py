"""What the ablation and the refresh study share: DANCE under named settings, a table, and bars."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.study.engine.cells import Cell, Picture, Request, Row, Section
from dance_flwr.study.protocols.variants import point_cells, stat_at
from dance_flwr.study.reports.figures import bars, crop
from dance_flwr.study.reports.tables import Group, by_label, groups

Variants = Mapping[str, Mapping[str, Value]]


def variant_cells_of(variants: Variants, request: Request) -> list[Cell]:
    """Return the cells of DANCE under each named set of settings, labelled "variant"."""
    return point_cells(request, [({"variant": name}, keys) for name, keys in variants.items()])


def variant_section(
    rows: Sequence[Row],
    how: str,
    table: Callable[[str, Sequence[Group]], str],
    name: str,
    caption: str,
    shown: Collection[str] = (),
) -> Section:
    """Return `how`, a table per data set, and one picture with a group of bars per data set.

    Parameters
    ----------
    table : (data set, its groups) -> Markdown
    name, caption : of the picture
    shown : settings that the names of the variants tell
    """
    by_dataset = by_label(groups(rows, shown), "dataset")
    parts: list[str | Picture] = [how]
    for dataset, variants in by_dataset.items():
        ratio = variants[0].setting("condensation-ratio")
        parts += [f"**{dataset}**, r = {ratio}", table(str(dataset), variants)]
    return Section((*parts, Picture(name, caption, partial(_draw, by_dataset))))


def _draw(by_dataset: Mapping[Any, Sequence[Group]], figure: Any) -> None:
    """Draw a bar per variant, grouped by data set."""
    compared = by_dataset.values()
    names = dict.fromkeys(group.labels["variant"] for parts in compared for group in parts)
    series = {
        str(name): [stat_at(parts, "test_accuracy", variant=name) for parts in compared]
        for name in names
    }
    axes = figure.subplots()
    bars(axes, [str(name) for name in by_dataset], series)
    remark = crop(axes, [stat for stats in series.values() for stat in stats])
    axes.set(ylabel="test accuracy (%)" + remark, xlabel="data set")
    figure.legend(loc="outside upper center", ncols=min(4, len(series)), fontsize=8)
