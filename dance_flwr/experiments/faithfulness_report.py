"""Tables and curves of the faithfulness study, from the analyses of its runs."""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from operator import itemgetter
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student

from dance_flwr.experiments.cells import Picture, Row, Section
from dance_flwr.experiments.figures import COLOURS, LINES, MARKERS
from dance_flwr.experiments.tables import NOTHING, Group, by_label, groups, markdown

Interval = tuple[float, float, float]

HOW = (
    "Chunks are taken out of the text bank and the whole deployed predictor runs again: plain "
    "pass, gates, chunk selection, fusion, every view of `dance.views`. Graph, edges and weights "
    "stay. y^ is the class predicted from the full text. The pool of a node is every chunk within "
    "two hops; k is the number of chunks taken, heaviest first, at most the size of the pack.\n\n"
    "- **comprehensiveness**: p(y^) lost without the pack; large = the evidence was needed\n"
    "- **sufficiency**: p(y^) lost with nothing but the pack in the pool, texts farther away "
    "stay; small = it is enough. **alone**: every other text of the client is taken out too\n"
    "- **AOPC**: the same, mean over k = 0 and the budgets of the curves (DeYoung et al. 2020)\n"
    "- **dense attention**: as many chunks of the pool, by softmax gates times softmax chunk "
    "weights of the same model, without entmax and budgets\n"
    "- **random**: as many chunks of the pool, each equally likely; **same hops**: and as many of "
    "each hop as in the pack, so that a node's own text does not decide the comparison\n"
    "- **nothing**: the empty pool, what the graph and texts farther away give\n\n"
    "The predictor chooses again from what is left, so redundant texts make any evidence look "
    "less necessary. Brackets hold 95 % intervals: over the means of the runs (Student's t), or "
    "over nodes (bootstrap) for a single run."
)
NAMES = {
    "evidence": "evidence pack",
    "attention": "dense attention",
    "random-by-hop": "random, same hops",
    "random": "random",
}
SCORES = (
    "comprehensiveness",
    "sufficiency",
    "sufficiency-alone",
    "aopc-comprehensiveness",
    "aopc-sufficiency",
)
SCORE_NAMES = (
    "comprehensiveness ↑",
    "sufficiency ↓",
    "sufficiency, alone ↓",
    "AOPC compr. ↑",
    "AOPC suff. ↓",
)


def render(rows: Sequence[Row]) -> Section:
    """Return scores, paired differences, accuracies, compactness and curves per data set."""
    parts: list[str | Picture] = [HOW]
    for dataset, compared in by_label(groups(rows), "dataset").items():
        for group in compared:
            analyses = [row.analysis for row in group.rows if row.analysis]
            title = f"**{group.name(str(dataset))}**: {len(analyses)} of {len(group.rows)} runs"
            if not analyses:
                parts.append(f"{title}; nothing to show yet.")
                continue
            parts += [
                _heading(title, analyses),
                _scores(analyses),
                _differences(analyses),
                _accuracies(analyses),
            ]
            parts += [_compactness(analyses), _picture(str(dataset), group, analyses)]
    return Section(tuple(parts))


def over_runs(intervals: Sequence[Sequence[float]]) -> Interval:
    """Return (mean, low, high) of the runs' [mean, low, high].

    One run keeps its own interval. Several give mean ± t_{0.975, S-1} s / sqrt(S) of their means,
    which covers the variation over nodes and over seeds.
    """
    means = [interval[0] for interval in intervals]
    if len(means) == 1:
        return means[0], intervals[0][1], intervals[0][2]
    half = float(student.ppf(0.975, len(means) - 1)) * stdev(means) / sqrt(len(means))
    return fmean(means), fmean(means) - half, fmean(means) + half


def _heading(title: str, analyses: Sequence[Mapping[str, Any]]) -> str:
    nodes = sum(analysis["nodes"] for analysis in analyses)
    views, draws = analyses[0]["views"], analyses[0]["draws"]
    text = f"{title}, {nodes} test nodes, views {views}, {draws} draws of random chunks."
    smoothing = sorted({analysis["smoothing"] for analysis in analyses} - {"none"})
    if not smoothing:
        return text
    return f"{text} Measured before the run's smoothing ({', '.join(smoothing)})."


def _interval_text(interval: Interval, sign: bool = False) -> str:
    plus = "+" if sign else ""
    return f"{interval[0]:{plus}.3f} [{interval[1]:{plus}.3f}, {interval[2]:{plus}.3f}]"


def _scores(analyses: Sequence[Mapping[str, Any]]) -> str:
    headings = ["chunks", *SCORE_NAMES, "class flips, removed %", "class flips, kept %"]
    measures = (*SCORES, "flipped-removed", "flipped-kept")
    lines = []
    for source, name in (*NAMES.items(), ("none", "nothing")):
        line = [name]
        for measure in measures:
            seen = [analysis["means"][source].get(measure) for analysis in analyses]
            if None in seen:
                line.append(NOTHING)
            elif measure.startswith("flipped"):
                line.append(f"{100 * over_runs(seen)[0]:.1f}")
            else:
                line.append(_interval_text(over_runs(seen)))
        lines.append(line)
    return markdown(headings, lines)


def _differences(analyses: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for source in (name for name in NAMES if name != "evidence"):
        pairs = [
            over_runs([analysis["differences"][source][measure] for analysis in analyses])
            for measure in SCORES
        ]
        lines.append(
            [f"evidence - {NAMES[source]}", *(_interval_text(pair, sign=True) for pair in pairs)]
        )
    return "Paired by node:\n\n" + markdown(["difference", *SCORE_NAMES], lines)


def _accuracies(analyses: Sequence[Mapping[str, Any]]) -> str:
    def share(read: Callable[[Mapping[str, Any]], float]) -> str:
        return f"{100 * fmean(read(analysis['accuracy']) for analysis in analyses):.1f}"

    full, bare, textless = (share(itemgetter(key)) for key in ("full", "bare", "textless"))
    lines = []
    for source, name in NAMES.items():
        removed = share(lambda a, s=source: a[s]["removed"][-1])  # type: ignore[misc]
        kept = share(lambda a, s=source: a[s]["kept"][-1])  # type: ignore[misc]
        lines.append([name, removed, kept, share(lambda a, s=source: a[s]["alone"])])  # type: ignore[misc]
    lines.append(["nothing", NOTHING, bare, textless])
    return f"Accuracy in percent; {full} from the full text:\n\n" + markdown(
        ["chunks", "removed", "kept in the pool", "kept alone"], lines
    )


def _compactness(analyses: Sequence[Mapping[str, Any]]) -> str:
    mean = {
        name: fmean(a["compactness"][name] for a in analyses) for name in analyses[0]["compactness"]
    }
    return (
        f"Compactness, per node: {mean['neighbours']:.2f} neighbours beyond itself, "
        f"{mean['chunks']:.2f} of {mean['pool-chunks']:.1f} chunks and {mean['tokens']:.0f} of "
        f"{mean['pool-tokens']:.0f} tokens of the pool "
        f"({100 * mean['tokens'] / mean['pool-tokens']:.1f} %)."
    )


def _picture(dataset: str, group: Group, analyses: Sequence[Mapping[str, Any]]) -> Picture:
    budgets = analyses[0]["budgets"]
    same = [analysis for analysis in analyses if analysis["budgets"] == budgets]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, measure, title in zip(
            axes, ("deletion", "insertion"), ("removed", "kept"), strict=True
        ):
            for i, (source, name) in enumerate(NAMES.items()):
                steps = range(len(budgets))
                curve = [
                    over_runs([a["means"][source][measure][step] for a in same]) for step in steps
                ]
                style = {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": LINES[i]}
                axis.plot(steps, [c[0] for c in curve], label=name, **style)
                axis.fill_between(
                    steps,
                    [c[1] for c in curve],
                    [c[2] for c in curve],
                    color=COLOURS[i],
                    alpha=0.15,
                )
            axis.set(title=f"{measure}: k chunks {title}", xlabel="chunks k", xticks=list(steps))
            axis.set_xticklabels([str(budget) for budget in budgets])
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("p(y^), mean over nodes")
        axes[1].legend(fontsize=8)

    place = "-".join(part for part in (dataset, *group.note.replace(", ", "-").split("=")) if part)
    caption = (
        f"{group.name(dataset)}: probability of the predicted class while the k heaviest chunks "
        "are removed from, or are all that is kept in, the node's two-hop pool; bands are 95 % "
        "intervals."
    )
    return Picture(f"faithfulness-{place}", caption, draw, (8.0, 3.6))
