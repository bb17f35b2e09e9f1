"""Tables and curves of the faithfulness study, from the analyses of its runs."""

import hashlib
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from dance_flwr.study.engine.cells import Picture, Row, Section
from dance_flwr.study.protocols.faithfulness.estimates import (
    DIFFERENCE,
    Estimate,
    caveat,
    estimates,
)
from dance_flwr.study.reports.figures import COLOURS, LINES, MARKERS
from dance_flwr.study.reports.tables import NOTHING, Group, by_label, groups, markdown

_LONGEST_NAME = 100  # characters of a figure's name
HOW = (
    "Chunks are taken out of the text bank and the whole deployed predictor runs again: plain "
    "pass, gates, chunk selection, fusion, every view of `dance.views`. Graph, edges, training "
    "labels and weights stay; where texts are pooled by agreement, so does what the neighbours' "
    "texts say of a node. y^ is the class predicted from the full text. The pool of a node is "
    "every chunk within two hops; k is the number of chunks taken, heaviest first, at most the "
    "size of the pack.\n\n"
    "- **comprehensiveness**: p(y^) lost without the pack; large = the evidence was needed\n"
    "- **sufficiency**: p(y^) lost with nothing but the pack in the pool, texts farther away "
    "stay; small = it is enough. **alone**: every other text of the client is taken out too\n"
    "- **AOPC**: the same, mean over k = 0 and the budgets of the curves (DeYoung et al. 2020)\n"
    "- **dense attention**: as many chunks of the pool, by softmax gates times softmax chunk "
    "weights of the same model, without entmax and budgets\n"
    "- **GNNExplainer** (Ying et al. 2019): as many chunks of the pool, by the mask of their node "
    "that torch-geometric optimises for the plain view, 100 steps a node, then by their weight in "
    "the node's pooled text. It explains the plain view, which has gradients, not all that is "
    "deployed\n"
    "- **random**: as many chunks of the pool, each equally likely\n"
    "- **same hops**: and as many of each hop as in the pack, so that a node's own text does not "
    "decide the comparison\n"
    "- **nothing**: the empty pool, what the graph, its labels and texts farther away give\n\n"
    "Brackets hold 95 % intervals by bootstrap: nodes are resampled within each seed, and the "
    "means of the seeds averaged (percentiles of 2000 resamples). They cover the choice of test "
    "nodes; the range of the seeds is given beside them.\n\n"
    "Every source takes as many chunks as the pack, from the same pool, and the rows *same hops* "
    "as many of each hop. What is not equal: chunks differ in length and come from more or fewer "
    "nodes (both are listed); a pack has at most B_0 + B_1 + B_2 nodes and hop 2 is preselected by "
    "difficulty, the other sources take any node; what is kept is read through the gates that "
    "chose the pack, which favours the pack in sufficiency; and the attention is that of a model "
    "trained with entmax and budgets, not of one trained with dense attention. The predictor "
    "chooses again from what is left, so redundant texts make any evidence look less necessary."
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
            found = estimates(analyses)
            parts += [_heading(title, analyses), _scores(found), _differences(found)]
            parts += [_seeds(found, len(analyses))] if len(analyses) > 1 else []
            parts += [_accuracies(found), _compactness(analyses)]
            parts.append(_picture(str(dataset), group, analyses, found))
    return Section(tuple(parts))


def _heading(title: str, analyses: Sequence[Mapping[str, Any]]) -> str:
    nodes = sum(analysis["nodes"] for analysis in analyses)
    views, draws = analyses[0]["views"], analyses[0]["draws"]
    text = f"{title}, {nodes} test nodes, views {views}, {draws} draws of random chunks."
    smoothing = sorted({analysis["smoothing"] for analysis in analyses} - {"none"})
    if smoothing:
        text += f" Measured before the run's smoothing ({', '.join(smoothing)})."
    return text + caveat(analyses)


def _sources(found: Mapping[str, Estimate]) -> dict[str, str]:
    """Return source -> its name, of the sources that were measured."""
    return {source: name for source, name in NAMES.items() if f"{source}/sufficiency" in found}


def _scores(found: Mapping[str, Estimate]) -> str:
    headings = ["chunks", *SCORE_NAMES, "class flips, removed %", "class flips, kept %"]
    lines = []
    for source, name in {**_sources(found), "none": "nothing"}.items():
        line = [name]
        for measure in SCORES:
            seen = found.get(f"{source}/{measure}")
            line.append(seen.text() if seen else NOTHING)
        for measure in ("flipped-removed", "flipped-kept"):
            seen = found.get(f"{source}/{measure}")
            line.append(f"{100 * seen.mean:.1f}" if seen else NOTHING)
        lines.append(line)
    return markdown(headings, lines)


def _differences(found: Mapping[str, Estimate]) -> str:
    lines = [
        [
            f"evidence - {name}",
            *(found[f"{DIFFERENCE}{source}/{measure}"].text(sign=True) for measure in SCORES),
        ]
        for source, name in _sources(found).items()
        if f"{DIFFERENCE}{source}/{SCORES[0]}" in found
    ]
    return "Paired by node:\n\n" + markdown(["difference", *SCORE_NAMES], lines)


def _seeds(found: Mapping[str, Estimate], runs: int) -> str:
    """Return the range of the seeds of two scores, and of their differences to the controls."""
    texts = []
    for measure in SCORES[:2]:
        own = found[f"evidence/{measure}"]
        ranges = [f"{own.least:.3f} to {own.most:.3f}"]
        for source, name in _sources(found).items():
            seen = found.get(f"{DIFFERENCE}{source}/{measure}")
            if seen is not None:
                ranges.append(f"minus {name} {seen.least:+.3f} to {seen.most:+.3f}")
        texts.append(f"{measure} {'; '.join(ranges)}")
    return f"Range of the {runs} seeds: {'. '.join(texts).capitalize()}."


def _accuracies(found: Mapping[str, Estimate]) -> str:
    def share(name: str) -> str:
        return found[name].text(scale=100, digits=1) if name in found else NOTHING

    lines = [
        [name, *(share(f"{source}/correct-{what}") for what in ("removed", "kept", "alone"))]
        for source, name in {**_sources(found), "none": "nothing"}.items()
    ]
    return f"Accuracy in percent; {share('predicted/correct')} from the full text:\n\n" + markdown(
        ["chunks", "removed", "kept in the pool", "kept alone"], lines
    )


def _compactness(analyses: Sequence[Mapping[str, Any]]) -> str:
    tables = [analysis["compactness"] for analysis in analyses]
    mean = {name: fmean(t[name] for t in tables) for name in tables[0] if name != "taken"}
    text = (
        f"Compactness, per node: {mean['neighbours']:.2f} neighbours beyond itself, "
        f"{mean['chunks']:.2f} of {mean['pool-chunks']:.1f} chunks and {mean['tokens']:.0f} of "
        f"{mean['pool-tokens']:.0f} tokens of the pool "
        f"({100 * mean['tokens'] / mean['pool-tokens']:.1f} %)."
    )
    if not all("taken" in table for table in tables):
        return text
    taken = [
        f"{name} {fmean(t['taken'][source][0] for t in tables):.0f} of "
        f"{fmean(t['taken'][source][1] for t in tables):.1f}"
        for source, name in NAMES.items()
        if all(source in t["taken"] for t in tables)
    ]
    return f"{text} Tokens and nodes that as many chunks come from: {', '.join(taken)}."


def _file_name(dataset: str, note: str) -> str:
    """Return the stem of a figure's files; a note of many settings is given by its hash."""
    place = "-".join(part for part in (dataset, *note.replace(", ", "-").split("=")) if part)
    if len(place) > _LONGEST_NAME:
        place = f"{dataset}-{hashlib.sha256(note.encode()).hexdigest()[:8]}"
    return f"faithfulness-{place}"


def _picture(
    dataset: str,
    group: Group,
    analyses: Sequence[Mapping[str, Any]],
    found: Mapping[str, Estimate],
) -> Picture:
    budgets = analyses[0]["budgets"]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, measure, title in zip(
            axes, ("deletion", "insertion"), ("removed", "kept"), strict=True
        ):
            for i, (source, name) in enumerate(_sources(found).items()):
                seen, steps = found[f"{source}/{measure}"], range(len(budgets))
                style = {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": LINES[i]}
                axis.plot(steps, seen.mean, label=name, **style)
                axis.fill_between(steps, seen.low, seen.high, color=COLOURS[i], alpha=0.15)
            axis.set(title=f"{measure}: k chunks {title}", xlabel="chunks k", xticks=list(steps))
            axis.set_xticklabels([str(budget) for budget in budgets])
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("p(y^), mean over nodes")
        axes[1].legend(fontsize=8)

    caption = (
        f"{group.name(dataset)}: probability of the predicted class while the k heaviest chunks "
        f"are removed from, or are all that is kept in, the node's two-hop pool; bands are 95 % "
        "intervals over nodes."
    )
    return Picture(_file_name(dataset, group.note), caption, draw, (8.0, 3.6))
