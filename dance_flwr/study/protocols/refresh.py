"""The refresh study: core and evidence selected again in every round, only one of them, or once."""

from collections.abc import Sequence
from functools import partial

from dance_flwr.config.options import Value
from dance_flwr.study.engine.cells import Experiment, Row, Section
from dance_flwr.study.protocols.named_variants import variant_cells_of, variant_section
from dance_flwr.study.protocols.variants import SEED_TEXT, find, gain_text
from dance_flwr.study.reports import paper_values as paper
from dance_flwr.study.reports.tables import NOTHING, Group, markdown

_CORE, _TEXT = "dance.core-refresh-every", "dance.text-refresh-every"
# The names are the paper's.
VARIANTS: dict[str, dict[str, Value]] = {
    "DANCE": {_CORE: 1, _TEXT: 1},
    "Refresh-Core-Only": {_CORE: 1, _TEXT: 0},
    "Refresh-Text-Only": {_CORE: 0, _TEXT: 1},
    "Static-DANCE": {_CORE: 0, _TEXT: 0},
}
HOW = (
    "What is not refreshed is chosen once, in round 1, by the first model. The paper gives gains "
    "in percent without saying of what; they are read as percentage points of accuracy. "
    f"{SEED_TEXT}"
)


def _render(rows: Sequence[Row]) -> Section:
    return variant_section(rows, HOW, _table, "refresh-study", "Refresh study: test accuracy.")


def _table(dataset: str, variants: Sequence[Group]) -> str:
    full = find(variants, variant="DANCE")
    lines = []
    for group in variants:
        variant = str(group.labels["variant"])
        accuracy = group.stat("test_accuracy")
        line = [group.name(variant), accuracy.percent, accuracy.seeds]
        line += [group.stat("val_accuracy").percent, gain_text(full, group)]
        theirs = paper.refresh_gain(dataset) if variant == "Static-DANCE" else None
        lines.append([*line, NOTHING if theirs is None else f"{theirs:+.1f}"])
    headings = ["variant", "accuracy %", "seeds", "validation %"]
    headings += ["DANCE is above it by, points", "paper, points"]
    return markdown(headings, lines)


EXPERIMENT = Experiment(
    name="refresh-study",
    title="Refresh study",
    question="Refreshing core and text in every round beats Static-DANCE by 6.1 on Cora and 4.4 on "
    "CiteSeer; refreshing one of them recovers a part (the paper's refresh study).",
    cells=partial(variant_cells_of, VARIANTS),
    render=_render,
)
