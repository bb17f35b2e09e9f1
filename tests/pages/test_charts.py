"""Charts: their marks are where the numbers say, and no text in them is markup."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.api.evaluation import Confusion
from dance_flwr.pages.charts import line_chart, ticks
from dance_flwr.pages.document import environment
from dance_flwr.pages.run_sections import Cell, _confusion

HOSTILE = "</svg><script>alert(1)</script>\" '&amp;"


def chart(lines, unit=HOSTILE, low=None):
    return line_chart("one", HOSTILE, HOSTILE, unit, lines, low)


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e6), st.integers(2, 9))
def test_ticks_cover_the_values_and_are_few_and_even(low, wide, most):
    marks = ticks(low, low + wide, most)
    span = (low + wide) - low or abs(low) or 1.0
    assert len(marks) <= most + 1
    assert marks[0] <= low + 1e-6 * (abs(low) + span)
    assert marks[-1] >= low + wide - 1e-6 * (abs(low) + span)
    gaps = [b - a for a, b in pairwise(marks)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-3, abs=1e-6 * (abs(low) + span))


def points_of(path):
    return [tuple(map(float, pair.split())) for pair in path[1:].split("L")]


def test_a_line_goes_through_its_values():
    points = [(1, 0.0), (2, None), (3, 10.0), (4, float("nan")), (5, 5.0)]
    root = ElementTree.fromstring(chart({HOSTILE: points}, low=0.0))
    drawn = points_of(next(p for p in root.iter("path") if "line" in p.get("class")).get("d"))
    assert len(drawn) == 3
    (x1, y1), (x3, y3), (x5, y5) = drawn
    assert x3 - x1 == pytest.approx(x5 - x3) and y1 - y5 == pytest.approx(y5 - y3)
    assert y3 < y5 < y1  # larger is higher
    assert not list(root.iter("script"))


def test_nothing_known_is_no_chart():
    assert chart({"a": [(1, None)]}) == ""
    assert chart({"a": [(1, 2.0)]}).startswith("<svg")  # one round


@pytest.fixture
def bar():
    """The macro of a bar; it returns its rectangle and its path, as parsed."""
    template = environment().get_template("tables.html.j2")

    def draw(cell, longest):
        root = ElementTree.fromstring(str(template.module.bar(cell, longest)))
        return root.find("rect"), root.find("path")

    return draw


def test_bars_are_as_long_as_their_values(bar):
    widths = [float(bar(Cell("", value), 4.0)[0].get("width")) for value in (1.0, 2.0, 4.0)]
    assert widths == pytest.approx([37.5, 75, 150])


def test_an_interval_lies_around_the_end_of_its_bar(bar):
    rect, path = bar(Cell("80 %", 0.8, (0.5, 0.9)), 1.0)
    start, wide = float(rect.get("x")), float(rect.get("width")) / 0.8
    low, high = (float(place) for place in re.findall(r"M([0-9.]+) [0-9.]+v", path.get("d")))
    assert (low, high) == pytest.approx((start + 0.5 * wide, start + 0.9 * wide), abs=0.2)


def test_a_table_shows_every_count_shaded_by_its_share_of_the_row():
    table = _confusion(Confusion(["a", HOSTILE], [[3, 1], [0, 0]])).tables[0]
    cells = [[(cell.text, cell.kind) for cell in row[1:]] for row in table.rows]
    assert cells == [
        [("3", "shade-4 right"), ("1", "shade-2")],
        [("0", "shade-0"), ("0", "shade-0 right")],
    ]


def test_names_of_lines_stand_above_the_axes():
    lines = {f"a line with a long name {k}": [(1, 0.0), (2, 1.0)] for k in range(5)}
    root = ElementTree.fromstring(chart(lines, "loss"))
    top = min(float(line.get("y1")) for line in root.iter("line"))
    names = [float(text.get("y")) for text in root.iter("text") if "a line" in text.text]
    assert len(names) == 5 and max(names) + 5 < top
    alone = ElementTree.fromstring(chart({"a line": [(1, 0.0)]}, "loss"))
    assert not [text for text in alone.iter("text") if "a line" in text.text]  # the axis says it


def test_a_screen_reader_hears_title_and_text():
    root = ElementTree.fromstring(chart({"a": [(1, 1.0)]}))
    named = root.get("aria-labelledby").split()
    found = {element.get("id"): element.text for element in root}
    assert root.get("role") == "img" and [found[name] for name in named] == [HOSTILE, HOSTILE]
