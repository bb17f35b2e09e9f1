"""Runtime: separate short runs, one at a time, compared by ratios within one study."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.methods import get_spec
from dance_flwr_studies.engine.cells import Cell, Experiment, Picture, Request, Row, default_methods
from dance_flwr_studies.engine.compact_rows import WARM_ROUNDS
from dance_flwr_studies.protocols.variants import REFERENCE, find, variant_cells
from dance_flwr_studies.reports.figures import COLOURS, HATCHES
from dance_flwr_studies.reports.sections import mean_of, named, side_by_side
from dance_flwr_studies.reports.tables import Group, stat_of
from dance_flwr_studies.reports.verdicts import Expected, expect, of_datasets

ROUNDS = 40
HOW = (
    "Runs one at a time, on one core. Seconds are those of a round's training with its messages, "
    f"without the first {WARM_ROUNDS} rounds; once is what these took beyond that: condensation, "
    "graph completion, caches. Ratios are seed by seed. Encoding is not included."
)


def _cells(request: Request) -> list[Cell]:
    rounds = request.rounds or ROUNDS
    settings: dict[str, Value] = {"rounds": rounds, "evaluate-every": rounds}
    methods = request.methods or default_methods()
    ordered = []
    for dataset in request.datasets:
        by_method = [variant_cells(request, dataset, method, ({}, settings)) for method in methods]
        # Seed by seed, methods in turn: a slow spell of the machine slows every method.
        ordered += [cell for seed in zip(*by_method, strict=True) for cell in seed]
    return ordered


def _picture(dataset: str, compared: Sequence[Group]) -> Picture:
    caption = f"Seconds per round and phase on {dataset}."
    return Picture(f"runtime-{dataset}", caption, partial(_draw, compared), (6.5, 3.2))


def seconds(row: Row, phase: str) -> float | None:
    """Return mean seconds per round after the first five, None for a shorter run."""
    value = row.result["steady_seconds"].get(phase)
    return None if value is None else float(value)


_TOTAL = partial(seconds, phase="total")


def once(row: Row) -> float | None:
    """Return the seconds that warm-up rounds took beyond steady ones, None without the latter."""
    steady = seconds(row, "total")
    if steady is None:
        return None
    return max(0.0, float(row.result["rounds"] * (row.result["seconds_per_round"] - steady)))


def _ratio(group: Group, compared: Sequence[Group]) -> str:
    """Return seconds per round over those of the reference, seed by seed."""
    reference = find(compared, method=REFERENCE)
    theirs = reference.by_seed(_TOTAL) if reference else {}
    # Two runs of a seed follow each other, so the speed of the machine cancels.
    times = [v / theirs[seed] for seed, v in group.by_seed(_TOTAL).items() if theirs.get(seed)]
    stat = stat_of(times, len(group.rows))
    return f"{stat.text(2)}{stat.missing}"


def _phases(compared: Sequence[Group]) -> list[str]:
    names: dict[str, None] = {}
    for row in (row for group in compared for row in group.rows if row.result):
        steady = row.result["steady_seconds"]
        names |= {name: None for name, value in steady.items() if value and name != "total"}
    return list(names)


def _draw(compared: Sequence[Group], figure: Any) -> None:
    axes = figure.subplots()
    finished = [group for group in compared if any(row.result for row in group.rows)]
    names = [named("method")(group) for group in finished]
    left = [0.0] * len(finished)
    for i, phase in enumerate(_phases(compared)):
        widths = [
            fmean(seconds(row, phase) or 0.0 for row in group.rows if row.result)
            for group in finished
        ]
        style = {"color": COLOURS[i % 8], "hatch": HATCHES[i % 8], "edgecolor": "black"}
        axes.barh(range(len(names)), widths, left=left, label=phase, linewidth=0.5, **style)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="seconds per round, all clients together")
    if any(left):
        figure.legend(loc="outside upper center", ncols=6, fontsize=8)


def _slower(dataset: str, compared: Sequence[Group]) -> Iterator[Expected]:
    """Compare the seconds of methods that condense nothing with those of DANCE."""
    dance = find(compared, method="dance")
    for group in compared:
        if not get_spec(str(group.labels["method"])).card.condenses:
            what = f"{named('method')(group)} minus DANCE on {dataset}"
            yield from expect(what, group, dance, metric=_TOTAL, unit=("s per round", 1.0))


EXPERIMENT = Experiment(
    title="Runtime",
    question="DANCE takes less training time than conventional federated baselines (the paper's "
    "runtime figure).",
    cells=_cells,
    render=side_by_side(
        HOW,
        {"method": named("method")},
        {"s per round": mean_of(_TOTAL, 3), f"x {REFERENCE}": _ratio, "once, s": mean_of(once, 1)},
        _picture,
    ),
    verdict=of_datasets(_slower),
    metrics={},
    seeds=(0, 1, 2),
    serial=True,
)
