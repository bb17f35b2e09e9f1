"""Charts as SVG, computed here: lines by round, bars in a grid, and a matrix of counts.

Nothing is told by colour alone: lines differ in dash and marker, bars and cells carry their number.
Colours are classes of `static/run.css`, so that a chart follows the page's theme.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from xml.etree import ElementTree

from markupsafe import Markup

STYLES = 6  # of lines and markers
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 310, 64, 24, 54, 48
_LETTER, _LINE = 7.2, 26  # width of a letter and height of a row, in pixels
_LONGEST = 36  # letters of a name in a chart; its table has all of them
_BAR, _NARROW, _FEW = 150, 70, 3  # width of the longest bar: of few columns, and of more
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "1 4", "14 5")
_MARKS = (  # around (0, 0)
    "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z",
    "M-4-4H4V4H-4Z",
    "M0-5L5 4H-5Z",
    "M0-5L5 0L0 5L-5 0Z",
    "M0 5L5-4H-5Z",
    "M-4-4L4 4M4-4L-4 4",
)


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes
    ----------
    name : of its element, unique in a page
    title : what it shows; text : the same in a sentence, with its most important numbers
    """

    name: str
    title: str
    text: str


@dataclass(frozen=True)
class Line:
    """Values by round; those that are None or not finite are left out."""

    name: str
    points: Sequence[tuple[float, float | None]]

    @property
    def known(self) -> list[tuple[float, float]]:
        """The points that can be drawn."""
        return [(x, y) for x, y in self.points if y is not None and isfinite(y)]


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most `most` round numbers from at most `low` to at least `high`.

    Neighbours are 1, 2 or 5 times a power of ten apart.
    """
    high = high if high > low else low + (abs(low) or 1.0)
    power = 10.0 ** floor(log10((high - low) / most))
    for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
        first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
        if last - first < most:
            break
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def line_chart(chart: Chart, lines: Sequence[Line], unit: str, low: float | None = None) -> Markup:
    """Return lines over rounds as SVG; "" where no value is known.

    Parameters
    ----------
    unit : of the values, above the axis; low : where the axis starts; None = near the least value
    """
    known = [line for line in lines if line.known]
    if not known:
        return Markup("")
    every = [point for line in known for point in line.known]
    first, last = min(x for x, _ in every), max(x for x, _ in every)
    marks = ticks(min(y for _, y in every) if low is None else low, max(y for _, y in every))
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - first) / (last - first) if last > first else 0.5
        up = (y - marks[0]) / (marks[-1] - marks[0])
        return _LEFT + across * wide, _TOP + (1 - up) * high

    root = _root(chart, _WIDTH, _HEIGHT)
    for mark in marks:
        y = at(first, mark)[1]
        _add(root, "line", {"class": "grid"}, x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y)
        _text(root, _LEFT - 8, y + 4, f"{mark:g}", "end")
    for mark in ticks(first, last, 8):
        if first <= mark <= last and mark == int(mark):
            _text(root, at(mark, marks[0])[0], _HEIGHT - _BOTTOM + 18, f"{mark:g}", "middle")
    _text(root, _LEFT, 12, unit)
    _text(root, _LEFT + wide / 2, _HEIGHT - 8, "round", "middle")
    start = float(_LEFT)
    for place, line in enumerate(known):
        style = place % STYLES
        _draw(root, style, [at(x, y) for x, y in line.known])
        _draw(root, style, [(start, 28), (start + 28, 28)])
        start += 36 + _text(root, start + 36, 32, line.name) + 20
    return _markup(root)


def _draw(root: ElementTree.Element, style: int, points: Sequence[tuple[float, float]]) -> None:
    """Draw a line, with at most about twelve markers."""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = {"stroke-dasharray": _DASHES[style]} if _DASHES[style] else {}
    _add(root, "path", {"class": f"line c{style}", **dash}, d=path)
    for x, y in points[:: max(1, len(points) // 12)]:
        _add(
            root,
            "path",
            {"class": f"mark c{style}", "transform": f"translate({x:.1f} {y:.1f})"},
            d=_MARKS[style],
        )


def bar_grid(
    chart: Chart,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    shown: Callable[[float], str],
    most: float | None = None,
    unknown: str = "?",
) -> Markup:
    """Return a bar with its number for each row and column as SVG, all on one scale from 0.

    Parameters
    ----------
    values : [rows][columns]; None = not known; shown : returns a value as text
    most : value of the longest bar; None = the largest of all
    unknown : what stands for None
    """
    known = [value for row in values for value in row if value is not None and isfinite(value)]
    if not known:
        return Markup("")
    longest = (most or max(known)) or 1.0
    left = 16 + _LETTER * max(len(_short(name)) for name in (*rows, ""))
    room = 12 + _LETTER * max(len(shown(value)) for value in known)
    wide = _BAR if len(columns) <= _FEW else _NARROW
    step = wide + room + 12
    root = _root(chart, left + step * len(columns), _LINE * (len(rows) + 1) + 8)
    for place, name in enumerate(columns):
        _text(root, left + place * step, 16, name)
    for number, (name, row) in enumerate(zip(rows, values, strict=True), start=1):
        y = number * _LINE
        _text(root, left - 8, y + 16, name, "end")
        for place, value in enumerate(row):
            x = left + place * step
            if value is None or not isfinite(value):
                _text(root, x + 4, y + 16, unknown)
                continue
            size = wide * max(0.0, min(1.0, value / longest))
            _add(root, "rect", {"class": "bar"}, x=x, y=y + 4, width=size, height=_LINE - 8)
            _text(root, x + size + 6, y + 16, shown(value))
    return _markup(root)


def matrix(chart: Chart, names: Sequence[str], counts: Sequence[Sequence[int]]) -> Markup:
    """Return a confusion matrix as SVG: a row per class, a column per prediction, each a count.

    The shade of a cell is its share of the row; the diagonal has a thick border. Columns have the
    numbers of the rows.
    """
    size = max(_LINE + 4, 12 + _LETTER * len(f"{max(map(max, counts), default=0):,}"))
    labels = [f"{_short(name)}  {number}" for number, name in enumerate(names, start=1)]
    left = 16 + _LETTER * max(map(len, (*labels, "class")))
    root = _root(chart, left + size * len(names) + 8, size * len(names) + 48)
    _text(root, left, 14, "predicted as")
    for number in range(len(names)):
        _text(root, left + (number + 0.5) * size, 32, str(number + 1), "middle")
    for place, (label, row) in enumerate(zip(labels, counts, strict=True)):
        y, total = 40 + place * size, sum(row) or 1
        _text(root, left - 8, y + size / 2 + 5, label, "end")
        for number, count in enumerate(row):
            x, kind = left + number * size, "cell right" if number == place else "cell"
            shade = {"class": kind, "fill-opacity": f"{0.35 * count / total:.3f}"}
            _add(root, "rect", shade, x=x + 1, y=y + 1, width=size - 2, height=size - 2)
            _text(root, x + size / 2, y + size / 2 + 5, f"{count:,}", "middle")
    return _markup(root)


def _root(chart: Chart, width: float, height: float) -> ElementTree.Element:
    """Return an empty drawing that a screen reader reads as title and text."""
    root = ElementTree.Element(
        "svg",
        {
            "role": "img",
            "class": "chart",
            "viewBox": f"0 0 {width:.0f} {height:.0f}",
            "width": f"{width:.0f}",
            "height": f"{height:.0f}",
            "aria-labelledby": f"{chart.name}-title {chart.name}-text",
        },
    )
    ElementTree.SubElement(root, "title", {"id": f"{chart.name}-title"}).text = chart.title
    ElementTree.SubElement(root, "desc", {"id": f"{chart.name}-text"}).text = chart.text
    return root


def _add(
    root: ElementTree.Element, tag: str, named: dict[str, str], **attributes: float | str
) -> None:
    written = {
        key: value if isinstance(value, str) else f"{value:.1f}"
        for key, value in attributes.items()
    }
    ElementTree.SubElement(root, tag, {**named, **written})


def _text(root: ElementTree.Element, x: float, y: float, text: str, anchor: str = "start") -> float:
    """Write a text, shortened if it is a long one; return its width, about."""
    short = _short(text)
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ElementTree.SubElement(root, "text", place).text = short
    return _LETTER * len(short)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _markup(root: ElementTree.Element) -> Markup:
    """Return the drawing as markup; every text in it is escaped."""
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # escaped by it
