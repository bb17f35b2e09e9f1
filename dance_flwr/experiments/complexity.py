"""Measured growth of a client round of DANCE, beside the paper's bounds.

Source: Sec. 5.4, theorem on end-to-end cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, log2
from typing import Any

import numpy as np
from scipy.stats import linregress

from dance_flwr.experiments.cells import Cell, Experiment, Picture, Request, Row, Section
from dance_flwr.experiments.figures import COLOURS, LINES, MARKERS
from dance_flwr.experiments.growth import CHUNKS_PER_NODE, SERIES, sizes_label
from dance_flwr.experiments.tables import NOTHING, markdown
from dance_flwr.metrics import PHASES


@dataclass(frozen=True)
class Claim:
    """The cost of one phase when one quantity grows, in the paper and in this code.

    Attributes
    ----------
    series : name in `SERIES`; phase : of a round, or "bytes"
    paper : the paper's bound in that quantity, a dash where it gives none; ours : this code's bound
    """

    series: str
    phase: str
    paper: str
    ours: str


CLAIMS = (
    Claim("nodes", "nodes", "n log n", "n log n; k-means reads at most 4096 nodes a step"),
    Claim("nodes", "forward", NOTHING, "n: plain pass over the local graph"),
    Claim("nodes", "train", NOTHING, "n: plain pass in every epoch"),
    Claim("nodes", "text", "1", "1"),
    Claim("nodes", "topology", "1", "1"),
    Claim("nodes", "bytes", "n", "n + K (q + B)"),
    Claim("core", "text", "K", "K"),
    Claim("core", "topology", "K", "K²: exact search among all pairs"),
    Claim("core", "train", NOTHING, "K, beside the pass over n nodes"),
    Claim("core", "bytes", "K", "K"),
    Claim("candidates", "topology", "q", "q²: Gram matrices of the supports"),
    Claim(
        "chunk-budget", "text", "B_tok", "all candidate chunks are scored; B_tok only in the sum"
    ),
    Claim("chunk-budget", "bytes", NOTHING, "K B_tok"),
    Claim("hop1-budget", "text", "B_1", "all candidates are scored; B_1 adds their chunks"),
    Claim("hop1-budget", "train", NOTHING, "as text, in every epoch"),
)

HOW = (
    "One client round of the method's own code on synthetic clients: a random sparse graph, "
    f"{CHUNKS_PER_NODE} random unit chunk embeddings a node, 60 % of the nodes labelled, one "
    "local epoch, an untrained model, one core; medians over rounds, the first omitted. One "
    "quantity grows, all others are fixed. The exponent is the slope of log seconds over log size "
    "with its standard error; fixed costs of small sizes flatten it, so the step between the two "
    "largest sizes stands beside it. Seconds depend on the machine, exponents hardly do."
)
DIFFERENCES = (
    "Where this differs from the paper's O(n log n + Kq) time and O(n + Kq) space:\n\n"
    "- Topology is not O(Kq). The q most similar nodes are found by comparing all pairs, O(K² d) "
    "time in blocks of rows, never K² memory. The paper's bound holds only once candidates are "
    "given, or with an approximate search.\n"
    "- Nor is it linear in q: each column is solved in its own Gram matrix of up to 2q "
    "candidates, O(K q² d) once and O(L K q²) for L steps.\n"
    "- Every round and every local epoch run the backbone over the whole local graph, O((n + "
    "edges) h + n d h); the paper's sum leaves it out. For large n it is the largest part.\n"
    "- Text selection is O(K) as claimed, but the constant is what is scored (every candidate "
    "within two hops and every chunk of the chosen ones), not what is kept: B_tok bounds the sum "
    "and the pack, hardly the time.\n"
    "- K is a ratio r of n in a run, K = ceil(r n), so at a fixed ratio the exact search is O(r² "
    "n² d)."
)


def _cells(request: Request) -> list[Cell]:
    return [
        Cell(labels={"series": name, "sizes": sizes_label(series.sizes)}, measure="growth:measure")
        for name, series in SERIES.items()
    ]


def slope(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return exponent b of values ~ a sizes^b and its standard error, by least squares on logs."""
    fit = linregress(np.log(sizes), np.log(values))
    # The error is NaN for constant values.
    return float(fit.slope), float(np.nan_to_num(fit.stderr))


def last_step(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the exponent between the two largest sizes."""
    return log(values[-1] / values[-2]) / log(sizes[-1] / sizes[-2])


def _render(rows: Sequence[Row]) -> Section:
    measured = {str(row.labels["series"]): row.measure for row in rows if row.measure}
    if not measured:
        return Section(
            (HOW, f"0 of {len(rows)} series are measured; nothing to show yet.", DIFFERENCES)
        )
    lines = [_line(claim, measured[claim.series]) for claim in CLAIMS if claim.series in measured]
    headings = [
        "grows",
        "phase",
        "smallest",
        "largest",
        "exponent",
        "last step",
        "paper, O( )",
        "this code, O( )",
    ]
    missing = [str(row.labels["series"]) for row in rows if not row.measure]
    parts: list[str | Picture] = [HOW, markdown(headings, lines)]
    parts += [f"Not measured yet: {', '.join(missing)}."] if missing else []
    picture = Picture(
        "complexity",
        "Seconds of one client round by phase while one quantity grows; thin grey lines have "
        "slopes 1 and 2.",
        lambda figure: _draw(measured, figure),
        (9.0, 5.5),
    )
    return Section((*parts, DIFFERENCES, picture))


def _line(claim: Claim, measured: Mapping[str, Any]) -> list[str]:
    series, sizes = SERIES[claim.series], measured["sizes"]
    values = measured["bytes"] if claim.phase == "bytes" else measured["seconds"][claim.phase]
    exponent, error = slope(sizes, values)
    ends = [
        f"{v / 1000:.0f} kB" if claim.phase == "bytes" else f"{1000 * v:.1f} ms"
        for v in (values[0], values[-1])
    ]
    paper = claim.paper
    if paper == "n log n":
        paper += f" ({slope(sizes, [n * log2(n) for n in sizes])[0]:.2f})"
    name = f"{series.symbol}, {sizes[0]} to {sizes[-1]}"
    phase = "kept on disk" if claim.phase == "bytes" else claim.phase
    return [
        name,
        phase,
        *ends,
        f"{exponent:.2f} ± {error:.2f}",
        f"{last_step(sizes, values):.2f}",
        paper,
        claim.ours,
    ]


def _draw(series: Mapping[str, Mapping[str, Any]], figure: Any) -> None:
    axes = figure.subplots(2, 3).flatten()
    for axis, (name, measured) in zip(axes, series.items(), strict=False):
        sizes = measured["sizes"]
        for i, phase in enumerate(PHASES):
            style = {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": LINES[i]}
            axis.plot(
                sizes, measured["seconds"][phase], label=phase, markersize=4, linewidth=1.2, **style
            )
        axis.set(xscale="log", yscale="log", xlabel=SERIES[name].symbol, ylabel="seconds")
        limits = axis.get_ylim()
        for power in (1, 2):
            guide = [
                min(measured["seconds"]["forward"]) * (size / sizes[0]) ** power for size in sizes
            ]
            axis.plot(sizes, guide, color="#BBBBBB", linewidth=0.8, zorder=0)
        axis.set_ylim(limits)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    for axis in axes[len(series) :]:
        axis.axis("off")
    axes[-1].legend(*axes[0].get_legend_handles_labels(), loc="center", fontsize=9)


EXPERIMENT = Experiment(
    name="complexity",
    title="Complexity",
    question=(
        "A client round takes O(n log n + Kq) time and O(n + Kq) space; text condensation is O(K) "
        "and controlled by the budgets (Table on complexity and Thm. on end-to-end cost)."
    ),
    cells=_cells,
    render=_render,
    datasets=(),
    seeds=(),
    serial=True,
)
