"""One evidence pack as the page shows it: answer, effects and texts."""

import json
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.dance.inference import DEPLOYED
from dance_flwr.dance.selection import HOPS, Selection
from dance_flwr.data.edge_spans import EdgeSpans
from dance_flwr.errors import counted
from dance_flwr.escaping import one_line
from dance_flwr.evidence.account import TEXT, account
from dance_flwr.evidence.json_lines import evidence_lines
from dance_flwr.evidence.leave_out import Effects
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import HOP_NAMES, READINGS, STEPS, TOGETHER, edge_note

LOW_MARGIN = 0.2  # a lead over the second class below this is "barely"
# Effects below this count as none, in log-odds: 0.05 turns 50 % into 51 %.
NO_EFFECT = 0.05
PARTS_OF_ONE = 1000  # steps of an account are whole numbers of such parts of a log-odd
_CLEAR_LEAD = 0.5  # then the second class has less than a quarter
_NEIGHBOURS = ("", "neighbours", "neighbours of neighbours")  # the plurals of HOP_NAMES
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_USUAL = dict.fromkeys(map(ord, "\n\t"))
_MAX_CLASSES = 5  # in a table of probabilities
_MAX_UNUSED = 36  # candidates listed per hop
_BANDS = (0.0, 0.5, 0.7, 0.9)  # of probabilities of the predicted class, each up to the next
_MIN_CHECKED = 20  # validation nodes of a band, to say how often it is right
_STRONG, _FAIR = 0.9, 0.7  # ratio of right answers in a band


def share(probability: float) -> str:
    """Return a probability in percent, but never 0 % or 100 %, as no model is certain.

    Examples
    --------
    >>> share(0.414), share(0.9991)
    ('41 %', 'over 99 %')
    """
    if probability < 0.005:
        return "under 1 %"
    return "over 99 %" if probability >= 0.995 else f"{100 * probability:.0f} %"


def signed(effect: float) -> str:
    """Return an effect with a sign and two decimals; the minus is as wide as the plus."""
    return f"{effect:+z.2f}".replace("-", "\u2212")


@dataclass(frozen=True)
class Reliability:
    """How often answers of a probability were right, on nodes that were not trained on.

    Attributes
    ----------
    right, checked : number of nodes by band of probabilities, from low to high
    """

    right: tuple[int, ...]
    checked: tuple[int, ...]

    @classmethod
    def of(cls, confidence: NDArray[np.float32], right: NDArray[np.bool_]) -> "Reliability":
        """Count right answers by band; confidence [m] is that of the predicted class."""
        band, size = np.digitize(confidence, _BANDS) - 1, len(_BANDS)
        counts = (np.bincount(band[of], minlength=size) for of in (right, slice(None)))
        return cls(*(tuple(map(int, count)) for count in counts))

    def advice(self, confidence: float, disagree: bool) -> str:
        """Return how far to trust an answer, and by what.

        Examples
        --------
        >>> Reliability((0, 30, 0, 0), (0, 50, 0, 19)).advice(0.6, True)
        'Weak: 60 % of 50 validation nodes with 50 to 70 % were answered rightly, \
and the readings disagree. Do not rely on this answer alone.'
        """
        band = int(np.digitize(confidence, _BANDS)) - 1
        upper = (*_BANDS[1:], 1.0)[band]
        checked = self.checked[band]
        nodes = counted(checked, "validation node") if checked else "no validation nodes"
        among = f"{nodes} with {100 * _BANDS[band]:.0f} to {100 * upper:.0f} %"
        split = ", and the readings disagree" if disagree else ""
        if checked < _MIN_CHECKED:
            return f"Not known: {'only ' if checked else ''}{among}{split}. Check it by hand."
        ratio = self.right[band] / checked
        word = "Strong" if ratio >= _STRONG else "Fair" if ratio >= _FAIR else "Weak"
        line = f"{word}: {share(ratio)} of {among} were answered rightly"
        weak = word == "Weak" or disagree
        return f"{line}{split}.{' Do not rely on this answer alone.' if weak else ''}"


def answer(
    packs: Packs, effects: Effects, row: int, names: Sequence[str], label: int
) -> dict[str, Any]:
    """Return sentences: the model's answer, the label, and the control.

    Parameters
    ----------
    names : names of the classes, safe to print
    label : class of the node, -1 = unknown
    """
    best, rival = int(packs.predicted[row]), int(packs.rival[row])
    says = f"The model says {names[best]}, {share(packs.decisive[row, best])}"
    # With one class there is no second.
    if rival != best:
        lead = float(packs.decisive[row, best] - packs.decisive[row, rival])
        how = "barely " if lead < LOW_MARGIN else "" if lead < _CLEAR_LEAD else "far "
        says += f", {how}before {names[rival]}, {share(packs.decisive[row, rival])}"
    of_label = "No label is known."
    if label >= 0:
        other = f"The label is another class, {names[label]}."
        of_label = "The label is the same." if label == best else other
    return {
        "says": f"{says}.",
        "wrong": label >= 0 and label != best,
        "label": of_label,
        "control": _control(packs, effects, row),
    }


def _control(packs: Packs, effects: Effects, row: int) -> str:
    if not packs.chunk_ptr[row + 1] - packs.chunk_ptr[row]:
        return "No text is marked, so none can be left out."
    if not effects.done[row]:
        return (
            "What the answer is without the marked text was not computed, for the time it takes; "
            "a page that names this node first with --nodes has it."
        )
    before, without, control = (
        float(of[row]) for of in (effects.before, effects.without, effects.control)
    )
    line = f"Without the marked text: {share(before)} → {share(without)}; "
    if packs.stages[-1] != DEPLOYED:
        line = f"Before smoothing and personal models, w{line[1:]}"
    if np.isnan(control):
        return f"{line}there is not as much other text to compare with."
    line += f"without as much other text: {share(before)} → {share(control)}."
    if abs(before - without) <= abs(before - control):
        line += " The marked text makes no more difference than other text."
    return line


def stage_table(packs: Packs, row: int, names: Sequence[str], label: int) -> dict[str, Any]:
    """Return a table of probabilities by reading, of the most important classes.

    Parameters
    ----------
    names : names of the classes, safe to print
    label : class of the node, -1 = unknown
    """
    probs = packs.probs[:, row]
    # The two classes of the log-odds, the prediction of each view, and the label.
    classes = [int(packs.predicted[row]), int(packs.rival[row])]
    classes += map(int, probs.argmax(axis=1))
    classes += [label] if label >= 0 else []
    listed = list(dict.fromkeys(classes))
    for other in np.argsort(-packs.decisive[row], kind="stable"):
        if len(listed) < min(_MAX_CLASSES, len(names)) and int(other) not in listed:
            listed.append(int(other))
    rows = []
    for at, stage in enumerate(packs.stages):
        used = stage in packs.views or stage in TOGETHER
        best = int(probs[at].argmax())
        cells = [f"{probs[at, k]:.3f}{' (first)' if k == best else ''}" for k in listed]
        rows.append([f"{READINGS[stage]}{'' if used else ', not part of the answer'}", *cells])
    heads = [f"{names[k]}{', the label' if k == label else ''}" for k in listed]
    return {
        "caption": f"Probabilities of {len(listed)} of {len(names)} classes, by reading",
        "head": ["reading", *heads],
        "rows": rows,
    }


def units(text: str, place: int) -> int:
    """Return the number of UTF-16 units before a character.

    Python counts characters and a browser counts UTF-16 units, two for a character above U+FFFF.
    """
    return len(text[:place].encode("utf-16-le", "surrogatepass")) // 2


def span_sha256(text: str, start: int, end: int) -> str:
    """Return the sha256 of the UTF-8 text of a span, hexadecimal, as packs keep it."""
    return sha256(text[start:end].encode("utf-8", "surrogatepass")).hexdigest()


def unseen(text: str) -> str:
    """Return the invisible and reordering characters of a text with their counts; "" = none."""
    if text.translate(_USUAL).isprintable():  # nearly every text, and much faster
        return ""
    counts = {
        char: text.count(char)
        for char in set(text)
        if unicodedata.category(char) in _UNSEEN and ord(char) not in _USUAL
    }
    return ", ".join(f"U+{ord(char):04X}: {counts[char]:,}" for char in sorted(counts))


def pack_digests(packs: Packs, ids: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the sha256 of each pack, [m], over its line of `evidence_lines` with sorted keys."""
    return [
        # Why this form (decision 22): a verdict names the line of the pack in `evidence.jsonl`.
        sha256(json.dumps(line, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        for line in evidence_lines(packs, list(ids), names)
    ]


@dataclass(frozen=True)
class PackFacts:
    """The packs of a page, and everything that is shown with them.

    Attributes
    ----------
    packs : packs of m nodes; candidates : the nodes and chunks that their evidence was chosen from
    effects : effects of text, neighbours and prior on these predictions
    reliability : of the model's answers, on validation nodes
    edge_spans : positions of edge texts in node texts; None without edge texts
    ids, texts : ids and texts of all n nodes
    labels : [n] int64, -1 = unknown
    class_names : names of the classes, safe to print
    """

    packs: Packs
    candidates: Selection
    effects: Effects
    reliability: Reliability
    edge_spans: EdgeSpans | None
    ids: Sequence[str]
    texts: Sequence[str]
    labels: NDArray[np.int64]
    class_names: Sequence[str]

    def of(self, row: int) -> dict[str, Any]:
        """Return everything that the page shows of one pack, as JSON."""
        packs, effects, names = self.packs, self.effects, self.class_names
        articles, node = self._articles(row), int(packs.nodes[row])
        label = int(self.labels[node])
        return {
            "answer": answer(packs, effects, row, names, label),
            "advice": self.reliability.advice(
                float(packs.confidence[row]), bool(packs.disagree[row])
            ),
            "account": self._account(row, articles, label),
            "articles": articles,
            "stages": stage_table(packs, row, names, label),
            "unused": self._unused(row, articles),
        }

    def _account(
        self, row: int, articles: Sequence[Mapping[str, Any]], label: int
    ) -> dict[str, Any]:
        """Return the steps of the account, and the classes that the answer is compared with."""
        packs, numbers = self.packs, {article["node"]: article["number"] for article in articles}
        steps, taken = [], account(packs, row)
        # Sums are rounded, not steps, so that the last bar is the answer.
        sums = np.cumsum([step.logits - step.logits.mean() for step in taken], axis=0)
        adds = np.diff(np.rint(sums * PARTS_OF_ONE), axis=0, prepend=0).astype(int).tolist()
        for step, of_step in zip(taken, adds, strict=True):
            number = numbers.get(step.node, 0)
            name = "its own text" if number == 1 else f"text {number}"
            name = name if step.kind == TEXT else STEPS[step.kind]
            steps.append({"is": name, "text": number, "adds": of_step})
        best = int(packs.predicted[row])
        # The second class first, then the label, then the others by probability.
        by_probability = np.argsort(-packs.decisive[row], kind="stable").tolist()
        rivals = [int(packs.rival[row]), label, *by_probability]
        rivals = [k for k in dict.fromkeys(rivals) if k >= 0 and k != best]
        probs = [share(p) for p in packs.decisive[row].tolist()]
        return {"steps": steps, "best": best, "rivals": rivals, "label": label, "probs": probs}

    def _name(self, node: int) -> str:
        return one_line(self.ids[node], marks=True)

    def _articles(self, row: int) -> list[dict[str, Any]]:
        packs = self.packs
        near = packs.neighbours_of(row)
        chunks = range(packs.chunk_ptr[row], packs.chunk_ptr[row + 1])
        spans: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for rank, at in enumerate(chunks, start=1):
            node, (start, end) = int(packs.chunk_nodes[at]), map(int, packs.chunk_spans[at])
            text, digest = self.texts[node], packs.chunk_sha256[at].tobytes().hex()
            spans[node].append(
                {
                    "from": units(text, start),
                    "to": units(text, end),
                    "rank": rank,
                    **_effect(float(self.effects.chunks[at])),
                    "importance": f"{packs.chunk_weights[at]:.3f}",
                    "sha256": digest,
                    "characters": [start, end],
                    # Checked again here, so that the page can mark an altered text.
                    "same": span_sha256(text, start, end) == digest,
                    "edge": edge_note(self.edge_spans, node, (start, end), self.ids),
                }
            )
        columns: list[NDArray[Any]] = [
            *(packs.neighbours, packs.neighbour_hops),
            *(packs.neighbour_weights, packs.neighbour_labels),
        ]
        articles = []
        for number, (node, hop, gate, label) in enumerate(
            zip(*(column[near] for column in columns), strict=True), start=1
        ):
            node = int(node)
            articles.append(
                {
                    "number": number,
                    "node": node,
                    "name": self._name(node),
                    "hop": int(hop),
                    "is": HOP_NAMES[hop],
                    "importance": round(float(gate), 4),
                    "label": self.class_names[label] if label >= 0 else "",
                    "characters": len(self.texts[node]),
                    "unseen": unseen(self.texts[node]),
                    # In the order of the text.
                    "spans": sorted(spans[node], key=lambda span: span["from"]),
                }
            )
        return articles

    def _unused(self, row: int, articles: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        taken = {article["node"] for article in articles}
        rows, notes = [], []
        for hop in HOPS[1:]:
            candidates = self.candidates.hops[hop]
            first, last = int(candidates.ptr[row]), int(candidates.ptr[row + 1])
            others = [n for n in candidates.index[first:last].tolist() if n not in taken]
            rows += [[self._name(node), HOP_NAMES[hop]] for node in others[:_MAX_UNUSED]]
            more = f", {_MAX_UNUSED} of them listed" if len(others) > _MAX_UNUSED else ""
            which = counted(
                len(others), f"other {HOP_NAMES[hop]} was", f"other {_NEIGHBOURS[hop]} were"
            )
            notes.append(f"{which} not used{more}")
        return {"caption": f"{'; '.join(notes)}.", "head": ["node", "is"], "rows": rows}


def _effect(value: float) -> dict[str, str]:
    if np.isnan(value):
        return {"kind": "unknown", "effect": "not computed"}
    kind = "none" if abs(value) < NO_EFFECT else "for" if value > 0 else "against"
    return {"kind": kind, "effect": signed(value)}
