"""Drawings as trees `[tag, attributes, ...children]`, which become SVG in two places.

`drawing()` of `base.js` builds the elements of a drawing that a page opens on demand; `markup`
writes one into a page, which then needs no script to show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

Part = list[Any]

_LINE, _LEFT, _RIGHT = 22, 130, 52  # height of a bar's row; room for its name, and for its value
_WIDTH = 400


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes
    ----------
    name : what it is of; value : its length, in the unit of the chart; text : the value in words
    kind : class for the style
    """

    name: str
    value: float
    text: str
    kind: str = ""


def part(tag: str, *children: Any, **attributes: Any) -> Part:
    """Return a part of a drawing; `class_` is the attribute class, and `_` in names is `-`."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    return [tag, named, *children]


def figure(width: float, height: float, name: str, *children: Part, group: bool = False) -> Part:
    """Return the root of a drawing.

    Parameters
    ----------
    name : what a reader hears in its place
    group : whether parts of it can be reached one by one; else it is one image
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
            element.text = child  # the parts with a text have nothing else
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
    """Return a text of at most this many letters, the last one an ellipsis if it was cut.

    Examples
    --------
    >>> shortened("a long name", 7)
    'a long…'
    """
    return text if len(text) <= max_letters else text[: max_letters - 1] + "…"


def _round(number: float) -> float:
    return round(number, 1)
