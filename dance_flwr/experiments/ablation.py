"""The ablation: DANCE without one of its three parts."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.experiments import paper
from dance_flwr.experiments.cells import Experiment, Picture, Row, Section
from dance_flwr.experiments.figures import bars, crop
from dance_flwr.experiments.tables import Group, by_label, difference, groups, markdown, printed
from dance_flwr.experiments.variants import SEED_TEXT, find, gain, named_variants, points_text

# The names are the paper's.
VARIANTS: dict[str, dict[str, Value]] = {
    "full": {},
    "w/o TGR": {"dance.topology-rule": "induced"},
    "w/o TC": {"dance.text-rule": "own"},
    "w/o NC": {"dance.core-rule": "random"},
}
HOW = (
    "w/o TGR: the core keeps the edges of the local graph that lie inside it. w/o TC: a condensed node's text is all "
    "chunks of the node itself. w/o NC: the core is drawn at random, labelled or not. The paper does not say what "
    f"takes the place of a part. {SEED_TEXT}"
)


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str | Picture] = [HOW]
    found = by_label(groups(rows), "dataset")
    for dataset, variants in found.items():
        parts += [
            f"**{dataset}**, r = {variants[0].setting('condensation-ratio')}",
            _table(str(dataset), variants),
        ]
    return Section(
        (*parts, Picture("ablation", "Ablation: test accuracy by variant.", partial(_draw, found)))
    )


def _table(dataset: str, variants: Sequence[Group]) -> str:
    headings = ["variant", "accuracy %", "seeds", "paper %", "difference", "against full, points"]
    headings += ["macro-F1 %", "paper F1 %", "difference"]
    full = find(variants, variant="full")
    lines = []
    for group in variants:
        variant = str(group.labels["variant"])
        line = [group.name(variant)]
        ours, theirs = (
            group.stat("test_accuracy"),
            paper.ablation_number(dataset, variant, "accuracy"),
        )
        line += [ours.percent, ours.seeds, printed(theirs), difference(ours, theirs)]
        line += [
            points_text(gain(group, full, "test_accuracy")) if full and group is not full else ""
        ]
        ours, theirs = (
            group.stat("test_macro_f1"),
            paper.ablation_number(dataset, variant, "macro_f1"),
        )
        lines.append([*line, ours.percent, printed(theirs), difference(ours, theirs)])
    return markdown(headings, lines)


def _draw(found: dict[Any, list[Group]], figure: Any) -> None:
    draw_variants(figure, found, "variant", "test_accuracy", "test accuracy (%)")


def draw_variants(
    figure: Any, found: dict[Any, list[Group]], label: str, metric: str, axis: str
) -> None:
    """Draw a group of bars per data set and a bar per value of a label, of the first group that has
    the value.
    """
    names = dict.fromkeys(group.labels[label] for parts in found.values() for group in parts)
    empty = Group({}, ())
    series = {
        str(name): [
            (find(parts, **{label: name}) or empty).stat(metric) for parts in found.values()
        ]
        for name in names
    }
    axes = figure.subplots()
    bars(axes, [str(name) for name in found], series)
    remark = crop(axes, [stat for stats in series.values() for stat in stats])
    axes.set(ylabel=axis + remark, xlabel="data set")
    figure.legend(loc="outside upper center", ncols=min(4, len(series)), fontsize=8)


EXPERIMENT = Experiment(
    name="ablation",
    title="Ablation",
    question="Removing node condensation (NC), text condensation (TC) or topology reconstruction (TGR) lowers the "
    "accuracy on every data set, node condensation most (the paper's ablation table).",
    cells=partial(named_variants, VARIANTS),
    render=_render,
)
