"""Figures that remain readable in greyscale.

Each of Okabe and Ito's colours comes with a marker, a line style and a hatch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dance_flwr.disk import atomic_path
from dance_flwr_studies.engine.cells import Picture
from dance_flwr_studies.engine.compact_rows import CURVE
from dance_flwr_studies.reports.tables import Group, Stat

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)), (0, (6, 2)), (0, (3, 1, 1, 1)))
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")


def style(i: int) -> dict[str, Any]:
    """Return colour, line and marker of the i-th line; they repeat after eight."""
    return {"color": COLOURS[i % 8], "linestyle": LINES[i % 8], "marker": MARKERS[i % 8]}


# Without these entries equal rows give equal bytes.
_FORMATS: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}


def save(picture: Picture, folder: Path) -> list[Path]:
    """Write a picture as PNG and SVG and return their paths; equal rows give equal bytes."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = []
    # Without a salt the ids in an SVG are random. "none" keeps text as text.
    settings: dict[Any, Any] = {"svg.hashsalt": picture.name, "svg.fonttype": "none"}
    with matplotlib.rc_context({**settings, "font.size": 9}):
        figure = Figure(figsize=picture.size, layout="constrained")
        FigureCanvasAgg(figure)
        picture.draw(figure)
        for suffix, metadata in _FORMATS.items():
            path = folder / f"{picture.name}.{suffix}"
            with atomic_path(path) as draft:
                figure.savefig(draft, dpi=160, format=suffix, metadata=metadata)
            paths.append(path)
    return paths


def validation_curves(compared: Mapping[str, Group], figure: Any) -> None:
    """Draw the mean validation accuracy over seeds by round, in percent, a line per name.

    The band is one standard deviation. Rounds without a value for every seed are omitted, so that
    all means are over the same seeds.
    """
    axes = figure.subplots()
    for i, (name, group) in enumerate(compared.items()):
        seeds = [row.result[CURVE] for row in group.rows if row.result]
        shortest = min((len(curve) for curve in seeds), default=0)
        if not shortest:
            continue
        values = 100 * np.array([curve[:shortest] for curve in seeds], np.float64)  # None is NaN
        known = ~np.isnan(values).any(axis=0)
        x, values = 1 + np.flatnonzero(known), values[:, known]
        mean, every = values.mean(axis=0), max(1, len(x) // 10)
        # Markers are shifted from curve to curve, so that they do not cover each other.
        looks = {"markevery": (i * every // 4, every), "markersize": 4, "linewidth": 1.2}
        axes.plot(x, mean, label=name, **looks, **style(i))
        if len(values) > 1:
            std = values.std(axis=0, ddof=1)  # n - 1, as in the tables
            band = {"color": COLOURS[i % 8], "alpha": 0.15, "linewidth": 0}
            axes.fill_between(x, mean - std, mean + std, **band)
    axes.set(xlabel="communication round", ylabel="validation accuracy (%)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if axes.lines:
        axes.legend(fontsize=8)


def points(axes: Any, x: Sequence[float], lines: Mapping[str, Sequence[Stat]]) -> None:
    """Draw means in percent over `x` with error bars of one standard deviation, a line per name.

    Points without a result are omitted.
    """
    for i, (name, stats) in enumerate(lines.items()):
        known = [(at, stat) for at, stat in zip(x, stats, strict=True) if stat.mean is not None]
        axes.errorbar(
            [at for at, _ in known],
            [100 * (stat.mean or 0.0) for _, stat in known],
            yerr=[100 * (stat.std or 0.0) for _, stat in known],
            label=name,
            markersize=5,
            **style(i),
            linewidth=1.2,
            capsize=3,
        )
