"""Predictions and evidence in Python are those of the command line, number by number."""

import json

import pyarrow.parquet as pq
import pytest
from support.graphs import text_graph

from dance_flwr.api import Predictor, explain, load
from dance_flwr.data.graphs.folder import read_folder, write_folder


@pytest.fixture(scope="module")
def of_the_command(model, graph, tmp_path_factory):
    """What `dance-flwr predict` writes of this graph: the table and the lines of evidence."""
    from dance_flwr.api.prediction_table import predict

    folder = tmp_path_factory.mktemp("command")
    write_folder(graph, folder / "graph")
    table, lines = folder / "p.parquet", folder / "e.jsonl"
    predict(model.bundle, str(folder / "graph"), table, lines, log=lambda line: None)
    evidence = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    return folder / "graph", pq.read_table(table).to_pylist(), evidence


def test_predictions_equal_the_command(model, graph, of_the_command):
    folder, table, _ = of_the_command
    for source in (graph, folder, str(folder)):
        found = model.predict(source)
        assert len(found) == len(table)
        for row, expected in zip(found, table, strict=True):
            assert (row.id, row.predicted) == (expected["id"], expected["predicted"])
            assert row.probability == pytest.approx(expected["probability"], abs=1e-6)
            assert row.margin == pytest.approx(expected["margin"], abs=1e-6)
    assert list(found) == [found[row] for row in range(len(found))] == found[:]
    columns = found.to_dict()
    assert columns["id"] == graph.ids.tolist() and columns["predicted"] == found.predicted
    assert found.probabilities.sum(1).tolist() == pytest.approx([1] * len(found))


def test_evidence_equals_the_command(model, graph, of_the_command):
    _, _, lines = of_the_command
    chosen = [5, 0, 3]
    evidence = model.explain(graph, chosen)
    said = evidence.to_dict()
    assert json.loads(json.dumps(said))["model"] == model.model_id
    for node, place in zip(said["nodes"], chosen, strict=True):
        expected = lines[place]
        assert (node["id"], node["model"]) == (expected["id"], expected["model"])
        for stage, probs in expected["views"].items():
            assert node["views"][stage] == pytest.approx(probs, abs=1e-6)
        for mine, other in zip(node["spans"], expected["spans"], strict=True):
            assert {key: mine[key] for key in other if key != "weight"} == {
                key: value for key, value in other.items() if key != "weight"
            }
            assert mine["weight"] == pytest.approx(other["weight"], abs=1e-6)
        gates = [(n["id"], n["hop"]) for n in node["neighbours"]]
        assert gates == [(n["id"], n["hop"]) for n in expected["neighbours"]]


def test_a_folder_of_a_client_counts_its_training_labels(dance, model):
    folder = dance.partition / "client-2"
    evidence = explain(model, folder, [0, 1, 2, 3])
    labels = [n.training_label for node in evidence for n in node.neighbours if n.hop]
    assert any(label is not None for label in labels)
    whole = model.explain(read_folder(folder), [0, 1, 2, 3])
    assert all(n.training_label is None for node in whole for n in node.neighbours)


def test_models_in_every_form(model, graph):
    folder = model.bundle.folder
    ids = [explain(form, graph, 0).model_id for form in (model, folder, str(folder), model.bundle)]
    assert set(ids) == {model.model_id}
    assert isinstance(load(str(folder)), Predictor) and model.model_id in repr(model)


def test_a_node_without_edges_and_text(model):
    graph = text_graph("lone", ["x", "y"], ["", "comet galaxy"], [-1, -1], [])
    found = model.predict(graph)
    assert len(found) == 2 and found.probabilities.isfinite().all()
    alone = model.explain(graph, "x")
    assert not any(span.text for span in alone["x"].spans) and alone["x"].neighbours[0].gate == 1.0
    assert "<script" not in alone._repr_html_()
