"""Tables and curves of the faithfulness study, from the analyses of its runs."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from dance_flwr_studies.engine.cells import Picture, Row, Section
from dance_flwr_studies.protocols.faithfulness.estimates import DIFFERENCE, Estimate, estimates
from dance_flwr_studies.reports.figures import COLOURS, style
from dance_flwr_studies.reports.significance import interval_test
from dance_flwr_studies.reports.tables import NOTHING, Group, by_label, groups, markdown
from dance_flwr_studies.reports.verdicts import Expected, verdict

_FEWEST = 5  # seeds that a comparison needs
HOW = (
    "Chunks are taken out of the text bank and the whole deployed predictor runs again; graph, "
    "edges, training labels and weights stay. y^ is the class predicted from the full text. The "
    "pool of a node is every chunk within two hops.\n\n- **comprehensiveness**: p(y^) lost without "
    "the pack; large = it was needed\n- **sufficiency**: p(y^) lost with nothing but the "
    "pack in the pool; small = it is enough\n- **dense attention**: as many chunks of the pool, by "
    "softmax gates times softmax chunk weights of the same model\n- **GNNExplainer** (Ying et al. "
    "2019): as many chunks, by the mask of their node for the plain view, 100 steps, then by "
    "their weight in the node's text; not of all that is deployed\n- **random**: as many chunks, "
    "each equally likely; **same hops**: and as many of each hop as in the pack, so that a node's "
    "own text does not decide the comparison\n- **nothing**: the empty pool, what the graph, its "
    "labels and texts farther away give\n\nBrackets: 95 % intervals by bootstrap over test nodes "
    "within each seed. Differences are evidence minus the source, paired by node. Not equal "
    "between sources: chunks differ in length, and what is kept is read through the gates that "
    "chose the pack, which favours it in sufficiency. The predictor chooses again from what is "
    "left, so redundant texts make any evidence look less necessary."
)
NAMES = {
    "evidence": "evidence pack",
    "attention-by-hop": "dense attention, same hops",
    "attention": "dense attention",
    "gnn-explainer-by-hop": "GNNExplainer, same hops",
    "gnn-explainer": "GNNExplainer",
    "random-by-hop": "random, same hops",
    "random": "random",
}
SCORES = {"comprehensiveness": "comprehensiveness ↑", "sufficiency": "sufficiency ↓"}


def render(rows: Sequence[Row]) -> Section:
    """Return scores with paired differences, compactness and curves per data set."""
    parts: list[str | Picture] = [HOW]
    for dataset, group, analyses in _analysed(rows):
        title = f"**{group.name(dataset)}**: {len(analyses)} of {len(group.rows)} runs"
        if not analyses:
            parts.append(f"{title}; nothing to show yet.")
            continue
        means = estimates(analyses)
        parts += [_heading(title, analyses), _scores(means), _compactness(analyses)]
        parts.append(_picture(dataset, group, analyses, means))
    return Section(tuple(parts))


def _analysed(rows: Sequence[Row]) -> Iterator[tuple[str, Group, list[Mapping[str, Any]]]]:
    """Yield data set, group and analyses, one data set after the other."""
    for dataset, compared in by_label(groups(rows), "dataset").items():
        for group in compared:
            yield str(dataset), group, [row.analysis for row in group.rows if row.analysis]


def verdict_of(rows: Sequence[Row]) -> str:
    """Compare the evidence with equally many random chunks, kept and removed."""
    expected: list[Expected] = []
    for dataset, group, analyses in _analysed(rows):
        means = estimates(analyses) if analyses else {}
        for measure, sign in (("comprehensiveness", 1), ("sufficiency", -1)):
            if found := means.get(f"{DIFFERENCE}random/{measure}"):
                side = "random chunks minus evidence" if sign < 0 else "evidence minus random"
                what = f"{measure} of {side} on {group.name(dataset)}"
                ends = sorted(float(sign * end) for end in (found.low, found.high))
                test = interval_test(sign * float(found.mean), (ends[0], ends[1]))
                expected.append(Expected(what, test, unit="of p", scale=1.0))
    return verdict(expected)


def _heading(title: str, analyses: Sequence[Mapping[str, Any]]) -> str:
    nodes = sum(analysis["nodes"] for analysis in analyses)
    views, draws = analyses[0]["views"], analyses[0]["draws"]
    text = f"{title}, {nodes} test nodes, views {views}, {draws} draws of random chunks."
    smoothing = sorted({analysis["smoothing"] for analysis in analyses} - {"none"})
    if smoothing:
        text += f" Measured before the run's smoothing ({', '.join(smoothing)})."
    if len(analyses) < _FEWEST:
        text += f" Fewer than {_FEWEST} seeds: the intervals say little about other seeds."
    return text


def _sources(means: Mapping[str, Estimate]) -> dict[str, str]:
    return {source: name for source, name in NAMES.items() if f"{source}/sufficiency" in means}


def _scores(means: Mapping[str, Estimate]) -> str:
    def score(name: str, sign: bool = False) -> str:
        return means[name].text(sign=sign) if name in means else NOTHING

    def percent(name: str) -> str:
        return f"{100 * means[name].mean:.1f}" if name in means else NOTHING

    lines = []
    for source, name in {**_sources(means), "none": "nothing"}.items():
        line = [name, *(score(f"{source}/{measure}") for measure in SCORES)]
        line += [score(f"{DIFFERENCE}{source}/{measure}", sign=True) for measure in SCORES]
        lines.append(
            [*line, *(percent(f"{source}/correct-{what}") for what in ("removed", "kept"))]
        )
    headings = ["chunks", *SCORES.values(), "evidence minus it", "evidence minus it"]
    table = markdown([*headings, "accuracy % removed", "kept"], lines)
    return f"Accuracy from the full text: {percent('predicted/correct')} %.\n\n{table}"


def _compactness(analyses: Sequence[Mapping[str, Any]]) -> str:
    tables = [analysis["compactness"] for analysis in analyses]
    mean = {name: fmean(t[name] for t in tables) for name in tables[0] if name != "taken"}
    return (
        f"Compactness, per node: {mean['neighbours']:.2f} neighbours beyond itself, "
        f"{mean['chunks']:.2f} of {mean['pool-chunks']:.1f} chunks and {mean['tokens']:.0f} of "
        f"{mean['pool-tokens']:.0f} tokens of the pool "
        f"({100 * mean['tokens'] / mean['pool-tokens']:.1f} %)."
    )


def _picture(
    dataset: str,
    group: Group,
    analyses: Sequence[Mapping[str, Any]],
    means: Mapping[str, Estimate],
) -> Picture:
    budgets = analyses[0]["budgets"]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, measure, title in zip(
            axes, ("deletion", "insertion"), ("removed", "kept"), strict=True
        ):
            for i, (source, name) in enumerate(_sources(means).items()):
                seen, steps = means[f"{source}/{measure}"], range(len(budgets))
                axis.plot(steps, seen.mean, label=name, **style(i))
                axis.fill_between(steps, seen.low, seen.high, color=COLOURS[i], alpha=0.15)
            axis.set(title=f"{measure}: k chunks {title}", xlabel="chunks k", xticks=list(steps))
            axis.set_xticklabels([str(budget) for budget in budgets])
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("p(y^), mean over nodes")
        axes[1].legend(fontsize=8)

    caption = f"{group.name(dataset)}: p(y^) without, or with nothing but, the k heaviest chunks."
    note = f"-{hashlib.sha256(group.note.encode()).hexdigest()[:8]}" if group.note else ""
    return Picture(f"faithfulness-{dataset}{note}", caption, draw, (8.0, 3.6))
