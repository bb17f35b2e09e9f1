"""Drawings as trees `[tag, attributes, ...children]`, which a page turns into SVG; never markup.

`drawing()` of `base.js` builds the elements, so a name in a drawing stays a name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Part = list[Any]

_LINE, _LEFT, _RIGHT = 22, 190, 190  # height of a bar's row; room for its name, and for its value
_WIDTH = 720


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes
    ----------
    name : what it is of; value : its length, in the unit of the chart; shown : the value in words
    kind : class for the style; heading : starts a group with this name
    article : number of the evidence node that it is of; 0 = of none
    """

    name: str
    value: float
    shown: str
    kind: str = ""
    heading: str = ""
    article: int = 0


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


def bars(name: str, rows: Sequence[Bar], most: float = 0.0) -> Part:
    """Return horizontal bars, those below 0 to the left of the axis.

    Parameters
    ----------
    most : value of a bar over the whole width; 0 = the largest one
    """
    most = most or max((abs(row.value) for row in rows), default=0.0) or 1.0
    negative = any(row.value < 0 for row in rows)
    room = _WIDTH - _LEFT - _RIGHT
    unit = (room / 2 if negative else room) / most
    axis = _LEFT + (room / 2 if negative else 0)
    parts, y = [], 4.0
    for row in rows:
        if row.heading:
            parts.append(part("text", row.heading, x=4, y=y + 16, class_="heading"))
            y += _LINE
        length = min(abs(row.value), most) * unit
        start = axis if row.value >= 0 else axis - length
        end = max(axis, start + length) if row.value >= 0 else axis
        link = {"data-article": row.article} if row.article else {}
        line = part(
            "g",
            part("text", _short(row.name), x=_LEFT - 8, y=y + 15, text_anchor="end"),
            part("rect", x=_round(start), y=y + 3, width=_round(max(length, 0.5)), height=14),
            part("text", row.shown, x=_round(end + 6), y=y + 15, class_="value"),
            class_=f"bar {row.kind}".rstrip(),
        )
        line[1].update(link)
        parts.append(line)
        y += _LINE
    line = part("line", x1=axis, x2=axis, y1=0, y2=y + 2, class_="axis")
    return figure(_WIDTH, y + 4, name, line, *parts)


def _short(name: str, most: int = 30) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _round(number: float) -> float:
    return round(number, 1)
