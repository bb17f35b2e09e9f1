"""The refresh study: core and evidence chosen anew in every round, one of them only, or once."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.experiments import paper
from dance_flwr.experiments.ablation import draw_variants
from dance_flwr.experiments.cells import Experiment, Picture, Row, Section
from dance_flwr.experiments.tables import NOTHING, Group, by_label, groups, markdown
from dance_flwr.experiments.variants import SEED_TEXT, find, gain, named_variants, points_text

_CORE, _TEXT = "dance.core-refresh-every", "dance.text-refresh-every"
# The names are the paper's.
VARIANTS: dict[str, dict[str, Value]] = {
    "DANCE": {_CORE: 1, _TEXT: 1},
    "Refresh-Core-Only": {_CORE: 1, _TEXT: 0},
    "Refresh-Text-Only": {_CORE: 0, _TEXT: 1},
    "Static-DANCE": {_CORE: 0, _TEXT: 0},
}
HOW = (
    "What is not refreshed is chosen once, in round 1, by the first model. The paper gives gains in percent without "
    f"saying of what; they are read as percentage points of accuracy. {SEED_TEXT}"
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
        (*parts, Picture("refresh-study", "Refresh study: test accuracy.", partial(_draw, found)))
    )


def _table(dataset: str, variants: Sequence[Group]) -> str:
    full = find(variants, variant="DANCE")
    lines = []
    for group in variants:
        variant = str(group.labels["variant"])
        accuracy = group.stat("test_accuracy")
        line = [
            group.name(variant),
            accuracy.percent,
            accuracy.seeds,
            group.stat("val_accuracy").percent,
        ]
        line += [
            points_text(gain(full, group, "test_accuracy")) if full and group is not full else ""
        ]
        theirs = paper.refresh_gain(dataset) if variant == "Static-DANCE" else None
        lines.append([*line, NOTHING if theirs is None else f"{theirs:+.1f}"])
    headings = [
        "variant",
        "accuracy %",
        "seeds",
        "validation %",
        "DANCE is above it by, points",
        "paper, points",
    ]
    return markdown(headings, lines)


def _draw(found: dict[Any, list[Group]], figure: Any) -> None:
    draw_variants(figure, found, "variant", "test_accuracy", "test accuracy (%)")


EXPERIMENT = Experiment(
    name="refresh-study",
    title="Refresh study",
    question="Refreshing core and text in every round beats Static-DANCE by 6.1 on Cora and 4.4 on CiteSeer; "
    "refreshing one of them recovers a part (the paper's refresh study).",
    cells=partial(named_variants, VARIANTS),
    render=_render,
)
