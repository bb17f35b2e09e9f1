"""Drawings as trees `[tag, attributes, ...children]`: bars, and the ego graph of a pack.

`drawing()` of `base.js` makes elements of a tree when a page opens it; `markup` writes a tree into
a page, which then needs no script to show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Any
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from dance_flwr.evidence.render import HOP_NAMES
from dance_flwr.nn.ragged import Ragged

Part = list[Any]

_LINE, _LEFT, _RIGHT = 22, 130, 52  # height of a bar's row; room for its name, and for its value
_WIDTH = 400
_SIZE, _RADII = 520, (0, 125, 225)
MAX_REJECTED = 36  # drawn per hop
_TURN = 0.3  # radians, so that lines to hop 2 pass beside hop 1


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes
    ----------
    name : label of the bar; value : length in the unit of the chart; text : the value as text
    kind : class for the style
    """

    name: str
    value: float
    text: str
    kind: str = ""


def part(tag: str, *children: Any, **attributes: Any) -> Part:
    """Return a part of a drawing; a final `_` of an attribute is dropped, others become `-`."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    return [tag, named, *children]


def figure(width: float, height: float, name: str, *children: Part, group: bool = False) -> Part:
    """Return the root of a drawing.

    Parameters
    ----------
    name : text for screen readers
    group : whether parts can be focused one by one; else the drawing is one image
    """
    size = {"viewBox": f"0 0 {width:g} {height:g}", "width": width, "height": height}
    return ["svg", {**size, "role": "group" if group else "img", "aria-label": name}, *children]


def markup(drawing: Part) -> Markup:
    """Return a drawing as SVG; every text in it is escaped.

    Examples
    --------
    >>> markup(part("text", "a < b", x=4.0))
    Markup('<text x="4.0">a &lt; b</text>')
    """
    return Markup(ElementTree.tostring(_element(drawing), encoding="unicode"))


def _element(drawing: Part) -> ElementTree.Element:
    tag, attributes, *children = drawing
    # No screen shows less than a tenth of a pixel.
    texts = {key: v if isinstance(v, str) else f"{v:.1f}" for key, v in attributes.items()}
    element = ElementTree.Element(tag, texts)
    for child in children:
        if isinstance(child, str):
            element.text = child  # parts with a text have no other child
        else:
            element.append(_element(child))
    return element


def bars(name: str, rows: Sequence[Bar]) -> Part:
    """Return horizontal bars, those below 0 to the left of the axis."""
    max_value = max((abs(row.value) for row in rows), default=0.0) or 1.0
    negative = any(row.value < 0 for row in rows)
    room = _WIDTH - _LEFT - _RIGHT
    unit = (room / 2 if negative else room) / max_value
    axis = _LEFT + (room / 2 if negative else 0)
    parts, y = [], 4.0
    for row in rows:
        length = abs(row.value) * unit
        start = axis if row.value >= 0 else axis - length
        end = max(axis, start + length) if row.value >= 0 else axis
        bar = part(
            "g",
            part("text", shortened(row.name, 30), x=_LEFT - 8, y=y + 15, text_anchor="end"),
            # A bar of 0 stays visible.
            part("rect", x=_round(start), y=y + 3, width=_round(max(length, 0.5)), height=14),
            part("text", row.text, x=_round(end + 6), y=y + 15, class_="value"),
            class_=f"bar {row.kind}".rstrip(),
        )
        parts.append(bar)
        y += _LINE
    line = part("line", x1=axis, x2=axis, y1=0, y2=y + 2, class_="axis")
    return figure(_WIDTH, y + 4, name, line, *parts)


def shortened(text: str, max_letters: int) -> str:
    """Return at most this many letters of a text; an ellipsis ends a text that was cut.

    Examples
    --------
    >>> shortened("a long name", 7)
    'a long…'
    """
    return text if len(text) <= max_letters else text[: max_letters - 1] + "…"


def _round(number: float) -> float:
    return round(number, 1)


@dataclass(frozen=True)
class EgoNode:
    """A node of the drawing.

    Attributes
    ----------
    node : local number; name : id of the node, safe to print; hop : 0, 1 or 2
    gate : alpha^(l); 0 = rejected candidate
    article : number of the node's text on the page; 0 = none
    label : name of the training label that the model read; "" = none
    """

    node: int
    name: str
    hop: int
    gate: float
    article: int = 0
    label: str = ""


def ego_graph(nodes: Sequence[EgoNode], rows: Ragged, name: str) -> Part:
    """Return the ego graph of a pack: the node in the middle, a ring of neighbours for each hop.

    Edges are thin lines, and lines to evidence nodes are as wide as the gate. Evidence nodes are
    numbered links to their texts, squares if they have a training label. Rejected nodes are small.

    Parameters
    ----------
    nodes : nodes of one pack, the node itself first
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
    # Evidence on top.
    above = sorted(range(len(nodes)), key=lambda i: nodes[i].gate > 0)
    parts += [_node(nodes[i], *places[i]) for i in above]
    return figure(_SIZE, _SIZE, name, *parts, group=True)


def edges_between(nodes: Sequence[int], rows: Ragged) -> list[tuple[int, int]]:
    """Return the edges among these nodes, once each, as pairs of positions in `nodes`."""
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
    """Return a position for each node on the ring of its hop; hop 2 is next to its neighbours."""
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
    """Return the mark of a node, a numbered link if its text is on the page."""
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
