"""Charts of an evidence pack, each with a table of its numbers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dance_flwr.config.sections import ALONE, TUNED
from dance_flwr.dance.inference import DEPLOYED
from dance_flwr.evidence.metrics.leave_out import ChunkEffects
from dance_flwr.evidence.pack import FUSED, OWN, PARTS, PERSONAL, SMOOTHED, Packs
from dance_flwr.pages.drawing import Bar, bars

_MAX_CLASSES = 5  # in a chart of probabilities
_STAGE_NOTES = {
    FUSED: "rests on the evidence alone",
    DEPLOYED: "what the model says",
    SMOOTHED: "what the model says, after smoothing on the client",
    ALONE: "what the client's own model says, which reads texts and edges without choosing",
    TUNED: "what the global model says once trained on at this client; its evidence is not shown",
    PERSONAL: "what the client deploys, a mixture of its own model with the global one",
}
_TOGETHER = (DEPLOYED, SMOOTHED, *OWN, PERSONAL)  # no views of the global model
_SEE_TABLE = "; the table below has the numbers"


def stage_chart(packs: Packs, row: int, names: Sequence[str], label: int) -> dict[str, Any]:
    """Return the probabilities of the classes that matter, by view and as deployed.

    Parameters
    ----------
    names : of the classes, safe to print
    label : class of the node, -1 = unknown
    """
    probs = packs.probs[:, row]
    # The two that log-odds compare, what any view predicts, and the label.
    classes = [int(packs.predicted[row]), int(packs.rival[row])]
    classes += map(int, probs.argmax(axis=1))
    classes += [label] if label >= 0 else []
    listed = list(dict.fromkeys(classes))
    for other in np.argsort(-packs.decisive[row], kind="stable"):
        if len(listed) < min(_MAX_CLASSES, len(names)) and int(other) not in listed:
            listed.append(int(other))
    drawn, table = [], []
    for at, stage in enumerate(packs.stages):
        note = _STAGE_NOTES.get(stage) or "reads texts and edges without choosing"
        used = stage in packs.views or stage in _TOGETHER
        heading = f"{stage}: {note}{'' if used else '; not deployed'}"
        best = int(probs[at].argmax())
        for k in listed:
            marks = ["predicted"] if k == best else []
            marks += ["label"] if k == label else []
            value = f"{probs[at, k]:.3f}{' ' + ' and '.join(marks) if marks else ''}"
            kind = "best" if k == best else "other"
            drawn.append(Bar(names[k], float(probs[at, k]), value, kind, heading))
            heading = ""
        table.append([stage, *(f"{probs[at, k]:.4f}" for k in listed)])
    title = f"Probabilities of {len(listed)} of {len(names)} classes"
    return {
        "drawing": bars(f"{title}{_SEE_TABLE}", drawn, 1.0),
        "caption": f"{title}, by view",
        "head": ["view", *(names[k] for k in listed)],
        "rows": table,
    }


def part_chart(
    packs: Packs, row: int, names: Sequence[str], articles: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what graph, text and labels gave to the fused view, and each labelled neighbour.

    Parameters
    ----------
    names : of the classes, safe to print
    articles : the evidence nodes on the page
    """
    values = dict(zip(PARTS, map(float, packs.parts[row]), strict=True))
    against = f"{names[packs.predicted[row]]} against {names[packs.rival[row]]}"
    drawn = [
        # `z`: what rounds to zero has no minus sign.
        Bar(name, value, f"{value:+z.2f}", "part" if name != "labels" else "part label")
        for name, value in values.items()
    ]
    labelled = [(article, float(article["effect"])) for article in articles if article["label"]]
    drawn += [
        Bar(
            f"text {article['number']}: {article['label']}",
            effect,
            f"{effect:+z.2f}",
            "part label",
            "training labels of neighbours, which add up to “labels”" if first == 0 else "",
            article["number"],
        )
        for first, (article, effect) in enumerate(labelled)
    ]
    rows = [[name, f"{value:+z.4f}"] for name, value in values.items()]
    rows += [
        [f"label of text {article['number']}, {article['label']}", f"{effect:+z.4f}"]
        for article, effect in labelled
    ]
    title = f"Log-odds of {against} in the fused view, {sum(values.values()):+z.2f}, by part"
    return {
        "drawing": bars(f"{title}{_SEE_TABLE}", drawn),
        "caption": title,
        "head": ["part", "log-odds"],
        "rows": rows,
    }


def effect_chart(
    packs: Packs, effects: ChunkEffects, row: int, article_of: Mapping[int, int]
) -> dict[str, Any] | None:
    """Return the effect of leaving out each chunk beside its weight; None = not computed.

    Parameters
    ----------
    article_of : node -> number of its text on the page
    """
    if not effects.done[row]:
        return None
    first = int(packs.chunk_ptr[row])
    drawn, rows, controls = [], [], 0
    by_kind: dict[bool, list[float]] = {True: [], False: []}
    for rank, case in enumerate(effects.of(row), start=1):
        hop, effect = int(effects.hop[case]), float(effects.effect[case])
        turned = bool(effects.turned[case])
        selected = bool(effects.selected[case])
        by_kind[selected].append(effect)
        value = f"effect {effect:+z.3f}{', another class' if turned else ''}"
        if selected:
            at = first + rank - 1
            weight = f"{packs.chunk_weights[at]:.3f}"
            text = article_of.get(int(packs.chunk_nodes[at]), 0)
            name, share = f"[{rank}] text {text}, hop {hop}", float(packs.chunk_weights[at])
            drawn.append(Bar(name, share, f"weight {weight}", "weight", article=text))
            drawn.append(Bar("", effect, value, "effect", article=text))
            rows.append(
                [f"[{rank}]", str(text), str(hop), weight, f"{effect:+z.4f}", _word(turned)]
            )
            continue
        heading = "controls: chunks of the same hop, drawn at random, not selected"
        drawn.append(
            Bar(f"control, hop {hop}", effect, value, "control", "" if controls else heading)
        )
        controls += 1
        rows.append(["control", "", str(hop), "not selected", f"{effect:+z.4f}", _word(turned)])
    # Leaving out any chunk has some effect, so a number needs a control.
    means = {kind: float(np.mean(values)) for kind, values in by_kind.items() if values}
    summary = f"Mean effect of a selected chunk {means.get(True, 0.0):+z.4f}"
    summary += (
        f", of {controls} random chunks of the same hops {means[False]:+z.4f}."
        if controls
        else "; the hops have no other chunks to draw as a control."
    )
    title = "Effect of leaving out one chunk, as the model predicts again"
    return {
        "drawing": bars(f"{title}{_SEE_TABLE}", drawn),
        "caption": f"{title}: how much the probability of the predicted class falls",
        "head": ["chunk", "text", "hop", "weight", "effect", "another class then"],
        "rows": rows,
        "said": summary,
    }


def _word(turned: bool) -> str:
    return "yes" if turned else "no"


@dataclass(frozen=True)
class Appearance:
    """A pack of a node in one round.

    Attributes
    ----------
    round : of the pack; predicted, confidence : of its last stage
    neighbours, chunks : how many it selected, the node itself not counted
    shared : share of its weight on chunks that the pack on the page selects too
    """

    round: int
    predicted: int
    confidence: float
    neighbours: int
    chunks: int
    shared: float


def appearances(files: Iterable[Path], packs: Packs) -> Mapping[int, Sequence[Appearance]]:
    """Return the packs of the same nodes in other rounds, by node, in the order of the files."""
    chunks_of = {int(v): packs.chunks[packs.chunks_of(row)] for row, v in enumerate(packs.nodes)}
    result: dict[int, list[Appearance]] = {}
    for path in files:
        then = Packs.load(path)
        for row in np.flatnonzero(np.isin(then.nodes, packs.nodes)).tolist():
            node = int(then.nodes[row])
            chunks, near = then.chunks_of(row), then.neighbours_of(row)
            weights = then.chunk_weights[chunks]
            same = np.isin(then.chunks[chunks], chunks_of[node])
            total = float(weights.sum())
            result.setdefault(node, []).append(
                Appearance(
                    round=then.round,
                    predicted=int(then.predicted[row]),
                    confidence=float(then.confidence[row]),
                    neighbours=int((then.neighbour_hops[near] > 0).sum()),
                    chunks=len(weights),
                    shared=float(weights[same].sum()) / total if total else 0.0,
                )
            )
    return result


def round_chart(packs: Sequence[Appearance], names: Sequence[str]) -> dict[str, Any] | None:
    """Return a node's packs by round; None = the run has no pack of an earlier round.

    Parameters
    ----------
    names : of the classes, safe to print
    """
    if not packs:
        return None
    title = "Share of each round's evidence that the pack on this page selects too"
    drawn = [
        Bar(
            f"round {a.round}: {names[a.predicted]}",
            a.shared,
            f"{a.shared:.2f}, predicted with {a.confidence:.3f}",
            "round",
        )
        for a in packs
    ]
    rows = [
        [
            *(str(a.round), names[a.predicted], f"{a.confidence:.4f}"),
            *(str(a.neighbours), str(a.chunks), f"{a.shared:.3f}"),
        ]
        for a in packs
    ]
    return {
        "drawing": bars(f"{title}{_SEE_TABLE}", drawn, 1.0),
        "caption": title,
        "head": ["round", "predicted", "probability", "neighbours", "chunks", "same evidence"],
        "rows": rows,
    }
