"""Measured growth of a client round of DANCE, beside the paper's bounds.

Source: Sec. 5.4, theorem on end-to-end cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
from scipy.stats import linregress

from dance_flwr.errors import counted
from dance_flwr.metrics import PHASES
from dance_flwr_studies.engine.cells import Cell, Experiment, Picture, Request, Row, Section
from dance_flwr_studies.protocols.complexity.growth import MEASURE, SERIES
from dance_flwr_studies.reports.figures import style
from dance_flwr_studies.reports.tables import NOTHING, markdown
from dance_flwr_studies.reports.verdicts import FAILS, HOLDS, UNTESTED


@dataclass(frozen=True)
class Claim:
    """The cost of one phase when one quantity grows, in the paper and in this code.

    Attributes
    ----------
    series : name in `SERIES`; phase : of a round, "total", "bytes" or "memory"
    paper : the paper's bound in that quantity, a dash where it gives none; ours : this code's bound
    bar : the largest exponent that this code promises; None = none
    """

    series: str
    phase: str
    paper: str
    ours: str
    bar: float | None = None


_SHARED = "1: n per condensation"
_TEXT_IN_CORE = Claim("core", "text", "K", "K_b (`fan-out` + B_tok)")
CLAIMS = (
    Claim("nodes", "nodes", "n log n", f"{_SHARED}; a sort makes it log n"),
    Claim("nodes", "forward", NOTHING, _SHARED),
    Claim("nodes", "text", "1", "1"),
    Claim("nodes", "topology", "1", "1"),
    Claim("nodes", "train", NOTHING, "1: sampled neighbours"),
    Claim("nodes", "total", "n log n", "1", 0.1),
    Claim("nodes", "bytes", "n", "1: K_b (d + q + B)"),
    Claim("nodes", "memory", "n", "1, and some 200 bytes per node", 0.1),
    _TEXT_IN_CORE,
    Claim("core", "topology", "K", "K_b: search in groups of 128 nodes of a class"),
    Claim("core", "train", NOTHING, "K_b"),
    Claim("core", "total", "K", "K_b / r to condense, else K_b", 1.1),
    Claim("core", "bytes", "K", "K_b (d + q + B)"),
    Claim("core", "memory", "K", "K_b", 1.1),
    Claim("candidates", "topology", "q", "q²: Gram matrices of the supports"),
    Claim("chunk-budget", "text", "B_tok", "1: all candidates are scored"),
    Claim("chunk-budget", "bytes", NOTHING, "K_b (d + B_tok)"),
    Claim("hop1-budget", "text", "B_1", "B_1: chunks of those selected"),
)

HOW = (
    "One client round of DANCE on a made-up client on disk: a random sparse graph, random unit "
    "chunk embeddings, 60 % of the nodes labelled, an untrained model, three local epochs, "
    "r = 8 %, without validation; each size in its own process. Seconds are amortised: the mean of "
    "the rounds after a condensation, plus the excess of a round that condenses over the rounds "
    "until the next one, max(10, r n / K_b). The whole round is in CPU seconds. Memory is the peak "
    "of anonymous pages, Python and torch included. One quantity grows, all others are fixed. The "
    "exponent is the slope of log cost over log size with its standard error; fixed costs of small "
    "sizes flatten it."
)
DIFFERENCES = (
    "Where this differs from the paper's O(n log n + Kq) time and O(n + Kq) space: a round trains "
    "on K_b nodes of the core, not on all K = r n, and the pass over n nodes fills the queue of "
    "the next r n / K_b rounds. The paper omits the backbone, O(K_b fan-out h) per local "
    "epoch. Similar nodes are searched among at most 128 of a class, and each column is solved in "
    "its own Gram matrix of up to 2q candidates, so topology is not linear in q."
)


def _cells(request: Request) -> list[Cell]:
    return [
        Cell(labels={"series": name, "sizes": " ".join(map(str, series.sizes))}, measure=MEASURE)
        for name, series in SERIES.items()
    ]


def slope(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return exponent b of values ~ a sizes^b and its standard error, by least squares on logs."""
    fit = linregress(np.log(sizes), np.log(values))
    # The error is NaN for constant values.
    return float(fit.slope), float(np.nan_to_num(fit.stderr))


def _render(rows: Sequence[Row]) -> Section:
    measured = {str(row.labels["series"]): row.measure for row in rows if row.measure}
    if not measured:
        return Section(
            (HOW, f"0 of {len(rows)} series are measured; nothing to show yet.", DIFFERENCES)
        )
    lines = [_line(claim, measured[claim.series]) for claim in CLAIMS if claim.series in measured]
    headings = ["grows", "phase", "exponent", "bar", "paper, O( )", "this code, O( )"]
    missing = [name for row in rows if (name := str(row.labels["series"])) not in measured]
    ranges = [
        f"{series.symbol} from {series.sizes[0]:,} to {series.sizes[-1]:,}"
        for name, series in SERIES.items()
        if name in measured
    ]
    parts: list[str | Picture] = [HOW, f"{', '.join(ranges)}.", markdown(headings, lines)]
    parts += [f"Not measured yet: {', '.join(missing)}."] if missing else []
    picture = Picture(
        "complexity",
        "Amortised seconds of one client round by phase while one quantity grows; thin grey lines "
        "have slopes 1 and 2.",
        lambda figure: _draw(measured, figure),
        (9.0, 5.5),
    )
    return Section((*parts, DIFFERENCES, picture))


def _line(claim: Claim, measured: Mapping[str, Any]) -> list[str]:
    series, sizes = SERIES[claim.series], measured["sizes"]
    values = _values(claim.phase, measured)
    # 0 stands for what the system does not say.
    known = all(values)
    exponent, error = slope(sizes, values) if known else (0.0, 0.0)
    paper = claim.paper
    # Its slope over these sizes is above 1, so it is printed to be compared with.
    if paper == "n log n":
        paper += f" ({_exponent(paper, sizes):.2f})"
    return [
        series.symbol,
        _PHASES.get(claim.phase, claim.phase),
        f"{exponent:.2f} ± {error:.2f}" if known else NOTHING,
        _verdict(claim.bar, exponent) if known else NOTHING,
        paper,
        claim.ours,
    ]


_PHASES = {"bytes": "written per round", "memory": "peak memory", "total": "**round**"}


def _values(phase: str, measured: Mapping[str, Any]) -> list[float]:
    if phase == "bytes":
        return list(measured["bytes"])
    if phase == "memory":
        pairs = zip(measured["memory"], measured["survey_memory"], strict=True)
        return [max(pair) for pair in pairs]
    return list(measured["seconds"][phase])


def _verdict(bar: float | None, exponent: float) -> str:
    if bar is None:
        return NOTHING
    return f"at most {bar:g}: {'kept' if exponent <= bar else '**missed**'}"


def _draw(series: Mapping[str, Mapping[str, Any]], figure: Any) -> None:
    axes = figure.subplots(2, 3).flatten()
    for axis, (name, measured) in zip(axes, series.items(), strict=False):
        sizes = measured["sizes"]
        for i, phase in enumerate(PHASES):
            seconds = measured["seconds"][phase]
            axis.plot(sizes, seconds, label=phase, markersize=4, linewidth=1.2, **style(i))
        axis.set(xscale="log", yscale="log", xlabel=SERIES[name].symbol, ylabel="seconds")
        # The guides must not widen the axis.
        limits = axis.get_ylim()
        for power in (1, 2):
            guide = [
                min(measured["seconds"]["text"]) * (size / sizes[0]) ** power for size in sizes
            ]
            axis.plot(sizes, guide, color="#BBBBBB", linewidth=0.8, zorder=0)
        axis.set_ylim(limits)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    for axis in axes[len(series) :]:
        axis.axis("off")
    axes[-1].legend(*axes[0].get_legend_handles_labels(), loc="center", fontsize=9)


def _verdict_of_claim(rows: Sequence[Row]) -> str:
    """Compare exponents of the round and of text in K with the paper's, two errors allowed."""
    measured = {str(row.labels["series"]): row.measure for row in rows if row.measure}
    above, count = [], 0
    for claim in CLAIMS:
        stated = claim.phase in ("total", "bytes", "memory") or claim == _TEXT_IN_CORE
        if not stated or claim.paper == NOTHING or claim.series not in measured:
            continue
        sizes = measured[claim.series]["sizes"]
        if all(values := _values(claim.phase, measured[claim.series])):
            exponent, error = slope(sizes, values)
            count += 1
            if exponent - 2 * error > _exponent(claim.paper, sizes):
                phase = _PHASES.get(claim.phase, claim.phase).strip("*")
                above.append(f"{phase} over {SERIES[claim.series].symbol}")
    if not count:
        return f"**{UNTESTED}**."
    text = f"{len(above)} of {counted(count, 'exponent')} above the paper's"
    named = f": {', '.join(above)}" if above else ""
    return f"**{FAILS if above else HOLDS}** over the sizes measured, {text}{named}."


def _exponent(bound: str, sizes: Sequence[float]) -> float:
    """Return the slope over these sizes of a bound in the quantity that grows."""
    if bound == "n log n":
        return slope(sizes, [size * log2(size) for size in sizes])[0]
    return 0.0 if bound == "1" else 1.0


EXPERIMENT = Experiment(
    title="Complexity",
    question=(
        "A client round takes O(n log n + Kq) time and O(n + Kq) space; text condensation is O(K) "
        "and controlled by the budgets (Table on complexity and Thm. on end-to-end cost)."
    ),
    cells=_cells,
    render=_render,
    verdict=_verdict_of_claim,
    metrics={},
    datasets=(),
    seeds=(),
    serial=True,
)
