"""A partition as a picture: sizes and labels per client, readable without colour."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from dance_flwr.errors import DataError

# Okabe and Ito's eight colours, distinguishable under the common kinds of colour blindness.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_HATCHES = (
    "",
    "//",
    "..",
    "xx",
    "\\\\",
    "++",
    "oo",
    "--",
)  # a second cue, for print and beyond eight classes
_MOST_CLASSES = 16  # more shades than this nobody tells apart
_OTHER = "other classes"


def plot(content: dict[str, Any], file: Path) -> None:
    """Draw a manifest's clients: nodes each holds, and stacked bars of the shares of their labels.

    Beyond 16 classes the rarest are drawn as one. The kind of picture follows the file's ending.

    Raises
    ------
    DataError : matplotlib is not installed, or the file cannot be written
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DataError(
            "plot: expected the package matplotlib, found none; pip install 'dance-flwr[plots]'"
        ) from None
    names, shares = _shares(content)
    clients = len(content["clients"])
    figure = Figure(figsize=(min(20.0, max(6.5, 2.8 + 0.45 * clients)), 6.0), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (1, 2.4)})
    x = np.arange(clients)
    sizes = [client["nodes"] for client in content["clients"]]
    bars = top.bar(x, sizes, color="#555555", edgecolor="black", linewidth=0.5)
    if clients <= 12:
        top.bar_label(bars, [f"{size:,}" for size in sizes], padding=2, fontsize=8)
    top.margins(y=0.15)
    top.set_ylabel("nodes")
    figures, spec = content["report"], content["spec"]
    top.set_title(
        f"{content['dataset']}, {spec['method']}, seed {spec['seed']}: "
        f"{figures['kept_edges_ratio']:.1%} of the edges kept, label skew {figures['non_iid']:.3f}",
        fontsize=10,
    )
    base = np.zeros(clients)
    for i, name in enumerate(names):
        colour, hatch = (
            _COLOURS[i % len(_COLOURS)],
            _HATCHES[(i + i // len(_COLOURS)) % len(_HATCHES)],
        )
        label = textwrap.shorten(name, 28, placeholder="...")
        style = {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.5}
        bottom.bar(x, shares[:, i], bottom=base, label=label, **style)
        base += shares[:, i]
    bottom.set(xlabel="client", ylabel="share of labelled nodes", ylim=(0, 1))
    bottom.set_xticks(x[:: max(1, clients // 25)])
    if names:
        handles, labels = bottom.get_legend_handles_labels()
        # Top to bottom as in the bars.
        figure.legend(
            handles[::-1], labels[::-1], loc="outside right center", fontsize=8, handlelength=2.5
        )
    try:
        figure.savefig(file, dpi=200)
    except (OSError, ValueError) as error:
        raise DataError(
            f"plot {file}: expected a picture file that can be written, found: {error}"
        ) from error


def _shares(content: dict[str, Any]) -> tuple[list[str], Any]:
    """Return the classes to draw and their shares, [clients, classes] float64."""
    names = list(content["class_names"])
    rows = [[row["label_shares"][name] for name in names] for row in content["report"]["clients"]]
    shares = np.array(rows, np.float64).reshape(len(rows), len(names))
    if len(names) <= _MOST_CLASSES:
        return names, shares
    order = np.argsort(-shares.sum(axis=0), kind="stable")
    kept, rest = np.sort(order[: _MOST_CLASSES - 1]), order[_MOST_CLASSES - 1 :]
    return [names[i] for i in kept] + [_OTHER], np.column_stack(
        [shares[:, kept], shares[:, rest].sum(axis=1)]
    )
