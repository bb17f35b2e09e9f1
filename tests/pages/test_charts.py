"""Charts: their marks are where the numbers say, and no text in them is markup."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.pages.charts import Amount, Chart, Line, bar, bar_grid, line_chart, matrix, ticks

HOSTILE = "</svg><script>alert(1)</script>\" '&amp;"
CHART = Chart("one", HOSTILE, HOSTILE)


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
    lines = [Line(HOSTILE, [(1, 0.0), (2, None), (3, 10.0), (4, float("nan")), (5, 5.0)])]
    root = ElementTree.fromstring(line_chart(CHART, lines, HOSTILE, 0.0))
    drawn = points_of(next(p for p in root.iter("path") if "line" in p.get("class")).get("d"))
    assert len(drawn) == 3
    (x1, y1), (x3, y3), (x5, y5) = drawn
    assert x3 - x1 == pytest.approx(x5 - x3) and y1 - y5 == pytest.approx(y5 - y3)
    assert y3 < y5 < y1  # larger is higher
    assert not list(root.iter("script"))


def test_nothing_known_is_no_chart():
    assert line_chart(CHART, [Line("a", [(1, None)])], "loss") == ""
    assert bar_grid(CHART, ["a"], ["b"], [[None]]) == ""
    assert line_chart(CHART, [Line("a", [(1, 2.0)])], "loss").startswith("<svg")  # one round


def test_bars_are_as_long_as_their_values():
    amounts = [[Amount(1.0, "1"), Amount(2.0, "2")], [None, Amount(4.0, "4")]]
    svg = bar_grid(CHART, [HOSTILE, "b"], [HOSTILE, "y"], amounts)
    root = ElementTree.fromstring(svg)
    widths = [float(bar.get("width")) for bar in root.iter("rect")]
    assert widths == pytest.approx([widths[2] / 4, widths[2] / 2, widths[2]])
    assert {"1", "2", "4", "-"} <= {text.text for text in root.iter("text")}
    assert not list(root.iter("script"))


@pytest.mark.parametrize("draw", [bar, lambda amount: bar_grid(CHART, ["a"], [""], [[amount]], 1)])
def test_an_interval_lies_around_the_end_of_its_bar(draw):
    root = ElementTree.fromstring(draw(Amount(0.8, "80 %", (0.5, 0.9))))
    (rect,) = (one for one in root.iter("rect"))
    (path,) = (one.get("d") for one in root.iter("path"))
    start, wide = float(rect.get("x")), float(rect.get("width")) / 0.8
    low, high = (float(place) for place in re.findall(r"M([0-9.]+) [0-9.]+v", path))
    assert (low, high) == pytest.approx((start + 0.5 * wide, start + 0.9 * wide), abs=0.2)
    for text in root.iter("text"):
        assert text.text != "80 %" or float(text.get("x")) > high


def test_names_of_lines_stand_above_the_axes():
    lines = [Line(f"a line with a long name {k}", [(1, 0.0), (2, 1.0)]) for k in range(5)]
    root = ElementTree.fromstring(line_chart(CHART, lines, "loss"))
    top = min(float(line.get("y1")) for line in root.iter("line"))
    names = [float(text.get("y")) for text in root.iter("text") if "a line" in text.text]
    assert len(names) == 5 and max(names) + 5 < top
    alone = ElementTree.fromstring(line_chart(CHART, lines[:1], "loss"))
    assert not [text for text in alone.iter("text") if "a line" in text.text]  # the axis says it


def test_a_matrix_shows_every_count_and_shades_by_share_of_the_row():
    svg = matrix(CHART, ["a", HOSTILE], [[3, 1], [0, 0]])
    root = ElementTree.fromstring(svg)
    shades = [float(cell.get("fill-opacity")) for cell in root.iter("rect")]
    assert shades == pytest.approx([0.35 * 3 / 4, 0.35 / 4, 0, 0], abs=1e-3)
    texts = [text.text for text in root.iter("text")]
    assert [text for text in texts if text in "301"].count("0") == 2 and "3" in texts
    rights = [cell for cell in root.iter("rect") if "right" in cell.get("class").split()]
    assert len(rights) == 2


def test_a_screen_reader_hears_title_and_text():
    root = ElementTree.fromstring(matrix(CHART, ["a"], [[1]]))
    named = root.get("aria-labelledby").split()
    found = {element.get("id"): element.text for element in root}
    assert root.get("role") == "img" and [found[name] for name in named] == [HOSTILE, HOSTILE]
