"""Lines by round as SVG.

Lines differ in colour, dash and marker. Colours are classes of `static/run.css`, so that a chart
follows the page's theme.
"""

from collections.abc import Mapping, Sequence
from math import ceil, floor, isfinite, log10

from markupsafe import Markup

from dance_flwr.pages.drawing import Part, markup, part, shortened

# Why drawn here (decision 25): the SVG of Matplotlib has fixed colours and no title for screen
# readers.
# Why 480: a telephone shows it whole, at three quarters of its size with larger letters.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 290, 64, 24, 30, 48
_BELOW_LEGEND = 26
_LETTER = 9.0  # width of a letter on a telephone
_MAX_LETTERS = 36  # of the name of a line
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "1 4", "14 5")
_MARKS = (  # around (0, 0)
    "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z",
    "M-4-4H4V4H-4Z",
    "M0-5L5 4H-5Z",
    "M0-5L5 0L0 5L-5 0Z",
    "M0 5L5-4H-5Z",
    "M-4-4L4 4M4-4L-4 4",
)

Points = Sequence[tuple[float, float | None]]  # (round, value); None = not known


def known(points: Points) -> list[tuple[float, float]]:
    """Return the points that can be drawn."""
    return [(x, y) for x, y in points if y is not None and isfinite(y)]


def ticks(low: float, high: float, max_steps: int = 6) -> list[float]:
    """Return at most `max_steps` + 1 round numbers from at most `low` to at least `high`.

    The distance between them is 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> ticks(0.31, 0.88)
    [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    """
    high = high if high > low else low + (abs(low) or 1.0)
    power = 10.0 ** floor(log10((high - low) / max_steps))
    for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
        # Up to rounding: a bound that is a multiple of the step gets no tick beyond it.
        first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
        if last - first < max_steps:
            break
    # 0.3 and not 0.30000000000000004.
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def line_chart(
    name: str,
    title: str,
    text: str,
    unit: str,
    lines: Mapping[str, Points],
    low: float | None = None,
) -> Markup:
    """Return lines over rounds as SVG; "" if no value is known.

    Parameters
    ----------
    name : id of the element, unique in a page
    title, text : what a screen reader reads: what the chart shows, and its most important numbers
    unit : unit of the values, above the axis
    low : start of the axis; None = near the smallest value
    """
    curves = {key: known(points) for key, points in lines.items() if known(points)}
    if not curves:
        return Markup("")
    points = [point for curve in curves.values() for point in curve]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    marks = ticks(min(y for _, y in points) if low is None else low, max(y for _, y in points))
    names = _legend(list(curves))
    top = names[-1][1] + _BELOW_LEGEND if names else _TOP
    wide, high, below = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM, top + _HEIGHT - _TOP

    def at(x: float, y: float) -> tuple[float, float]:
        # A single round is in the middle.
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
    for place, curve in enumerate(curves.values()):
        parts += _curve(place % len(_MARKS), [at(*point) for point in curve])
    for place, (key, (start, y)) in enumerate(zip(curves, names, strict=False)):
        parts += _curve(place % len(_MARKS), [(start, y), (start + 28, y)])
        parts.append(_text(start + 36, y + 4, key))
    titles = [part("title", title, id=f"{name}-title"), part("desc", text, id=f"{name}-text")]
    root = part("svg", *titles, *parts, role="img", class_="chart lines")
    root[1]["viewBox"] = f"0 0 {_WIDTH} {below:.0f}"
    root[1] |= {"width": f"{_WIDTH}", "height": f"{below:.0f}"}
    root[1]["aria-labelledby"] = f"{name}-title {name}-text"
    return markup(root)


def _legend(lines: Sequence[str]) -> list[tuple[float, float]]:
    """Return where the name of each line begins, in rows above the axes; a single line has none."""
    if len(lines) == 1:
        return []
    places: list[tuple[float, float]] = []
    start, y = 6.0, 28.0
    for line in lines:
        wide = 36 + _LETTER * len(shortened(line, _MAX_LETTERS))
        if places and start + wide > _WIDTH:
            start, y = 6.0, y + 22
        places.append((start, y))
        start += wide + 16
    return places


def _curve(style: int, points: Sequence[tuple[float, float]]) -> list[Part]:
    """Return a line with at most about twelve markers."""
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


def _text(x: float, y: float, text: str, anchor: str = "start") -> Part:
    return part("text", shortened(text, _MAX_LETTERS), x=x, y=y, text_anchor=anchor)
