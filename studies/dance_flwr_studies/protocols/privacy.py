"""Privacy and utility: accuracy over noise on condensed features, and over epsilon of updates."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr_studies.engine.cells import Experiment, Picture, Row, Section
from dance_flwr_studies.protocols.variants import SEED_TEXT, Point, find, point_cells
from dance_flwr_studies.reports.figures import points
from dance_flwr_studies.reports.sections import seeds_text
from dance_flwr_studies.reports.significance import MARGIN
from dance_flwr_studies.reports.tables import Group, by_label, groups, markdown
from dance_flwr_studies.reports.verdicts import Expected, expect, of_datasets

SCALES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
EPSILONS = (8.0, 64.0, 512.0, 4096.0, 32768.0, 262144.0)
_MODERATE = 1.0  # the claim gives no scale; features have norm 1
DELTA, NORM = 1e-3, 1.0
_PARTS = {"features": "Laplace scale b", "updates": "epsilon"}
HOW = (
    "Features: Laplace noise of scale b on the condensed features, then l2 normalisation, as in "
    "the paper. It bounds nothing that leaves a client and has no epsilon. Updates: client-level "
    f"(epsilon, delta) of the whole run, delta = {DELTA:g}, each update clipped to norm {NORM:g}, "
    "Gaussian noise on the sum, as under privacy.dp = central, or distributed where no client "
    "drops out; five clients are few to share it. Noise comes from the run's seed here, as in no "
    f"deployment. {SEED_TEXT}"
)


def _points() -> list[Point]:
    grid: list[Point] = [
        ({"part": "features", "level": scale}, {"dance.feature-noise": scale}) for scale in SCALES
    ]
    for epsilon in EPSILONS:
        settings: dict[str, Value] = {"privacy.dp": "central", "privacy.epsilon": epsilon}
        settings |= {"privacy.delta": DELTA, "privacy.clipping-norm": NORM}
        # Why seeded (decision 9): a study must be repeatable.
        grid.append(({"part": "updates", "level": epsilon}, settings | {"privacy.seeded": True}))
    return grid


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str | Picture] = [HOW]
    for dataset, compared in by_label(groups(rows), "dataset").items():
        parts.append(f"**{dataset}**, {seeds_text(compared)}")
        for part, members in by_label(compared, "part").items():
            levels = [group.name(f"{float(group.labels['level']):g}") for group in members]
            accuracies = [group.stat("test_accuracy").percent for group in members]
            parts.append(markdown([_PARTS[part], *levels], [["accuracy %", *accuracies]]))
            caption = f"Test accuracy over {_PARTS[part]} on {dataset}."
            draw = partial(_draw, part, members)
            parts.append(Picture(f"privacy-{part}-{dataset}", caption, draw, (4.8, 3.4)))
    return Section(tuple(parts))


def _draw(part: str, members: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    levels = [float(group.labels["level"]) for group in members]
    stats = [group.stat("test_accuracy") for group in members]
    points(axes, levels, {"DANCE": stats})
    axes.set(xlabel=_PARTS[part], ylabel="test accuracy (%)")
    # symlog has a place for scale 0, the run without noise.
    axes.set_xscale("log" if part == "updates" else "symlog", base=2)
    axes.legend(fontsize=8)


def _kept(dataset: str, compared: Sequence[Group]) -> Iterator[Expected]:
    """Compare accuracy under noise up to `_MODERATE` with that without: no point lower."""
    clean = find(compared, part="features", level=0.0)
    for group in compared:
        level = float(group.labels["level"])
        if group.labels["part"] == "features" and level <= _MODERATE:
            what = f"accuracy at b = {level:g} minus that without noise on {dataset}"
            yield from expect(what, group, clean, -MARGIN)


EXPERIMENT = Experiment(
    title="Privacy and utility",
    question="DANCE keeps its accuracy under moderate noise on condensed features (the paper's "
    "privacy figure).",
    cells=lambda request: point_cells(request, _points()),
    render=_render,
    verdict=of_datasets(_kept),
)
