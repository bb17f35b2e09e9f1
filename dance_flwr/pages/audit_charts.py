"""The chart and the tables of an evidence pack."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dance_flwr.evidence.leave_out import Effects
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import READINGS, TOGETHER
from dance_flwr.pages.audit_answer import signed
from dance_flwr.pages.drawing import Bar, bars

_MAX_CLASSES = 5  # in a table of probabilities
ROUND_HEAD = ("round", "model says", "probability", "neighbours", "passages", "same evidence")


def stage_table(packs: Packs, row: int, names: Sequence[str], label: int) -> dict[str, Any]:
    """Return the probabilities of the classes that matter, by reading and as deployed.

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


def part_chart(packs: Packs, effects: Effects, row: int, names: Sequence[str]) -> dict[str, Any]:
    """Return what speaks for and against the predicted class, the largest effect first.

    Parameters
    ----------
    names : of the classes, safe to print
    """
    values = {
        "marked text": effects.all_chunks[row],
        "neighbours' labels": effects.labels[row],
        "all neighbours": effects.neighbours[row],
        "class sizes": effects.prior[row],
    }
    rows = [(name, float(value)) for name, value in values.items() if not np.isnan(value)]
    rows.sort(key=lambda entry: -abs(entry[1]))
    drawn = [
        Bar(name, value, signed(value), "against" if value < 0 else "for") for name, value in rows
    ]
    best, rival = names[packs.predicted[row]], names[packs.rival[row]]
    title = f"◀ for {rival} | for {best} ▶"
    return {
        "drawing": bars(f"{title}; the table below has the numbers", drawn),
        "caption": title,
        "head": ["left out", "effect"],
        "rows": [[name, signed(value)] for name, value in rows],
    }


def rounds_by_node(
    files: Iterable[Path], packs: Packs, names: Sequence[str]
) -> Mapping[int, list[list[str]]]:
    """Return, by node, a row for each other round that has a pack of it, by `ROUND_HEAD`.

    The last cell is the share of that pack's weight on chunks that the pack on the page has too.

    Parameters
    ----------
    files : packs of rounds, in their order; names : of the classes, safe to print
    """
    chunks_of = {int(v): packs.chunks[packs.chunks_of(row)] for row, v in enumerate(packs.nodes)}
    result: dict[int, list[list[str]]] = defaultdict(list)
    for path in files:
        then = Packs.load(path)
        for row in np.flatnonzero(np.isin(then.nodes, packs.nodes)).tolist():
            node = int(then.nodes[row])
            chunks, near = then.chunks_of(row), then.neighbours_of(row)
            weights = then.chunk_weights[chunks]
            same = np.isin(then.chunks[chunks], chunks_of[node])
            shared = float(weights[same].sum()) / (float(weights.sum()) or 1.0)
            neighbours = int((then.neighbour_hops[near] > 0).sum())
            result[node].append(
                [
                    *(str(then.round), names[then.predicted[row]], f"{then.confidence[row]:.3f}"),
                    *(str(neighbours), str(len(weights)), f"{shared:.3f}"),
                ]
            )
    return result
