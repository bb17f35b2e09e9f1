"""The ego graph of a pack: the node in the middle, its neighbours on a ring for each hop."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np
from numpy.typing import NDArray

from dance_flwr.evidence.render import HOP_NAMES
from dance_flwr.nn.ragged import Ragged
from dance_flwr.pages.drawing import Part, figure, part

_SIZE, _RADII = 520, (0, 125, 225)
MAX_REJECTED = 36  # drawn per hop
_TURN = 0.3  # radians, so that lines to hop 2 pass beside hop 1


@dataclass(frozen=True)
class EgoNode:
    """A node of the drawing.

    Attributes
    ----------
    node : local number; name : its id, safe to print; hop : 0, 1 or 2
    gate : alpha^(l); 0 = considered and rejected
    article : number of its source text on the page; 0 = none
    label : name of its training label, as far as the model read it; "" = none
    """

    node: int
    name: str
    hop: int
    gate: float
    article: int = 0
    label: str = ""


def ego_graph(nodes: Sequence[EgoNode], rows: Ragged, name: str) -> Part:
    """Return the drawing: edges thin, evidence as lines as wide as the gate, rejected nodes grey.

    Evidence nodes are numbered links to their texts; squares have a training label.

    Parameters
    ----------
    nodes : of one pack, the node itself first
    rows : neighbours of all nodes of the client
    """
    pairs = edges_between([node.node for node in nodes], rows)
    places = _places(nodes, pairs)
    middle = _SIZE / 2
    parts = [
        part("circle", cx=middle, cy=middle, r=radius, class_="ring")
        for radius, hop in zip(_RADII[1:], (1, 2), strict=True)
        if any(node.hop == hop for node in nodes)
    ]
    for a, b in pairs:
        faint = "edge" if nodes[a].gate and nodes[b].gate else "edge rejected"
        parts.append(_line(places[a], places[b], faint))
    for place, node in zip(places[1:], nodes[1:], strict=True):
        if node.gate:
            line = _line(places[0], place, "gate")
            line[1].update({"stroke-width": round(1 + 9 * node.gate, 1)})
            parts.append(_linked(line, node.article))
    # Evidence last, so that nothing covers it.
    above = sorted(range(len(nodes)), key=lambda i: nodes[i].gate > 0)
    parts += [_node(nodes[i], *places[i]) for i in above]
    return figure(_SIZE, _SIZE, name, *parts, group=True)


def edges_between(nodes: Sequence[int], rows: Ragged) -> list[tuple[int, int]]:
    """Return the edges among these nodes as pairs of their places, each once."""
    place = {node: i for i, node in enumerate(nodes)}
    wanted = np.array(sorted(place))
    pairs = []
    for node, i in place.items():
        first, last = int(rows.ptr[node]), int(rows.ptr[node + 1])
        near = rows.index[first:last].cpu().numpy()
        inside = np.intersect1d(near, wanted, assume_unique=True).tolist()
        pairs += [(i, place[other]) for other in inside if i < place[other]]
    return pairs


def _places(
    nodes: Sequence[EgoNode], pairs: Sequence[tuple[int, int]]
) -> list[tuple[float, float]]:
    """Return a place for each node: on its hop's ring, those of hop 2 beside a neighbour."""
    angle = np.zeros(len(nodes))
    near = [i for i, node in enumerate(nodes) if node.hop == 1]
    angle[near] = _spread(len(near))
    parents: dict[int, list[int]] = {}
    for a, b in pairs:
        for one, other in ((a, b), (b, a)):
            if nodes[one].hop == 2 and nodes[other].hop == 1:
                parents.setdefault(one, []).append(other)
    far = [i for i, node in enumerate(nodes) if node.hop == 2]
    # Beside their first neighbour at hop 1, so that few lines cross.
    far.sort(key=lambda i: (min((angle[p] for p in parents.get(i, ())), default=2 * pi), i))
    angle[far] = _spread(len(far)) + _TURN
    middle = _SIZE / 2
    return [
        (
            round(middle + _RADII[node.hop] * sin(angle[i]), 1),
            round(middle - _RADII[node.hop] * cos(angle[i]), 1),
        )
        for i, node in enumerate(nodes)
    ]


def _spread(count: int) -> NDArray[np.float64]:
    return np.arange(count, dtype=np.float64) * np.float64(2 * pi / max(count, 1))


def _line(start: tuple[float, float], end: tuple[float, float], kind: str) -> Part:
    return part("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], class_=kind)


def _node(node: EgoNode, x: float, y: float) -> Part:
    """Return the mark of a node: a numbered link where its text is on the page."""
    radius = 13 if node.gate else 5
    kind = "node" if node.gate else "node rejected"
    if node.hop == 0:
        kind += " itself"
    size = {"x": x - radius, "y": y - radius, "width": 2 * radius, "height": 2 * radius}
    shape = part("rect", **size) if node.label else part("circle", cx=x, cy=y, r=radius)
    title = f"{node.name}, {HOP_NAMES[node.hop]}, importance {node.gate:.3f}"
    title += f", training label {node.label}" if node.label else ""
    if not node.article:
        return part("g", part("title", f"{title}, not used"), shape, class_=kind)
    number = part("text", str(node.article), x=x, y=y + 4.5, text_anchor="middle")
    link = part("a", part("title", title), shape, number, href=f"#text-{node.article}", class_=kind)
    link[1]["aria-label"] = f"text {node.article}: {title}"
    return _linked(link, node.article)


def _linked(line: Part, article: int) -> Part:
    line[1]["data-article"] = article
    return line
