"""Charts of a run as SVG: lines by round, bars in a grid, and a matrix of counts.

Nothing is told by colour alone: lines differ in dash and marker, bars and cells have their number.
Colours are classes of `static/run.css`, so that a chart follows the page's theme.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite, log10

from markupsafe import Markup

from dance_flwr.pages.drawing import Part, markup, part, shortened

# Why drawn here (decision 25): the SVG of Matplotlib has fixed colours and no title for screen
# readers.
# Why 480: a telephone shows it whole, at three quarters of its size with larger letters.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 290, 64, 24, 30, 48
_BELOW_LEGEND = 26
_LETTER, _LINE = 7.2, 26  # width of a letter and height of a row, in pixels
_LARGE = 9.0  # width of a letter in a chart of lines on a telephone
_MAX_LETTERS = 36  # of a name in a chart; its table has all of them
_BAR, _NARROW, _GAP = 150, 96, 16  # width of the longest bar in one column, in several; between two
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


@dataclass(frozen=True)
class Amount:
    """What a bar shows.

    Attributes
    ----------
    value : its length; text : the same, as people read it
    interval : where the value may lie, drawn over the end of the bar; None = not drawn
    """

    value: float
    text: str = ""
    interval: tuple[float, float] | None = None


def ticks(low: float, high: float, max_steps: int = 6) -> list[float]:
    """Return at most `max_steps` + 1 round numbers from at most `low` to at least `high`.

    Neighbours are 1, 2 or 5 times a power of ten apart.

    Examples
    --------
    >>> ticks(0.31, 0.88)
    [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    """
    high = high if high > low else low + (abs(low) or 1.0)
    power = 10.0 ** floor(log10((high - low) / max_steps))
    for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
        # A bound that is a multiple of the step up to rounding gets no tick beyond it.
        first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
        if last - first < max_steps:
            break
    # 0.3 and not 0.30000000000000004.
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
    points = [point for line in known for point in line.known]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    marks = ticks(min(y for _, y in points) if low is None else low, max(y for _, y in points))
    names = _legend(known)
    top = names[-1][1] + _BELOW_LEGEND if names else _TOP
    wide, high, below = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM, top + _HEIGHT - _TOP

    def at(x: float, y: float) -> tuple[float, float]:
        # A single round stands in the middle.
        across = (x - first) / (last - first) if last > first else 0.5
        up = (y - marks[0]) / (marks[-1] - marks[0])
        return _LEFT + across * wide, top + (1 - up) * high

    parts: list[Part] = []
    for mark in marks:
        y = at(first, mark)[1]
        parts.append(part("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y))
        parts.append(_text(_LEFT - 8, y + 4, f"{mark:g}", "end"))
    for mark in ticks(first, last, 8):
        # Rounds are whole numbers.
        if first <= mark <= last and mark == int(mark):
            x = at(mark, marks[0])[0]
            parts.append(_text(x, below - _BOTTOM + 18, f"{mark:g}", "middle"))
    parts.append(_text(0, 12, unit))
    parts.append(_text(_LEFT + wide / 2, below - 8, "round", "middle"))
    for place, line in enumerate(known):
        parts += _curve(place % len(_MARKS), [at(*point) for point in line.known])
    for place, (start, y) in enumerate(names):
        parts += _curve(place % len(_MARKS), [(start, y), (start + 28, y)])
        parts.append(_text(start + 36, y + 4, known[place].name))
    return _chart(chart, _WIDTH, below, parts, "chart lines")


def _legend(lines: Sequence[Line]) -> list[tuple[float, float]]:
    """Return where the name of each line begins, in rows above the axes; a single line has none."""
    if len(lines) == 1:
        return []
    places: list[tuple[float, float]] = []
    start, y = 6.0, 28.0
    for line in lines:
        wide = 36 + _LARGE * len(shortened(line.name, _MAX_LETTERS))
        if places and start + wide > _WIDTH:
            start, y = 6.0, y + 22
        places.append((start, y))
        start += wide + 16
    return places


def _curve(style: int, points: Sequence[tuple[float, float]]) -> list[Part]:
    """Return a line, with at most about twelve markers."""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = {"stroke_dasharray": _DASHES[style]} if _DASHES[style] else {}
    marks = [
        part(
            "path",
            class_=f"mark c{style}",
            transform=f"translate({x:.1f} {y:.1f})",
            d=_MARKS[style],
        )
        for x, y in points[:: max(1, len(points) // 12)]
    ]
    return [part("path", class_=f"line c{style}", d=path, **dash), *marks]


def bar_grid(
    chart: Chart,
    rows: Sequence[str],
    columns: Sequence[str],
    amounts: Sequence[Sequence[Amount | None]],
    max_value: float | None = None,
) -> Markup:
    """Return a bar with its text for each row and column as SVG, all on one scale from 0.

    Parameters
    ----------
    amounts : [rows][columns]; None = not known
    max_value : value of the longest bar; None = the largest of all
    """
    known = [amount for row in amounts for amount in row if amount is not None]
    if not known:
        return Markup("")
    # Where all values are 0, bars have no length.
    longest = (max_value or max(amount.value for amount in known)) or 1.0
    left = 16 + max(_width(name) for name in (*rows, ""))
    room = 6 + _LETTER * max(len(amount.text) for amount in known)
    wide = _BAR if len(columns) == 1 else _NARROW
    step = wide + room + _GAP
    top = _LINE if any(columns) else 0
    parts = [_text(left + place * step, 16, name) for place, name in enumerate(columns) if name]
    for number, (name, row) in enumerate(zip(rows, amounts, strict=True)):
        y = top + number * _LINE
        parts.append(_text(left - 8, y + 16, name, "end"))
        for place, amount in enumerate(row):
            x = left + place * step
            parts += _bar(x, y, wide / longest, amount) if amount else [_text(x, y + 16, "-")]
    width, height = left + step * len(columns) - _GAP, top + _LINE * len(rows) + 8
    return _chart(chart, width, height, parts)


def bar(share: Amount) -> Markup:
    """Return one bar of a share, without its text, for a cell of a table that has it as a text."""
    amount = replace(share, text="")
    drawing = part("svg", *_bar(1, 0, _BAR, amount), class_="chart inline", aria_hidden="true")
    # As wide as a share of 1.
    drawing[1]["viewBox"] = f"0 0 {_BAR + 2} {_LINE}"
    return markup(drawing)


def _bar(x: float, y: float, unit: float, amount: Amount) -> list[Part]:
    """Return a bar and its text; `unit` pixels are a value of 1."""
    end = unit * max(0.0, amount.value)
    parts = [part("rect", class_="bar", x=x, y=y + 4, width=end, height=_LINE - 8)]
    if amount.interval:
        low, high = (x + unit * bound for bound in amount.interval)
        middle = y + _LINE / 2
        path = (
            f"M{low:.1f} {middle - 5}v10M{high:.1f} {middle - 5}v10M{low:.1f} {middle}H{high:.1f}"
        )
        parts.append(part("path", class_="whisker", d=path))
        end = max(end, high - x)
    return [*parts, _text(x + end + 6, y + 16, amount.text)] if amount.text else parts


def matrix(chart: Chart, names: Sequence[str], counts: Sequence[Sequence[int]]) -> Markup:
    """Return a confusion matrix as SVG: a row per class, a column per prediction, each a count.

    The shade of a cell is its share of the row; the diagonal has a thick border. Columns have the
    numbers of the rows.
    """
    size = max(_LINE + 4, 12 + _LETTER * len(f"{max(map(max, counts), default=0):,}"))
    labels = [
        f"{shortened(name, _MAX_LETTERS)}  {number}" for number, name in enumerate(names, start=1)
    ]
    left = 16 + _LETTER * max(map(len, (*labels, "class")))
    parts = [_text(left, 14, "predicted as")]
    parts += [
        _text(left + (number + 0.5) * size, 32, str(number + 1), "middle")
        for number in range(len(names))
    ]
    for place, (label, row) in enumerate(zip(labels, counts, strict=True)):
        y, total = 40 + place * size, sum(row) or 1
        parts.append(_text(left - 8, y + size / 2 + 5, label, "end"))
        for number, count in enumerate(row):
            x, kind = left + number * size, "cell right" if number == place else "cell"
            # At most 35 %, so that the count stays readable.
            shade = {"class_": kind, "fill_opacity": f"{0.35 * count / total:.3f}"}
            parts.append(part("rect", x=x + 1, y=y + 1, width=size - 2, height=size - 2, **shade))
            parts.append(_text(x + size / 2, y + size / 2 + 5, f"{count:,}", "middle"))
    width, height = left + size * len(names) + 8, size * len(names) + 48
    return _chart(chart, width, height, parts)


def _chart(
    chart: Chart, width: float, height: float, parts: Sequence[Part], kind: str = "chart"
) -> Markup:
    """Return a drawing that a screen reader reads as title and text."""
    title, text = f"{chart.name}-title", f"{chart.name}-text"
    root = part(
        "svg",
        part("title", chart.title, id=title),
        part("desc", chart.text, id=text),
        *parts,
        role="img",
        class_=kind,
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        aria_labelledby=f"{title} {text}",
    )
    root[1]["viewBox"] = f"0 0 {width:.0f} {height:.0f}"
    return markup(root)


def _text(x: float, y: float, text: str, anchor: str = "start") -> Part:
    """Return a text, shortened if it is a long one."""
    return part("text", shortened(text, _MAX_LETTERS), x=x, y=y, text_anchor=anchor)


def _width(text: str) -> float:
    """Return the width of a text in a chart, about."""
    return _LETTER * len(shortened(text, _MAX_LETTERS))
