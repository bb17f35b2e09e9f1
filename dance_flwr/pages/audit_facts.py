"""One evidence pack as a page shows it: predictions, graph, texts, what-if and rounds."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.api.prediction.evidence_lines import evidence_lines
from dance_flwr.dance.inference import DEPLOYED
from dance_flwr.dance.selection import HOPS, Selection
from dance_flwr.escaping import one_line
from dance_flwr.evidence.explanation import FUSED, PARTS, SMOOTHED
from dance_flwr.evidence.metrics.leave_out import LeftOut
from dance_flwr.evidence.pack import Packs
from dance_flwr.nn.ragged import Ragged
from dance_flwr.pages.audit_effects import what_if
from dance_flwr.pages.audit_rounds import Appearance, over_rounds
from dance_flwr.pages.audit_texts import TextBlocks, span_sha256, units, unseen
from dance_flwr.pages.drawing import Bar, bars
from dance_flwr.pages.ego_graph import MOST_REJECTED, EgoNode, ego_graph

_CLASSES_SHOWN = 5
_STAGE_NOTES = {
    FUSED: "rests on the evidence alone",
    DEPLOYED: "what the model says",
    SMOOTHED: "what the model says, after smoothing on the client",
}


def pack_digests(packs: Packs, ids: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the sha256 of each pack, [m]: of its JSON line in `evidence_lines`, keys sorted."""
    return [
        sha256(json.dumps(line, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        for line in evidence_lines(packs, list(ids), names)
    ]


@dataclass(frozen=True)
class PackFacts:
    """What the facts of all packs of a page are made of.

    Attributes
    ----------
    packs : of m nodes; candidates : what they were chosen from
    left_out : effects of single chunks
    digests : [m] of the packs
    ids, texts : of all nodes; rows : their neighbours; labels : [n] int64, -1 = unknown
    class_names : safe to print
    appearances : node -> its packs of earlier rounds
    blocks : where texts enter the page
    """

    packs: Packs
    candidates: Selection
    left_out: LeftOut
    digests: Sequence[str]
    ids: Sequence[str]
    texts: Sequence[str]
    rows: Ragged
    labels: NDArray[np.int64]
    class_names: Sequence[str]
    appearances: Mapping[int, Sequence[Appearance]]
    blocks: TextBlocks

    def of(self, row: int) -> dict[str, Any]:
        """Return the facts of one pack; JSON."""
        articles = self._articles(row)
        return {
            "digest": self.digests[row],
            "stages": self._stages(row),
            "parts": self._parts(row, articles),
            "graph": self._graph(row, articles),
            "articles": articles,
            "whatIf": self._what_if(row, articles),
            "rounds": self._rounds(row),
        }

    def _name(self, node: int) -> str:
        return one_line(self.ids[node], marks=True)

    def _stages(self, row: int) -> dict[str, Any]:
        """Return bars and table of the classes that matter, by view and as deployed."""
        packs, names = self.packs, self.class_names
        probs = packs.probs[:, row]
        label = int(self.labels[packs.nodes[row]])
        chosen = [int(packs.predicted[row]), int(packs.rival[row]), *map(int, probs.argmax(axis=1))]
        chosen += [label] if label >= 0 else []
        shown = list(dict.fromkeys(chosen))
        for other in np.argsort(-packs.decisive[row], kind="stable"):
            if len(shown) < min(_CLASSES_SHOWN, len(names)) and int(other) not in shown:
                shown.append(int(other))
        drawn, table = [], []
        for at, stage in enumerate(packs.stages):
            note = _STAGE_NOTES.get(stage) or "reads texts and edges without choosing"
            used = stage in packs.views or stage in (DEPLOYED, SMOOTHED)
            heading = f"{stage}: {note}{'' if used else '; not deployed'}"
            best = int(probs[at].argmax())
            for k in shown:
                marks = ["predicted"] if k == best else []
                marks += ["label"] if k == label else []
                said = f"{probs[at, k]:.3f}{' ' + ' and '.join(marks) if marks else ''}"
                kind = "best" if k == best else "other"
                drawn.append(Bar(names[k], float(probs[at, k]), said, kind, heading))
                heading = ""
            table.append([stage, *(f"{probs[at, k]:.4f}" for k in shown)])
        title = f"Probabilities of {len(shown)} of {len(names)} classes"
        return {
            "drawing": bars(f"{title}; the table below has the numbers", drawn, 1.0),
            "caption": f"{title}, by view",
            "head": ["view", *(names[k] for k in shown)],
            "rows": table,
        }

    def _parts(self, row: int, articles: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what graph, text and labels gave to the fused view, label evidence apart."""
        packs, names = self.packs, self.class_names
        values = dict(zip(PARTS, map(float, packs.parts[row]), strict=True))
        against = f"{names[packs.predicted[row]]} against {names[packs.rival[row]]}"
        drawn = [
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
            "drawing": bars(f"{title}; the table below has the numbers", drawn),
            "caption": title,
            "head": ["part", "log-odds"],
            "rows": rows,
        }

    def _articles(self, row: int) -> list[dict[str, Any]]:
        """Return the evidence nodes of a pack with their texts and spans, the node itself first."""
        packs = self.packs
        near = slice(packs.neighbour_ptr[row], packs.neighbour_ptr[row + 1])
        own = range(packs.chunk_ptr[row], packs.chunk_ptr[row + 1])
        spans: dict[int, list[list[Any]]] = defaultdict(list)
        for rank, at in enumerate(own, start=1):
            node, (start, end) = int(packs.chunk_nodes[at]), map(int, packs.chunk_spans[at])
            text, kept = self.texts[node], packs.chunk_sha256[at].tobytes().hex()
            spans[node].append(
                [
                    *(units(text, start), units(text, end), rank),
                    *(f"{packs.chunk_weights[at]:.3f}", kept, start, end),
                    span_sha256(text, start, end) == kept,
                ]
            )
        columns: list[NDArray[Any]] = [
            *(packs.neighbours, packs.neighbour_hops, packs.neighbour_weights),
            *(packs.neighbour_labels, packs.neighbour_effects),
        ]
        found = []
        for number, (node, hop, gate, label, effect) in enumerate(
            zip(*(column[near] for column in columns), strict=True), start=1
        ):
            node = int(node)
            found.append(
                {
                    "number": number,
                    "node": node,
                    "name": self._name(node),
                    "hop": int(hop),
                    "gate": round(float(gate), 4),
                    "label": self.class_names[label] if label >= 0 else "",
                    "effect": round(float(effect), 4),
                    "text": self.blocks.place(node),
                    "characters": len(self.texts[node]),
                    "unseen": unseen(self.texts[node]),
                    "spans": sorted(spans[node]),
                }
            )
        return found

    def _graph(self, row: int, articles: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the ego graph with its table, and the candidates that were rejected."""
        evidence = [
            EgoNode(a["node"], a["name"], a["hop"], a["gate"], a["number"], a["label"])
            for a in articles
        ]
        taken = {node.node for node in evidence}
        rejected, notes = [], []
        for hop in HOPS[1:]:
            candidates = self.candidates.hops[hop]
            first, last = int(candidates.ptr[row]), int(candidates.ptr[row + 1])
            others = [n for n in candidates.index[first:last].tolist() if n not in taken]
            drawn = others[:MOST_REJECTED]
            rejected += [EgoNode(node, self._name(node), hop, 0.0) for node in drawn]
            more = f", {len(drawn)} of them drawn" if len(drawn) < len(others) else ""
            notes.append(f"{len(others):,} candidates of hop {hop} got a gate of 0{more}")
        name = self._name(int(self.packs.nodes[row]))
        rows = [
            [str(n.article), n.name, str(n.hop), f"{n.gate:.3f}", n.label or "none"]
            for n in evidence
        ]
        return {
            "drawing": ego_graph(
                [*evidence, *rejected], self.rows, f"Node {name} and where its evidence lies"
            ),
            "caption": "Evidence nodes",
            "head": ["text", "node", "hop", "gate", "training label"],
            "rows": rows,
            "notes": notes,
            "rejected": [[n.name, str(n.hop)] for n in rejected],
        }

    def _what_if(self, row: int, articles: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        number = {article["node"]: article["number"] for article in articles}
        return what_if(self.packs, self.left_out, row, number)

    def _rounds(self, row: int) -> dict[str, Any] | None:
        found = self.appearances.get(int(self.packs.nodes[row]), ())
        return over_rounds(found, self.class_names)
