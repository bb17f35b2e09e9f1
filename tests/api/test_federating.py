"""Federations in this process: numbers of the command line, institutions as clients, refusals."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
from support.edge_cases import Draft
from support.graphs import SMALL, text_graph

from dance_flwr.api import UserError, federate
from dance_flwr.api.federating import together
from dance_flwr.api.inputs import config_of
from dance_flwr.config.plugins import METHODS
from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.methods import get_spec
from dance_flwr.runs.result import read_result
from dance_flwr.runs.run import latest_run

KEYS = SMALL | {"rounds": 2}
ALONE = {key: value for key, value in KEYS.items() if key != "clients"}


@pytest.fixture(scope="module")
def result(tiny, tmp_path_factory):
    graph = replace(read_folder(tiny), name="../odd name/")
    return federate(graph, KEYS, out=tmp_path_factory.mktemp("runs") / "run", progress=False)


def test_a_result_has_a_row_per_client_and_per_round(result):
    clients, rounds = pandas.DataFrame(result.clients), pandas.DataFrame(result.history)
    assert clients["client"].tolist() == [0, 1, 2]
    assert clients["test_accuracy"].tolist() == [row["test_accuracy"] for row in result.clients]
    assert rounds["round"].tolist() == [1, 2]


def test_a_method_object_needs_no_registration(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(METHODS, "builtin", dict(METHODS.builtin))
    spec = get_spec("fedavg-full")
    known = federate(str(tiny), KEYS, method=spec, out=tmp_path / "known", progress=False)
    assert known.config.method == "fedavg-full"
    assert latest_run() == known.folder.resolve()
    spec = replace(spec, client=type("Mine", (type(spec.make_client()),), {}))
    mine = federate(str(tiny), KEYS, method=spec, out=tmp_path / "mine", progress=False)
    assert mine.config.method == "Mine" and mine.test_accuracy == known.test_accuracy
    assert mine.facts["model_fingerprint"] == known.facts["model_fingerprint"]


@pytest.mark.parametrize("keys", [{}, {"overwrite": True}])
@pytest.mark.parametrize("name", ["bundle/mine.txt", "data/mine.txt", "mine.txt"])
def test_a_folder_that_no_run_made_is_refused_and_kept(tiny, tmp_path, name, keys):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("precious")
    for graphs in (read_folder(tiny), str(tiny)):
        with pytest.raises(UserError, match=r"expected a new or empty folder, found .*; choose"):
            federate(graphs, KEYS | keys, out=tmp_path, progress=False)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept == [tmp_path / name] and kept[0].read_text() == "precious"


def test_a_run_of_ours_is_replaced_on_request_alone(tiny, tmp_path):
    keys, graph = SMALL | {"rounds": 1}, read_folder(tiny)
    first = federate(graph, keys, out=tmp_path / "run", progress=False)
    assert first.model.model_id == first.facts["model_fingerprint"]
    (first.folder / "result.json").rename(first.folder / "history.jsonl")  # as if it was stopped
    with pytest.raises(UserError, match=r"new or empty folder, found .* key `overwrite`"):
        federate(graph, keys, out=first.folder, progress=False)
    keys |= {"overwrite": True, "seed": 1}
    second = federate(graph, keys, out=first.folder, progress=False)
    assert second.model.model_id == second.facts["model_fingerprint"] != first.model.model_id
    for path in (first.folder / "bundle").iterdir():
        path.unlink()
    (first.folder / "bundle" / "mine.txt").write_text("precious")
    federate(graph, keys, out=first.folder, progress=False)
    assert (first.folder / "bundle" / "mine.txt").read_text() == "precious"


def test_data_that_cannot_be_prepared_leave_no_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    graph = institution(["a"], [0])
    for name in ("new/run", "empty"):
        with pytest.raises(UserError, match="one node per client"):
            federate(graph, {"clients": 3}, out=tmp_path / name, progress=False)
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["empty"]


def test_a_run_gives_the_numbers_of_the_command(result, tiny, run):
    assert read_folder(tiny).name not in str(result.config.data)
    expected = run(rounds=2).result
    for name in ("test_accuracy", "val_accuracy", "test_macro_f1", "best_round"):
        assert result.facts[name] == pytest.approx(expected[name], abs=1e-9)
    assert result.test_accuracy == result.facts["test_accuracy"]
    assert [row["test_accuracy"] for row in result.clients] == pytest.approx(
        [row["test_accuracy"] for row in expected["clients"]]
    )
    assert [row.round for row in result.history] == [1, 2]
    written = read_result(result.folder)
    assert written["model_fingerprint"] == result.facts["model_fingerprint"]


def test_its_model_predicts_explains_and_is_exported(result, tmp_path):
    graph = read_folder(result.client_folders[0])
    assert len(result.client_folders) == 3 and result.model is result.model
    found = result.model.predict(graph)
    exported = result.export(tmp_path / "bundle")
    assert exported.model_id == result.model.model_id
    assert exported.predict(graph).predicted == found.predicted
    assert result.model.explain(result.client_folders[0], 0)[0].spans
    with pytest.raises(UserError, match="--out"):
        result.export(tmp_path / "bundle")


def test_each_institution_is_a_client(tiny, tmp_path):
    whole = read_folder(tiny)
    parts = [whole.subgraph(np.arange(start, 72, 2), f"site {start}") for start in (0, 1)]
    result = federate(parts, ALONE, out=tmp_path / "run", progress=False)
    assert result.config.clients == len(result.client_folders) == 2
    for folder, part in zip(result.client_folders, parts, strict=True):
        held = read_folder(folder)
        assert held.ids.tolist() == part.ids.tolist() and held.texts == part.texts
        assert held.num_edges == part.num_edges and held.split.any()


def institution(ids, labels, split=None, pairs=()):
    return text_graph("same", ids, ["text"] * len(ids), labels, list(pairs), split)


def test_institutions_with_the_same_ids_and_one_split():
    first = institution(["a", "b"], [0, 1], [TRAIN, NO_SPLIT], [(0, 1)])
    second = institution(["a", "c", "d", "e"], [2, 2, 2, 2])
    graph = together([first, second], config_of(None))
    assert graph.ids.tolist() == ["0/a", "0/b", "1/a", "1/c", "1/d", "1/e"]
    assert graph.site.tolist() == ["0", "0", "1", "1", "1", "1"]
    assert graph.split[:2].tolist() == [TRAIN, NO_SPLIT] and graph.split[2:].all()
    assert graph.num_edges == 1 and graph.indices.tolist() == [1, 0]


def test_classes_of_one_institution_alone_are_numbered_by_name():
    first = replace(institution(["a"], [0]), class_names=("zebra",))
    second = replace(institution(["b", "c"], [1, -1]), class_names=("lion", "zebra"))
    graph = together([first, second], config_of(None))
    assert graph.class_names == ("lion", "zebra") and graph.labels.tolist() == [1, 1, -1]


def test_institutions_keep_the_weights_and_texts_of_their_edges(tiny):
    """One without weights has equal ones, whatever the scale of the others."""
    from support.graphs import knowledge_graph

    plain = read_folder(tiny)
    graph = knowledge_graph(plain)
    whole = together([plain, graph], config_of(SMALL))
    first, second = (whole.subgraph(np.arange(72) + start, "part") for start in (0, 72))
    assert (first.weights == 1).all() and first.edge_texts is None
    assert second.weights.tobytes() == graph.weights.tobytes()
    assert second.edge_texts.texts == graph.edge_texts.texts
    assert (second.edge_texts.source == graph.edge_texts.source).all()
    assert together([plain, plain], config_of(SMALL)).weights is None


@pytest.mark.parametrize("part", [VAL, TEST], ids=["val", "test"])
def test_without_nodes_of_a_split_there_is_no_score_on_it(tmp_path, part):
    graph = text_graph("edge", *Draft().without(part).parts())
    keys = SMALL | {"rounds": 1, "clients": 2, "method": "fedavg-full"}
    result = federate(graph, keys, out=tmp_path / "run", progress=False)
    name, other = ("val", "test") if part == VAL else ("test", "val")
    assert getattr(result, f"{name}_accuracy") is None
    assert isinstance(getattr(result, f"{other}_accuracy"), float)
    assert (result.test_macro_f1 is None) == (part == TEST)
    for row in result.clients:
        assert row[f"{name}_accuracy"] is None and row[f"{other}_accuracy"] is not None
    assert ("without test nodes" in repr(result)) == (part == TEST)
