"""Runtime: short runs of their own, one at a time, methods in turn; what compares is ratios within
one study.
"""

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.plugins import METHODS
from dance_flwr.experiments.cells import Cell, Experiment, Picture, Request, Row, Section
from dance_flwr.experiments.figures import COLOURS, HATCHES
from dance_flwr.experiments.rows import WARM_ROUNDS
from dance_flwr.experiments.tables import NOTHING, Group, Stat, by_label, groups, markdown, stat_of
from dance_flwr.experiments.variants import find, mean_of, variant_cells

ROUNDS = 40
HOW = (
    f"Runs of their own, one at a time, each client after the other on one core; the first {WARM_ROUNDS} rounds are "
    "left out, and validation happens once, after the last round. Phases are seconds per round summed over clients; "
    "the total is the wall clock of a round's training, messages included. Once is what the rounds that are left out "
    "took beyond that: condensation and mending that happen before a first training, and first use of memory, caches "
    "and kernels. Seconds depend on the machine: what "
    "compares is the ratio to fedavg-full, taken seed by seed within this study. Encoding, done once before the "
    "first round, is in none of them."
)


def _cells(request: Request) -> list[Cell]:
    rounds = request.rounds or ROUNDS
    settings: dict[str, Value] = {"rounds": rounds, "evaluate-every": rounds}
    methods = request.methods or tuple(METHODS)
    made = []
    for dataset in request.datasets:
        cells = [variant_cells(request, dataset, method, settings, {}) for method in methods]
        # By seed, then by method: what slows the machine down for a while slows every method down.
        made += [cell for seed in zip(*cells, strict=True) for cell in seed]
    return made


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str | Picture] = [HOW]
    for dataset, found in by_label(groups(rows), "dataset").items():
        parts += [f"**{dataset}**", _table(found)]
        caption = f"Seconds per round and phase on {dataset}."
        parts.append(Picture(f"runtime-{dataset}", caption, partial(_draw, found), (6.5, 3.2)))
    return Section(tuple(parts))


def _table(found: Sequence[Group]) -> str:
    phases = _phases(found)
    reference = find(found, method="fedavg-full")
    lines = []
    for group in found:
        total = group.stat(lambda row: seconds(row, "total"))
        line = [group.name(str(group.labels["method"])), total.text(3), total.seeds]
        line += [
            ratio(group, reference).text(2) if reference else NOTHING,
            group.stat(once).text(1),
        ]
        lines.append([*line, *(_mean(group, phase) for phase in phases)])
    return markdown(
        [
            "method",
            "s per round",
            "seeds",
            "x fedavg-full",
            "once, s",
            *(f"{p}, s" for p in phases),
        ],
        lines,
    )


def seconds(row: Row, phase: str) -> float | None:
    """Return mean seconds per round after the first five, None for a shorter run."""
    value = row.result["steady_seconds"].get(phase)
    return None if value is None else float(value)


def once(row: Row) -> float | None:
    """Return the seconds of all rounds beyond those of as many steady ones, None for a run without
    steady ones.
    """
    steady = seconds(row, "total")
    return (
        None
        if steady is None
        else max(0.0, row.result["rounds"] * (row.result["seconds_per_round"] - steady))
    )


def ratio(group: Group, reference: Group) -> Stat:
    """Return seconds per round over those of the reference, seed by seed."""
    theirs = {row.labels["seed"]: seconds(row, "total") for row in reference.rows if row.result}
    own = {row.labels["seed"]: seconds(row, "total") for row in group.rows if row.result}
    pairs = [(value, theirs.get(seed)) for seed, value in own.items()]
    return stat_of(
        [value / other for value, other in pairs if value is not None and other], len(group.rows)
    )


def _phases(found: Sequence[Group]) -> list[str]:
    """Return the phases that take time in any of the runs."""
    named: dict[str, None] = {}
    for row in (row for group in found for row in group.rows if row.result):
        named |= {
            name: None
            for name, value in row.result["steady_seconds"].items()
            if value and name != "total"
        }
    return list(named)


def _mean(group: Group, phase: str) -> str:
    values = [row.result["steady_seconds"].get(phase, 0.0) for row in group.rows if row.result]
    value = mean_of(values)
    return NOTHING if value is None else f"{value:.3f}"


def _draw(found: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    done = [group for group in found if any(row.result for row in group.rows)]
    names = [group.name(str(group.labels["method"])) for group in done]
    left = [0.0] * len(done)
    for i, phase in enumerate(_phases(found)):
        widths = [
            fmean(r.result["steady_seconds"].get(phase, 0.0) for r in g.rows if r.result)
            for g in done
        ]
        style = {
            "color": COLOURS[i % 8],
            "hatch": HATCHES[i % 8],
            "edgecolor": "black",
            "linewidth": 0.5,
        }
        axes.barh(range(len(done)), widths, left=left, label=phase, **style)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(done)), names)
    axes.invert_yaxis()
    axes.set(xlabel="seconds per round, all clients together")
    if any(left):
        figure.legend(loc="outside upper center", ncols=6, fontsize=8)


EXPERIMENT = Experiment(
    name="runtime",
    title="Runtime",
    question="DANCE takes less training time than conventional federated baselines (the paper's runtime figure).",
    cells=_cells,
    render=_render,
    seeds=(0, 1, 2),
    serial=True,
)
