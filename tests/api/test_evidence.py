"""Evidence in Python: spans that are the source's own characters, and HTML that obeys nobody."""

from hashlib import sha256
from html import unescape

import pytest
from support.graphs import text_graph

HOSTILE = "<script>alert(1)</script> </pre> <img src=http://example.org/x> {{ 7 * 7 }} &amp; ⟦mark⟧"


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


def test_a_notebook_shows_the_first_nodes_with_their_spans_marked(model, graph):
    html = model.explain(graph, range(5))._repr_html_()
    evidence = model.explain(graph, range(3))
    shown = unescape(html)
    assert html.count("<") == 2 and html.startswith("<pre") and html.endswith("</pre>")
    assert "5 nodes, the first 3 are shown" in shown and model.model_id in shown
    for node in evidence:
        assert f"Evidence of node {node.id!r}" in shown
        assert (
            f"⟦[1] {node.spans[0].weight:.3f}: {node.spans[0].text.partition(chr(10))[0]}" in shown
        )


def test_hostile_text_is_text(model):
    graph = text_graph("one", ["<b>"], [HOSTILE], [-1], [])
    html = model.explain(graph, 0)._repr_html_()
    assert html.count("<") == 2 and "alert(1)" in html
