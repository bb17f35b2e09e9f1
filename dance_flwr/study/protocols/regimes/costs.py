"""Accuracy against text, upload and time in the cells where every method runs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dance_flwr.study.engine.cells import Picture, Row
from dance_flwr.study.protocols.regimes.grid import EVERYWHERE, STANDARD, TEXT
from dance_flwr.study.protocols.regimes.results import Place, Results
from dance_flwr.study.reports.figures import COLOURS, MARKERS
from dance_flwr.study.reports.tables import Group, markdown
from dance_flwr.study.reports.trained_nodes import tokens_of_a_refresh

HOW = (
    "Cost of a run. Thousand tokens: of the evidence that one refresh selects for condensed nodes, "
    "all clients; of all local texts for a method without evidence. Every method encodes all texts "
    "once, and DANCE's view of the original graph reads them all. MB up: per client over the whole "
    "run. Seconds: of one core, all clients and the server, without encoding."
)


def selected_tokens(row: Row) -> float:
    """Return thousand tokens of one refresh's evidence; of all texts for a method without any."""
    tokens = tokens_of_a_refresh(row)
    return (sum(row.result["encoder_tokens"]) if tokens is None else tokens) / 1000


def megabytes_up(row: Row) -> float:
    """Return megabytes that a client uploads in the whole run."""
    return float(row.result["bytes_up"] * row.result["rounds"] / 1e6)


def seconds(row: Row) -> float:
    """Return the processor seconds of the whole run, all clients and the server."""
    return float(row.result["facts"]["cpu_seconds"])


COSTS: Mapping[str, Callable[[Row], float | None]] = {
    "thousand tokens": selected_tokens,
    "MB up per client": megabytes_up,
    "seconds": seconds,
}


def parts(results: Results, dataset: str) -> list[str | Picture]:
    """Return a table of costs per cell in which every method runs, and one picture of all."""
    places = [
        place
        for regime in (STANDARD, TEXT)
        for place in results.places(dataset, regime)
        if len(results.groups[place]) > len(EVERYWHERE)
    ]
    if not places:
        return []
    blocks: list[str | Picture] = [HOW]
    for place in places:
        blocks += [f"{dataset}, {_title(place)}:", _table(results.groups[place])]
    caption = f"Accuracy against text, upload and time on {dataset}."
    draw = partial(_draw, results, places)
    return [*blocks, Picture(f"regimes-costs-{dataset}", caption, draw, (9.0, 7.0))]


def _title(place: Place) -> str:
    return "standard cell" if place.regime == STANDARD else f"foreign chunks {place.level}"


def _table(compared: Sequence[Group]) -> str:
    lines = [
        [
            group.name(str(group.labels["variant"])),
            group.stat("test_accuracy").percent,
            *(group.mean_text(cost, 1) for cost in COSTS.values()),
        ]
        for group in compared
    ]
    return markdown(["method", "accuracy %", *COSTS], lines)


def _draw(results: Results, places: Sequence[Place], figure: Any) -> None:
    """Draw a row of axes per cell, one per cost, and a point per method: mean over seeds."""
    axes = figure.subplots(len(places), len(COSTS), squeeze=False, sharey="row")
    names = dict.fromkeys(
        g.name(str(g.labels["variant"])) for p in places for g in results.groups[p]
    )
    styles = {name: _style(i) for i, name in enumerate(names)}
    handles: dict[str, Any] = {}
    for place, row in zip(places, axes, strict=True):
        row[0].set_ylabel(f"test accuracy (%), {_title(place)}")
        for ax, (title, cost) in zip(row, COSTS.items(), strict=True):
            for group in results.groups[place]:
                name = group.name(str(group.labels["variant"]))
                x, y = group.stat(cost).mean, group.stat("test_accuracy").mean
                if x is not None and y is not None:
                    (handles[name],) = ax.plot([x], [100 * y], linestyle="", **styles[name])
            ax.set(xlabel=title)
            if ax.lines:
                ax.set_xscale("log")
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=7
        )


def _style(i: int) -> dict[str, Any]:
    """Return colour and marker of the i-th method; no two of 64 share both."""
    return {"color": COLOURS[i % 8], "marker": MARKERS[(i + i // 8) % 8], "markersize": 6}
