"""Privacy and utility: accuracy over noise on condensed features, and over the epsilon of a real
mechanism.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.experiments.cells import Cell, Experiment, Label, Picture, Request, Row, Section
from dance_flwr.experiments.figures import points
from dance_flwr.experiments.tables import Group, by_label, groups, markdown
from dance_flwr.experiments.variants import SEED_TEXT, find, point_cells

SCALES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
EPSILONS = (8.0, 64.0, 512.0, 4096.0, 32768.0, 262144.0)
DELTA, NORM = 1e-3, 1.0
_PARTS = {"features": "Laplace scale b", "updates": "epsilon"}
HOW = (
    "Features: Laplace noise of scale b on the condensed features, then l2 normalisation, as in the paper. It bounds "
    "nothing that leaves a client and has no epsilon. Updates: client-level (epsilon, delta) of the whole run, "
    f"delta = {DELTA:g}, each update clipped to norm {NORM:g}, Gaussian noise on the sum, as under privacy.dp = "
    "central, or distributed where no client drops out. The noise of one client's protection is shared by all: with "
    f"5 clients there are few to share it. Noise comes from the run's seed here, as in no deployment. {SEED_TEXT}"
)


def _cells(request: Request) -> list[Cell]:
    return point_cells(request, _points())


def _points() -> list[tuple[dict[str, Label], dict[str, Value]]]:
    """Return (labels, settings) of every point."""
    made: list[tuple[dict[str, Label], dict[str, Value]]] = [
        ({"part": "features", "level": scale}, {"dance.feature-noise": scale}) for scale in SCALES
    ]
    for epsilon in EPSILONS:
        settings: dict[str, Value] = {
            "privacy.dp": "central",
            "privacy.epsilon": epsilon,
            "privacy.seeded": True,
        }
        settings |= {"privacy.delta": DELTA, "privacy.clipping-norm": NORM}
        made.append(({"part": "updates", "level": epsilon}, settings))
    return made


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str | Picture] = [HOW]
    for dataset, found in by_label(groups(rows), "dataset").items():
        parts.append(f"**{dataset}**")
        for part, own in by_label(found, "part").items():
            parts.append(_table(str(part), own))
            caption = f"Test accuracy over {_PARTS[str(part)]} on {dataset}."
            parts.append(
                Picture(
                    f"privacy-{part}-{dataset}", caption, partial(_draw, str(part), own), (4.8, 3.4)
                )
            )
    return Section(tuple(parts))


def _table(part: str, own: Sequence[Group]) -> str:
    lines = []
    for group in own:
        accuracy, shown = group.stat("test_accuracy"), f"{float(group.labels['level']):g}"
        lines.append(
            [
                group.name(shown),
                accuracy.percent,
                accuracy.seeds,
                group.stat("val_accuracy").percent,
            ]
        )
    return markdown([_PARTS[part], "accuracy %", "seeds", "validation %"], lines)


def _draw(part: str, own: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    levels = [float(group.labels["level"]) for group in own]
    empty = Group({}, ())
    points(
        axes,
        levels,
        {"DANCE": [(find(own, level=level) or empty).stat("test_accuracy") for level in levels]},
    )
    axes.set(xlabel=_PARTS[part], ylabel="test accuracy (%)")
    axes.set_xscale("log" if part == "updates" else "symlog", base=2)
    axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    name="privacy",
    title="Privacy and utility",
    question="DANCE keeps its accuracy under moderate noise on condensed features (the paper's privacy figure).",
    cells=_cells,
    render=_render,
    seeds=(0, 1, 2),
)
