"""A run on a graph of relations: evidence points into texts of edges, and altering them shows."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.graphs import knowledge_graph

from dance_flwr.api.bundle import export
from dance_flwr.api.predicting import show_node
from dance_flwr.api.prediction_table import predict, verify
from dance_flwr.data.card import read_card
from dance_flwr.data.digests import write_card
from dance_flwr.data.graphs.folder import read_folder, write_folder
from dance_flwr.errors import UserError
from dance_flwr.evidence.pack import Packs
from dance_flwr.pages import audit
from dance_flwr.pages.audit import open_run
from dance_flwr.pages.document import unpacked
from dance_flwr.runs.evidence import show_evidence, verify_evidence


@pytest.fixture(scope="module")
def finished(run, tiny, tmp_path_factory):
    """Three rounds on the tiny graph with texts and weights of edges."""
    folder = tmp_path_factory.mktemp("relations") / "relations"
    write_folder(knowledge_graph(read_folder(tiny)), folder)
    return run(data=str(folder), rounds=3, dance_text_refresh_every=1)


def cited(finished, client):
    """(row of the pack, node, start, end, other ends) of each span in a text of an edge."""
    data = finished.data(client)
    packs = Packs.load(finished.store(client).final_path)
    for row in range(len(packs.nodes)):
        entries = packs.chunks_of(row)
        spans = zip(packs.chunk_nodes[entries], packs.chunk_spans[entries], strict=True)
        for node, (start, end) in spans:
            if others := data.edge_spans.others_in(int(node), int(start), int(end)):
                yield row, int(node), int(start), int(end), others


def test_spans_in_texts_of_edges_verify(finished):
    spans = [span for client in range(3) for span in cited(finished, client)]
    assert len(spans) > 5, "evidence points into texts of edges"
    lines: list[str] = []
    verify_evidence(finished.folder, None, lines.append)
    assert lines[-1] == "evidence verified"


def test_a_pack_says_from_which_edge_a_span_is(finished):
    data = finished.data(0)
    packs, ids, texts = Packs.load(finished.store(0).final_path), data.ids(), data.texts()
    row, node, start, end, others = next(cited(finished, 0))
    text = show_evidence(finished.folder, 0, ids[packs.nodes[row]], None)
    edges = "edge" if len(others) == 1 else "edges"
    names = ", ".join(repr(ids[other]) for other in others[:3])
    assert f", from the {edges} to {names}" in text.replace("\n| ", "\n")
    assert texts[node][start:end].partition("\n")[0] in text
    # A span of a node's own text is not said to be of an edge.
    packs_row = packs.chunks_of(row)
    of_edges = sum(at[0] == row for at in cited(finished, 0))
    assert text.count(", from the edge") == of_edges < packs_row.stop - packs_row.start


def test_a_new_graph_is_read_alike(finished, tmp_path):
    """Its texts of edges are evidence, too, and `predict --evidence` is verified against them."""
    graph, said = str(finished.config.data), []
    bundle = export(finished.folder, tmp_path / "bundle")
    lines = tmp_path / "evidence.jsonl"
    predict(bundle, graph, tmp_path / "table.parquet", lines, log=said.append)
    verify(bundle, graph, evidence=lines, log=said.append)
    assert "evidence verified" in said[-1]
    text = show_node(bundle, graph, read_folder(Path(graph)).ids[0], said.append)
    assert ", from the edge" in text


def test_the_page_says_from_which_edge_a_span_is(finished, tmp_path):
    data, packs = finished.data(0), Packs.load(finished.store(0).final_path)
    row, node, start, end, others = next(cited(finished, 0))
    name = data.ids()[packs.nodes[row]]
    with open_run(finished.folder, 0, None, lambda line: None) as subject:
        path = audit.write_page(subject, tmp_path / "audit.html", [name], 4, lambda line: None)
    blocks = re.findall(
        r'<script type="application/gzip" id="data-(pack-[^"]+)">([^<]*)</script>',
        path.read_text("utf-8"),
    )
    spans = {
        (article["node"], *span["characters"]): span["edge"]
        for _, block in blocks
        for pack in unpacked(block).values()
        for article in pack["articles"]
        for span in article["spans"]
    }
    assert repr(data.ids()[others[0]]) in spans[node, start, end]
    assert spans[node, start, end].startswith("from the edge")
    for (at, first, last), note in spans.items():
        assert bool(note) == bool(data.edge_spans.others_in(at, first, last))


def test_weights_and_texts_of_edges_change_the_model(finished, run, tmp_path):
    graph = read_folder(Path(finished.config.data))
    models = {finished.result["model_fingerprint"]}
    for name in ("weights", "edge_texts"):
        write_folder(replace(graph, **{name: None}), tmp_path / name)
        keys = {"data": str(tmp_path / name), "rounds": 3, "dance_text_refresh_every": 1}
        models.add(run(**keys).result["model_fingerprint"])
    assert len(models) == 3


@pytest.fixture
def altered(finished, tmp_path):
    """A function that alters a copy of client 0's folder, and returns what verification says."""

    def verify(change):
        folder = tmp_path / "client-0"
        shutil.copytree(finished.partition / "client-0", folder)
        change(folder)
        with pytest.raises(UserError) as error:
            verify_evidence(finished.folder, folder, print)
        return str(error.value)

    return verify


def flipped(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_one_byte_of_the_table_or_of_a_text_shows(altered):
    message = altered(lambda folder: flipped(folder / "edge_texts.parquet", 200))
    assert "edge_texts.parquet: expected the file that client.json describes" in message


def test_a_table_under_a_new_card_shows(altered):
    """Whoever alters the table can write the card again, but not what the run recorded of it."""

    def change(folder):
        table = pq.read_table(folder / "edge_texts.parquet")
        other = np.roll(table["other"].to_numpy(), 1)
        place = table.schema.get_field_index("other")
        pq.write_table(table.set_column(place, "other", [other]), folder / "edge_texts.parquet")
        card = read_card(folder)
        write_card(folder, card)
        assert json.loads((folder / "client.json").read_text())["files"] != card.files

    assert "expected the data" in altered(change)
