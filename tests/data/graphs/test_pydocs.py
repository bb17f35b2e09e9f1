"""The built-in graph of documentation."""

import numpy as np

from dance_flwr.data.graphs.graph import edge_homophily
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.text.chunking import chunk_texts
from dance_flwr.data.text.encoder import DEFAULT_ENCODER, resolve_encoder


def test_the_graph_is_as_the_guide_describes_it():
    graph = load_graph("pydocs")
    assert repr(graph) == "TextGraph('pydocs': 1,764 nodes, 3,626 edges, 10 classes)"
    assert np.diff(graph.indptr).min() >= 1 and graph.labels.min() == 0
    # labels must have to do with the edges, yet not decide them
    assert 0.5 < edge_homophily(graph) < 0.95
    tokenizer = resolve_encoder(DEFAULT_ENCODER, "float32").load_tokenizer()
    assert chunk_texts(graph.texts, tokenizer, 64, 8).tokens.sum() == 229_045


def test_texts_hold_neither_the_neighbours_nor_the_label():
    graph = load_graph("pydocs")
    text = "\n".join(graph.texts)
    assert "See Also\n---" not in text and ":func:`" not in text
    assert not any(name in one for name, one in zip(graph.ids, graph.texts, strict=True))
    areas = [graph.class_names[label] for label in graph.labels]
    named = zip(areas, graph.texts, strict=True)
    assert not any("." in area and area in one for area, one in named)
