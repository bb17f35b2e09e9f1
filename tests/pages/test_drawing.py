"""Drawings: bars and ego graphs as trees of parts."""

import pytest
from support.builders import ragged

from dance_flwr.pages.drawing import Bar, EgoNode, bars, edges_between, ego_graph

HOSTILE = "</svg><script>alert(1)</script>"


def parts_of(tree, tag):
    own = [tree] if tree[0] == tag else []
    inside = [child for child in tree[2:] if isinstance(child, list)]
    return own + [found for child in inside for found in parts_of(child, tag)]


def test_lengths_are_in_proportion_and_signs_on_their_side():
    drawn = bars("title", [Bar("a", 2.0, "2"), Bar("b", -1.0, "-1"), Bar("c", 0.0, "0")])
    a, b, c = (part[1] for part in parts_of(drawn, "rect"))
    (axis,) = (part[1]["x1"] for part in parts_of(drawn, "line"))
    assert a["x"] == pytest.approx(axis) and b["x"] + b["width"] == pytest.approx(axis)
    assert a["width"] == pytest.approx(2 * b["width"], abs=0.2)
    assert c["width"] > 0  # there, if thin


def test_nothing_to_draw_is_an_empty_drawing():
    drawn = bars("title", [])
    assert drawn[0] == "svg" and drawn[1]["aria-label"] == "title"
    assert not parts_of(drawn, "rect")


@pytest.fixture
def drawn():
    # A path 0-1-2 with 3 and 4 beside 1; 3 was rejected at hop 2, 4 selected there.
    rows = ragged([[1], [0, 2, 3, 4], [1], [1], [1]])
    nodes = [
        EgoNode(0, "zero", 0, 1.0, 1),
        EgoNode(1, HOSTILE, 1, 0.75, 2, "label"),
        EgoNode(4, "four", 2, 0.25, 3),
        EgoNode(3, "three", 2, 0.0),
    ]
    return ego_graph(nodes, rows, "name")


def test_the_width_of_a_line_is_the_gate(drawn):
    widths = [p[1]["stroke-width"] for p in parts_of(drawn, "line") if p[1]["class"] == "gate"]
    assert widths == [7.8, 3.2]


def test_hops_are_rings(drawn):
    marks = [part[1] for part in parts_of(drawn, "circle") if part[1].get("class") != "ring"]
    centre = 260.0
    radii = sorted(round(((m["cx"] - centre) ** 2 + (m["cy"] - centre) ** 2) ** 0.5) for m in marks)
    assert radii == [0, 225, 225]
    (square,) = (part[1] for part in parts_of(drawn, "rect"))  # has a training label
    assert abs(square["y"] + 13 - (centre - 125)) < 1


def test_only_evidence_is_a_link_and_what_was_rejected_says_so(drawn):
    links = parts_of(drawn, "a")
    assert sorted(link[1]["href"] for link in links) == ["#text-1", "#text-2", "#text-3"]
    titles = [part[2] for part in parts_of(drawn, "title")]
    assert [title for title in titles if "not used" in title] == [
        "three, neighbour of a neighbour, importance 0.000, not used"
    ]
    assert any(title.startswith(HOSTILE) for title in titles)  # text as text


def test_edges_are_found_once():
    rows = ragged([[1, 2], [0], [0, 3], [2]])
    assert sorted(edges_between([2, 0, 1], rows)) == [(0, 1), (1, 2)]
