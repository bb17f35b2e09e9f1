"""One evidence pack as a page shows it: answer, effects, texts, graph and rounds."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.dance.selection import HOPS, Selection
from dance_flwr.data.text_record import EdgeSpans
from dance_flwr.errors import counted
from dance_flwr.escaping import one_line
from dance_flwr.evidence.json_lines import evidence_lines
from dance_flwr.evidence.leave_out import Effects
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import HOP_NAMES, edge_note
from dance_flwr.nn.ragged import Ragged
from dance_flwr.pages.audit_answer import NO_EFFECT, answer, signed
from dance_flwr.pages.audit_charts import ROUND_HEAD, part_chart, stage_table
from dance_flwr.pages.audit_texts import TextBlocks, span_sha256, units, unseen
from dance_flwr.pages.ego_graph import MAX_REJECTED, EgoNode, ego_graph

_NEIGHBOURS = ("", "neighbours", "neighbours of neighbours")  # the plurals of HOP_NAMES


def pack_digests(packs: Packs, ids: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the sha256 of each pack, [m]: of its JSON line in `evidence_lines`, keys sorted."""
    return [
        # Why this form (decision 22): a verdict names the line of the pack in `evidence.jsonl`.
        sha256(json.dumps(line, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        for line in evidence_lines(packs, list(ids), names)
    ]


@dataclass(frozen=True)
class PackFacts:
    """What a page shows of its packs, and what it is computed from.

    Attributes
    ----------
    packs : of m nodes; candidates : what they were chosen from
    effects : of their text, of neighbours and of the prior
    digests : [m] of the packs
    edge_spans : where texts of edges lie in those of nodes; None without any
    ids, texts : of all nodes; rows : their neighbours; labels : [n] int64, -1 = unknown
    class_names : safe to print
    rounds : by node, its packs of earlier rounds as `rounds_by_node`
    blocks : where texts enter the page
    """

    packs: Packs
    candidates: Selection
    effects: Effects
    digests: Sequence[str]
    edge_spans: EdgeSpans | None
    ids: Sequence[str]
    texts: Sequence[str]
    rows: Ragged
    labels: NDArray[np.int64]
    class_names: Sequence[str]
    rounds: Mapping[int, list[list[str]]]
    blocks: TextBlocks

    def of(self, row: int) -> dict[str, Any]:
        """Return the facts of one pack; JSON."""
        packs, effects, names = self.packs, self.effects, self.class_names
        articles, node = self._articles(row), int(packs.nodes[row])
        label = int(self.labels[node])
        return {
            "digest": self.digests[row],
            "answer": answer(packs, effects, row, names, label),
            "parts": part_chart(packs, effects, row, names),
            "articles": articles,
            "stages": stage_table(packs, row, names, label),
            "graph": self._graph(row, articles),
            "rounds": {
                "caption": "The same node in each round, and how much of its evidence is here too",
                "head": ROUND_HEAD,
                "rows": self.rounds.get(node, ()),
            },
        }

    def _name(self, node: int) -> str:
        return one_line(self.ids[node], marks=True)

    def _articles(self, row: int) -> list[dict[str, Any]]:
        """Return the evidence nodes of a pack with their texts and spans, the node itself first."""
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
                    # Compared again, so that the page marks a span that is not the chunk's text.
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
                    "text": self.blocks.place(node),
                    "characters": len(self.texts[node]),
                    "unseen": unseen(self.texts[node]),
                    # In the order of the text, not of the weights.
                    "spans": sorted(spans[node], key=lambda span: span["from"]),
                }
            )
        return articles

    def _graph(self, row: int, articles: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the ego graph with its table, and the candidates that were rejected."""
        evidence = [
            EgoNode(a["node"], a["name"], a["hop"], a["importance"], a["number"], a["label"])
            for a in articles
        ]
        taken = {node.node for node in evidence}
        rejected, notes = [], []
        for hop in HOPS[1:]:
            candidates = self.candidates.hops[hop]
            first, last = int(candidates.ptr[row]), int(candidates.ptr[row + 1])
            others = [n for n in candidates.index[first:last].tolist() if n not in taken]
            drawn = others[:MAX_REJECTED]
            rejected += [EgoNode(node, self._name(node), hop, 0.0) for node in drawn]
            more = f", {len(drawn)} of them drawn" if len(drawn) < len(others) else ""
            which = counted(
                len(others), f"other {HOP_NAMES[hop]} was", f"other {_NEIGHBOURS[hop]} were"
            )
            notes.append(f"{which} not used{more}")
        name = self._name(int(self.packs.nodes[row]))
        rows = [
            [str(n.article), n.name, HOP_NAMES[n.hop], f"{n.gate:.3f}", n.label or "none"]
            for n in evidence
        ]
        return {
            "drawing": ego_graph(
                [*evidence, *rejected], self.rows, f"Node {name} and where its evidence lies"
            ),
            "caption": "Evidence nodes",
            "head": ["text", "node", "is", "importance", "training label"],
            "rows": rows,
            "notes": notes,
            "rejected": [[n.name, HOP_NAMES[n.hop]] for n in rejected],
        }


def _effect(value: float) -> dict[str, str]:
    """Return the effect of a passage in words: for, against, none, or unknown where it is NaN."""
    if np.isnan(value):
        return {"kind": "unknown", "effect": "not computed"}
    kind = "none" if abs(value) < NO_EFFECT else "for" if value > 0 else "against"
    return {"kind": kind, "effect": signed(value)}
