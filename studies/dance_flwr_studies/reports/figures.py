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
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def why_no_figures() -> str:
    """Return one line on how to install matplotlib, or "" if it is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return (
            "figures     expected the package matplotlib, found none: only tables are written; "
            "pip install 'dance-flwr[plots]'"
        )
    return ""


def save(picture: Picture, folder: Path) -> list[Path]:
    """Write a picture as PNG, SVG and PDF and return their paths; equal rows give equal bytes."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = []
    # Without a salt the ids in an SVG are random. "none" keeps text as text, as 42 does in a PDF.
    settings: dict[Any, Any] = {
        "svg.hashsalt": picture.name,
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
    }
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


def curves(
    axes: Any, lines: Mapping[str, Sequence[Sequence[float | None]]], first: int = 1
) -> None:
    """Draw the mean over seeds with a band of one standard deviation, a line per name.

    Rounds without a value are omitted.
    """
    for i, (name, seeds) in enumerate(lines.items()):
        values = np.array(
            [[np.nan if v is None else v for v in seed] for seed in seeds], np.float64
        )
        # Only rounds with a value for every seed, so that all means are over the same seeds.
        known = ~np.isnan(values).any(axis=0)
        x, values = first + np.flatnonzero(known), values[:, known]
        mean = values.mean(axis=0)
        every = max(1, len(x) // 10)
        axes.plot(
            x,
            mean,
            label=name,
            # Shifted from curve to curve, so that markers do not cover each other.
            markevery=(i * every // 4, every),
            markersize=4,
            linewidth=1.2,
            **style(i),
        )
        if len(values) > 1:
            # n - 1, as in the tables.
            std = values.std(axis=0, ddof=1)
            axes.fill_between(
                x, mean - std, mean + std, color=COLOURS[i % 8], alpha=0.15, linewidth=0
            )


def validation_curves(compared: Mapping[str, Group], figure: Any) -> None:
    """Draw the validation accuracy in percent by round, a line per name."""
    lines = {}
    for name, group in compared.items():
        seeds = [row.result[CURVE] for row in group.rows if row.result]
        # A band needs every seed at every round.
        shortest = min((len(curve) for curve in seeds), default=0)
        if shortest:
            lines[name] = [
                [None if value is None else 100 * value for value in curve[:shortest]]
                for curve in seeds
            ]
    axes = figure.subplots()
    curves(axes, lines)
    axes.set(xlabel="communication round", ylabel="validation accuracy (%)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if lines:
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
