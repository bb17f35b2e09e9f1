"""Texts of record: where texts of edges stand in those of nodes, and what is chunked and stored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graphs import SMALL, knowledge_graph

from dance_flwr.config.tree import parse
from dance_flwr.data.card import read_card, read_texts
from dance_flwr.data.digests import check_files
from dance_flwr.data.edge_spans import edge_spans
from dance_flwr.data.graphs.edges import EdgeTexts
from dance_flwr.data.graphs.folder import read_folder, write_folder
from dance_flwr.data.institution import write_whole
from dance_flwr.data.prepare import prepare, text_bank
from dance_flwr.data.text.bank import TextBank
from dance_flwr.data.text_record import TextRecord
from dance_flwr.errors import DataError


def edges(*rows):
    source, target, texts = zip(*rows, strict=True)
    return EdgeTexts(np.array(source), np.array(target), texts)


def test_a_record_by_hand():
    nodes = ["Ada.", "", "Größe 🜁"]
    record = TextRecord.of(nodes, edges((0, 2, "knows"), (1, 0, "cites: İ"), (2, 0, "knew")))
    assert record.texts == [
        "Ada.\n\nknows\n\ncites: İ\n\nknew",
        "cites: İ",
        "Größe 🜁\n\nknows\n\nknew",
    ]
    spans = record.spans
    rows = zip(spans.node, spans.start, spans.end, spans.other, spans.edge, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [
        *((0, 6, 11, 2, 0), (0, 13, 21, 1, 1), (0, 23, 27, 2, 2)),
        (1, 0, 8, 0, 1),
        *((2, 9, 14, 0, 0), (2, 16, 20, 0, 2)),
    ]
    assert record.encoded == [*nodes, "knows\n\ncites: İ\n\nknew", "cites: İ", "knows\n\nknew"]
    assert spans.others_in(0, 0, 4) == [] and spans.others_in(0, 6, 27) == [2, 1]
    assert spans.others_in(0, 11, 13) == [] and spans.others_in(0, 20, 24) == [1, 2]
    assert spans.others_in(5, 0, 9) == [] and spans.first_start(2) == 9


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    config = parse(SMALL)
    spec = text_bank(config).spec
    return TextBank(tmp_path_factory.mktemp("bank"), spec, config.chunk_tokens, config.max_chunks)


PIECES = st.sampled_from(["Ada", "knows.", "\n\n", " ", "café", "🜁", "the engine", "."])
TEXT = st.lists(PIECES, max_size=30).map(" ".join)


@st.composite
def records(draw):
    nodes = draw(st.lists(TEXT, min_size=2, max_size=4))
    node = st.integers(0, len(nodes) - 1)
    relation = TEXT.filter(lambda text: text.strip())
    pairs = st.tuples(node, node).filter(lambda pair: pair[0] != pair[1])
    rows = draw(st.lists(st.tuples(pairs, relation), min_size=1, max_size=12))
    return nodes, edges(*((a, b, text) for (a, b), text in rows))


@given(records())
def test_texts_of_edges_stand_as_given_and_no_chunk_holds_both(bank, case):
    nodes, relations = case
    record = TextRecord.of(nodes, relations)
    texts, spans = record.texts, record.spans
    assert sorted(spans.edge.tolist()) == sorted(2 * list(range(len(relations))))
    for node, start, end, other, edge in zip(
        *(getattr(spans, name).tolist() for name in ("node", "start", "end", "other", "edge")),
        strict=True,
    ):
        assert texts[node][start:end] == relations.texts[edge]
        assert {node, other} == {int(relations.source[edge]), int(relations.target[edge])}
    bank.ensure(record.encoded, progress=False)
    part, alone = record.gather(bank), bank.gather(nodes)
    for node, text in enumerate(nodes):
        chunks = part.spans[part.ptr[node] : part.ptr[node + 1]].tolist()
        first = spans.first_start(node)
        before = [chunk for chunk in chunks if first is None or chunk[1] <= first]
        after = chunks[len(before) :]
        assert all(start >= first for start, _ in after), "a chunk crosses the border"
        assert chunks == sorted(chunks) and len(before) <= 4 and len(after) <= 4
        expected = alone.spans[alone.ptr[node] : alone.ptr[node + 1]].tolist()
        if text.strip() or first is None:
            assert before == expected
            rows = slice(int(part.ptr[node]), int(part.ptr[node]) + len(before))
            of_node = slice(int(alone.ptr[node]), int(alone.ptr[node + 1]))
            assert part.embeddings[rows].tobytes() == alone.embeddings[of_node].tobytes()
        else:
            assert before == [] and after, "an empty text leaves no chunk beside those of edges"


@pytest.fixture(scope="module")
def relations(tiny, tmp_path_factory):
    """The folder of the tiny graph with texts and weights of edges, and that graph."""
    folder = tmp_path_factory.mktemp("relations") / "relations"
    graph = knowledge_graph(read_folder(tiny))
    write_folder(graph, folder)
    return folder, graph


@pytest.fixture(scope="module")
def prepared(relations, run_config):
    return prepare(run_config(data=str(relations[0]))).folder


def test_a_client_stores_the_texts_of_edges_inside_it_alone(relations, prepared):
    graph, stored = relations[1], 0
    for client in range(3):
        folder = prepared / f"client-{client}"
        card = check_files(folder)
        assert {"edge_texts.parquet", "arrays/weights.npy"} <= card.files.keys()
        texts, spans = read_texts(folder), edge_spans(folder, card)
        paragraphs = [
            texts[node][start:end]
            for node, start, end in zip(spans.node, spans.start, spans.end, strict=True)
        ]
        assert {*paragraphs} <= {*graph.edge_texts.texts}
        stored += len(paragraphs)
        local = read_folder(folder)
        ids = {name: row for row, name in enumerate(graph.ids.tolist())}
        held = {ids[name] for name in local.ids.tolist()}
        inside = [
            text
            for a, b, text in zip(
                graph.edge_texts.source,
                graph.edge_texts.target,
                graph.edge_texts.texts,
                strict=True,
            )
            if {int(a), int(b)} <= held
        ]
        assert sorted(paragraphs) == sorted(2 * inside)
        outside = {*graph.edge_texts.texts} - {*inside}
        assert not any(text in stored_text for text in outside for stored_text in texts)
        assert local.weights.tobytes() == np.load(folder / "arrays" / "weights.npy").tobytes()
    assert 0 < stored < 2 * len(graph.edge_texts)


@pytest.mark.parametrize("file", ["edge_texts.parquet", "arrays/weights.npy"])
def test_a_file_that_the_card_does_not_list_is_not_read(tiny, run_config, tmp_path, file):
    graph = read_folder(tiny)
    write_whole(graph, run_config(), tmp_path / "client")
    assert file not in (card := read_card(tmp_path / "client")).files
    (tmp_path / "client" / file).write_bytes(b"not even such a file")
    assert edge_spans(tmp_path / "client", card) is None


def test_a_table_that_is_gone_or_damaged_is_named(relations, run_config, tmp_path):
    write_whole(relations[1], run_config(), folder := tmp_path / "client")
    card = read_card(folder)
    for change in (lambda path: path.write_bytes(b"PAR1"), lambda path: path.unlink()):
        change(folder / "edge_texts.parquet")
        with pytest.raises(DataError, match="expected where the texts of edges lie, found"):
            edge_spans(folder, card)
        with pytest.raises(DataError, match=r"edge_texts\.parquet: expected the file that"):
            check_files(folder)


def test_foreign_texts_are_refused_with_texts_of_edges(relations, run_config):
    config = run_config(data=str(relations[0]), foreign_text_ratio=0.5)
    with pytest.raises(DataError, match="expected a graph without texts of edges, found"):
        prepare(config)
