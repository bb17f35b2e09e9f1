"""Plot a partition: sizes and label shares per client, readable without colour."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.disk import atomic_path
from dance_flwr.errors import DataError

# The eight colours of Okabe and Ito, distinguishable with common types of colour blindness.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
# A second cue, for print and for more than eight classes.
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
_MAX_CLASSES = 16  # more cannot be told apart
_OTHER = "other classes"


def plot(content: dict[str, Any], file: Path) -> None:
    """Plot the clients of a manifest: their numbers of nodes, and stacked bars of label shares.

    With more than 16 classes, the rarest are combined. The suffix of `file` determines the format.

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
    # More numbers would overlap.
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
    _stack(bottom, names, shares)
    bottom.set(xlabel="client", ylabel="share of labelled nodes", ylim=(0, 1))
    bottom.set_xticks(x[:: max(1, clients // 25)])
    if names:
        handles, labels = bottom.get_legend_handles_labels()
        # Top to bottom as in the bars.
        figure.legend(
            handles[::-1], labels[::-1], loc="outside right center", fontsize=8, handlelength=2.5
        )
    try:
        file.parent.stat()  # a missing folder is a mistyped path: it is not created
        with atomic_path(file) as draft:
            figure.savefig(draft, dpi=200, format=file.suffix.removeprefix(".") or "png")
    except (OSError, ValueError) as error:
        raise DataError(
            f"plot {file}: expected a writable file in an image format, found: {error}; "
            "choose another file"
        ) from error


def _stack(axes: Any, names: list[str], shares: NDArray[np.float64]) -> None:
    """Draw one bar per client, stacked from its shares [clients, classes]."""
    x, base = np.arange(len(shares)), np.zeros(len(shares))
    for i, name in enumerate(names):
        # One further after eight classes: a colour comes back with another hatch.
        hatch = _HATCHES[(i + i // len(_COLOURS)) % len(_HATCHES)]
        style = {"color": _COLOURS[i % len(_COLOURS)], "hatch": hatch, "edgecolor": "black"}
        label = textwrap.shorten(name, 28, placeholder="...")
        axes.bar(x, shares[:, i], bottom=base, label=label, linewidth=0.5, **style)
        base += shares[:, i]


def _shares(content: dict[str, Any]) -> tuple[list[str], NDArray[np.float64]]:
    """Return the classes to draw and their shares, [clients, classes] float64."""
    names = list(content["class_names"])
    rows = [[row["label_shares"][name] for name in names] for row in content["report"]["clients"]]
    shares = np.array(rows, np.float64).reshape(len(rows), len(names))
    if len(names) <= _MAX_CLASSES:
        return names, shares
    order = np.argsort(-shares.sum(axis=0), kind="stable")
    largest, rest = np.sort(order[: _MAX_CLASSES - 1]), order[_MAX_CLASSES - 1 :]
    return [names[i] for i in largest] + [_OTHER], np.column_stack(
        [shares[:, largest], shares[:, rest].sum(axis=1)]
    )
