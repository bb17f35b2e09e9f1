"""Render evidence packs as text, in the words of docs/glossary.md."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.sections import ALONE, TUNED
from dance_flwr.dance.inference import DEPLOYED
from dance_flwr.data.edge_spans import EdgeSpans
from dance_flwr.escaping import escaped, one_line
from dance_flwr.evidence.account import GRAPH, LABELS, START, TEXT, account, log_odds
from dance_flwr.evidence.pack import FUSED, OWN, PERSONAL, SMOOTHED, Packs
from dance_flwr.evidence.summaries.summary import Sentence, Span, lines_of, quote, spans_of

# Stage -> its name for readers.
READINGS = {
    "plain": "all texts and edges, none marked",
    "core": "the marked evidence as a small graph",
    FUSED: "the marked text and the neighbours",
    DEPLOYED: "the answer",
    SMOOTHED: "the answer, smoothed over neighbours",
    ALONE: "the client's own model, which reads all texts and edges",
    TUNED: "the answer, trained on at this client; its evidence is not shown",
    PERSONAL: "the answer, with the client's own model",
}
TOGETHER = (DEPLOYED, SMOOTHED, *OWN, PERSONAL)  # no views of the global model
HOP_NAMES = ("the node itself", "neighbour", "neighbour of a neighbour")
# Kind of a step of an account -> what it is for readers; steps "text" name their node.
STEPS = {
    START: "class sizes",
    LABELS: "neighbours' labels",
    GRAPH: "texts around it, unmarked",
    DEPLOYED: "the unmarked readings",
    SMOOTHED: "smoothing over neighbours",
    PERSONAL: "the client's own model",
}
_MAX_EDGES = 3  # named for a span; the chunk of a hub holds the texts of many


def render(
    data: ClientData, packs: Packs, row: int, summary: Sequence[Sentence] | None = None
) -> str:
    """Return one pack of a client as text, see `pack_text`."""
    names, client = data.card.class_names, data.card.client
    return pack_text(packs, row, data.ids(), data.texts(), names, summary, data.edge_spans, client)


def pack_text(
    packs: Packs,
    row: int,
    ids: Sequence[str],
    texts: Sequence[str],
    class_names: Sequence[str],
    summary: Sequence[Sentence] | None = None,
    edges: EdgeSpans | None = None,
    client: int = 0,
) -> str:
    """Return one pack as text.

    The text shows the deployed prediction, each view, the contributions of graph, text and labels,
    a summary, the gates by hop, and every source text with its spans in ⟦ ⟧. The summary cites the
    numbers [k] of spans.

    Parameters
    ----------
    ids, texts, class_names : of all nodes, and of the classes
    summary : summary of this pack; None = the extractive one
    edges : positions of edge texts in node texts; None without edge texts
    client : number of the client
    """
    near = packs.neighbours_of(row)
    spans: dict[int, list[Span]] = defaultdict(list)
    for span in (selected := spans_of(packs, row, texts)):
        spans[span.node].append(span)
    if summary is None:
        summary = quote(selected)
    notes = {
        span.number: edge_note(edges, span.node, (span.start, span.end), ids) for span in selected
    }
    # Why (decision 22): names of classes come with the data, as texts do.
    names = [one_line(name, marks=True) for name in class_names]
    lines = [
        f"Evidence of node {_name(ids[packs.nodes[row]])}, client {client}, round {packs.round}",
        f"model       {packs.model_id}",
        *_answer(packs, row, names),
        *_sum(packs, row, names, ids),
        f"summary     {f'{chr(10)}            '.join(lines_of(summary))}".rstrip(),
        "",
        "source texts, with marked passages as ⟦[k] importance: text⟧",
    ]
    best, rival = int(packs.predicted[row]), int(packs.rival[row])
    for at in range(near.start, near.stop):
        node, label = int(packs.neighbours[at]), int(packs.neighbour_labels[at])
        logits, gate = packs.neighbour_label_logits[at], packs.neighbour_weights[at]
        effect = logits[best] - logits[rival]
        note = f", training label {names[label]} ({effect:+.2f})" if label >= 0 else ""
        hop = HOP_NAMES[packs.neighbour_hops[at]]
        lines += [
            "",
            f"{hop}, importance {gate:.3f}: {_name(ids[node])}{note}",
            _marked(texts[node], spans[node], notes),
        ]
    return "\n".join(lines) + "\n"


def _answer(packs: Packs, row: int, names: Sequence[str]) -> list[str]:
    probs = {stage: packs.probs[at, row] for at, stage in enumerate(packs.stages)}

    def shown(stage: str) -> str:
        best = int(probs[stage].argmax())
        return f"{names[best]} ({probs[stage][best]:.3f})"

    if PERSONAL in probs:
        shared = SMOOTHED if SMOOTHED in probs else DEPLOYED
        kind = next(stage for stage in OWN if stage in probs)
        parts = [f"{packs.own_share:.1f} of {shown(kind)} by this client's own model ({kind})"]
        parts += [f"{1 - packs.own_share:.1f} of {shown(shared)} by the global model"]
        lines = [f"answer      {shown(PERSONAL)}: {parts[0]},", f"            {parts[1]}"]
    elif SMOOTHED in probs:
        lines = [f"answer      {shown(SMOOTHED)}, smoothed over neighbours"]
        lines += [f"            {shown(DEPLOYED)} before smoothing"]
    elif DEPLOYED in probs:
        lines = [f"answer      {shown(DEPLOYED)}"]
    else:
        lines = [f"answer      {shown(FUSED)} by the evidence alone"]
        lines += ["            the deployed one is known at the end of the run"]
    for stage in packs.stages:
        if stage not in TOGETHER:
            note = "" if stage in packs.views else ", not part of the answer"
            lines.append(f"reading     {READINGS[stage]}: {shown(stage)}{note}")
    return [*lines, *(["            the readings disagree"] if packs.disagree[row] else [])]


def _sum(packs: Packs, row: int, names: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Return the account of the predicted class against the second one, a step a line."""
    steps, (best, rival) = account(packs, row), (packs.predicted[row], packs.rival[row])
    odds = log_odds(steps, int(best), int(rival))
    classes = f"{names[best]} against {names[rival]}"
    lines = [f"account     {classes}: {sum(odds):+.2f}, the sum of"]
    for step, value in zip(steps, odds, strict=True):
        if not value:
            continue  # it contributed nothing
        what = STEPS.get(step.kind, "its own text")
        if step.kind == TEXT and step.node != packs.nodes[row]:
            what = f"text of {_name(ids[step.node])}"
        lines.append(f"            {value:+6.2f}  {what}")
    return lines


def edge_note(edges: EdgeSpans | None, node: int, span: tuple[int, int], ids: Sequence[str]) -> str:
    """Return the edges that a span comes from, such as "from the edge to 'X'"; "" if none.

    Parameters
    ----------
    span : (start, end), characters of the text of `node`
    """
    others = edges.others_in(node, *span) if edges else []
    if not others:
        return ""
    names = [_name(ids[other]) for other in others[:_MAX_EDGES]]
    more = f" and {len(others) - _MAX_EDGES:,} more" if len(others) > _MAX_EDGES else ""
    return f"from the edge{'s' if len(others) > 1 else ''} to {', '.join(names)}{more}"


def _name(node: str) -> str:
    # Why (decision 22): ids come from strangers, as texts do.
    return escaped(repr(node), marks=True)


def _marked(text: str, spans: Sequence[Span], notes: Mapping[int, str]) -> str:
    # Why (decision 22): texts come from strangers. Marks and control characters are escaped, and
    # every line has a prefix, so that no text can pretend to be evidence.
    parts, at = [], 0
    for span in sorted(spans, key=lambda span: span.start):
        parts += [escaped(text[at : span.start], marks=True)]
        note = f", {notes[span.number]}" if notes.get(span.number) else ""
        parts += [f"⟦[{span.number}] {span.weight:.3f}{note}: {escaped(span.text, marks=True)}⟧"]
        at = span.end
    whole = "".join([*parts, escaped(text[at:], marks=True)])
    return "\n".join(f"| {line}" if line else "|" for line in whole.split("\n"))


def example_row(packs: Packs) -> int:
    """Return the row of the most confident pack, among those with a neighbour if there is one."""
    # Confidence is at most 1, so adding 1 ranks all packs with a neighbour first.
    return int(np.argmax(packs.confidence + (np.diff(packs.neighbour_ptr) > 1)))
