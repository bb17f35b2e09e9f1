"""Privacy and utility: accuracy over noise on condensed features, and over epsilon of updates."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.study.engine.cells import Cell, Experiment, Label, Picture, Request, Row, Section
from dance_flwr.study.protocols.variants import SEED_TEXT, point_cells, stat_at
from dance_flwr.study.reports.figures import points
from dance_flwr.study.reports.tables import Group, by_label, dataset_section, markdown

SCALES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
EPSILONS = (8.0, 64.0, 512.0, 4096.0, 32768.0, 262144.0)
DELTA, NORM = 1e-3, 1.0
_PARTS = {"features": "Laplace scale b", "updates": "epsilon"}
HOW = (
    "Features: Laplace noise of scale b on the condensed features, then l2 normalisation, as in "
    "the paper. It bounds nothing that leaves a client and has no epsilon. Updates: client-level "
    f"(epsilon, delta) of the whole run, delta = {DELTA:g}, each update clipped to norm {NORM:g}, "
    "Gaussian noise on the sum, as under privacy.dp = central, or distributed where no client "
    "drops out. The noise of one client's protection is shared by all: with 5 clients there are "
    f"few to share it. Noise comes from the run's seed here, as in no deployment. {SEED_TEXT}"
)


def _cells(request: Request) -> list[Cell]:
    return point_cells(request, _points())


def _points() -> list[tuple[dict[str, Label], dict[str, Value]]]:
    """Return (labels, settings) of every point."""
    grid: list[tuple[dict[str, Label], dict[str, Value]]] = [
        ({"part": "features", "level": scale}, {"dance.feature-noise": scale}) for scale in SCALES
    ]
    for epsilon in EPSILONS:
        settings: dict[str, Value] = {"privacy.dp": "central", "privacy.epsilon": epsilon}
        settings |= {"privacy.delta": DELTA, "privacy.clipping-norm": NORM}
        grid.append(({"part": "updates", "level": epsilon}, settings | {"privacy.seeded": True}))
    return grid


def _render(rows: Sequence[Row]) -> Section:
    return dataset_section(rows, HOW, _parts)


def _parts(dataset: str, compared: Sequence[Group]) -> list[str | Picture]:
    parts: list[str | Picture] = []
    for part, members in by_label(compared, "part").items():
        caption = f"Test accuracy over {_PARTS[part]} on {dataset}."
        draw = partial(_draw, part, members)
        picture = Picture(f"privacy-{part}-{dataset}", caption, draw, (4.8, 3.4))
        parts += [_table(part, members), picture]
    return parts


def _table(part: str, members: Sequence[Group]) -> str:
    lines = []
    for group in members:
        accuracy, level = group.stat("test_accuracy"), f"{float(group.labels['level']):g}"
        line = [group.name(level), accuracy.percent, accuracy.seeds]
        lines.append([*line, group.stat("val_accuracy").percent])
    return markdown([_PARTS[part], "accuracy %", "seeds", "validation %"], lines)


def _draw(part: str, members: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    levels = [float(group.labels["level"]) for group in members]
    stats = [stat_at(members, "test_accuracy", level=level) for level in levels]
    points(axes, levels, {"DANCE": stats})
    axes.set(xlabel=_PARTS[part], ylabel="test accuracy (%)")
    axes.set_xscale("log" if part == "updates" else "symlog", base=2)
    axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    name="privacy",
    title="Privacy and utility",
    question="DANCE keeps its accuracy under moderate noise on condensed features (the paper's "
    "privacy figure).",
    cells=_cells,
    render=_render,
)
