"""Evidence in Python: spans that are the source's own characters, and HTML that obeys nobody."""

from hashlib import sha256
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.api.node_evidence import Neighbour, NodeEvidence, Span
from dance_flwr.api.notebook import MAX_NODES, evidence_html, table_html

HOSTILE = (
    "<script>alert(1)</script> --> ]]> <img src=http://example.org/x onerror=alert(1)> "
    "</mark></article> {{ 7 * 7 }} {% raw %} \x1b[2J \u202egnp.exe \u2028 \ud800 &amp; ⟦mark⟧"
)


class Tags(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], [], ""
        self.marked, self._inside = [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "mark":
            self._inside = True
            self.marked.append("")

    def handle_endtag(self, tag):
        if tag == "mark":
            self._inside = False

    def handle_data(self, data):
        self.text += data
        if self._inside:
            self.marked[-1] += data


ALLOWED = {"div", "p", "code", "section", "h4", "bdi", "article", "b", "mark", "sup"}


def node_with(text, start, end, name="v", label="c"):
    """A node whose own text has one span."""
    span = Span(name, 0, start, end, text[start:end], 1.0, "")
    near = Neighbour(name, 0, 1.0, text, label, 0.5)
    return NodeEvidence(name, label, 0.9, {"fused": {label: 0.9, "d": 0.1}}, (near,), (span,))


def test_spans_are_the_characters_of_their_source(model, graph):
    evidence = model.explain(graph, range(graph.num_nodes))
    texts = dict(zip(graph.ids.tolist(), graph.texts, strict=True))
    assert len(evidence) == graph.num_nodes
    for node in evidence:
        assert sum(span.weight for span in node.spans) == pytest.approx(1, abs=1e-4)
        assert [span.weight for span in node.spans] == sorted(
            (span.weight for span in node.spans), reverse=True
        )
        hops = {near.id: near.hop for near in node.neighbours}
        assert hops[node.id] == 0
        for span in node.spans:
            assert span.text == texts[span.id][span.start : span.end]
            assert sha256(span.text.encode()).hexdigest() == span.sha256
            assert span.hop == hops[span.id]
        for near in node.neighbours:
            assert near.text == texts[near.id] and 0 < near.gate <= 1
    assert evidence[0] is evidence[graph.ids[0]] and evidence[:2] == list(evidence)[:2]


def test_the_page_of_a_run_marks_its_spans(model, graph):
    evidence = model.explain(graph, [0, 1])
    page = Tags(evidence._repr_html_())
    assert set(page.tags) <= ALLOWED
    shown = sorted(span.text for node in evidence for span in node.spans)
    assert sorted(page.marked) == shown
    assert "2 nodes" in page.text and model.model_id in page.text


def test_hostile_text_is_text():
    start, end = HOSTILE.index("<img"), HOSTILE.index("</mark>")
    node = node_with(HOSTILE, start, end, name="<b>id</b>", label='"><script>c</script>')
    html = evidence_html([node], 1, "<i>")
    html.encode()  # no half of a character is left
    page = Tags(html)
    assert set(page.tags) <= ALLOWED and {"src", "onerror", "href"}.isdisjoint(page.attributes)
    assert page.marked == [HOSTILE[start:end]]
    assert "<script>alert(1)</script>" in page.text and "{{ 7 * 7 }}" in page.text
    assert not any(mark in html for mark in "\x1b\u202e\u2028\ud800")
    assert "\\u202e" in page.text and "\\ud800" in page.text


@given(
    text=st.text(st.characters(exclude_characters="\r"), min_size=1, max_size=60),
    ends=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_any_text_keeps_its_tags_out(text, ends):
    start, end = sorted(min(place, len(text)) for place in ends)
    page = Tags(evidence_html([node_with(text, start, end, label=text)], 1, "m"))
    assert set(page.tags) <= ALLOWED


def test_a_million_characters_are_shown_around_their_spans():
    text = "a" * 500_000 + "NEEDLE" + "b" * 500_000
    html = evidence_html([node_with(text, 500_000, 500_006)], 1, "m")
    assert len(html) < 5_000 and "NEEDLE" in html and "…" in html


def test_many_nodes_are_counted_and_the_first_are_shown():
    nodes = [node_with("text", 0, 4, name=f"n{k}") for k in range(3 * MAX_NODES)]
    page = Tags(evidence_html(nodes, len(nodes), "m"))
    assert page.tags.count("section") == MAX_NODES and f"{3 * MAX_NODES} nodes" in page.text


def test_a_table_escapes_what_it_shows():
    html = table_html("<b>", [("<script>", 0.12345, 3)], ("a", "<b>", "c"))
    page = Tags(html)
    assert "script" not in page.tags and "<script>" in page.text and "0.1235" in page.text


def test_one_node_shows_itself(model, graph):
    page = Tags(model.explain(graph, 0)[0]._repr_html_())
    assert page.tags.count("section") == 1
