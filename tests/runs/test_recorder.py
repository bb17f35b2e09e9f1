"""Which model a run keeps, and what is said of it where no client has validation nodes."""

import json
import logging

import pytest
import torch
from support.edge_cases import Draft

from dance_flwr.api.bundle import export
from dance_flwr.api.predicting import Predictor
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.metrics import Counts
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.recorder import Recorder
from dance_flwr.runs.result import read_history
from dance_flwr.runs.run import read_status
from dance_flwr.runs.tracking import final_numbers

KEYS = {"partition": "random", "clients": 2, "rounds": 2, "method": "fedavg-full"}
LINE = "no client has validation nodes: the last model is kept"


@pytest.fixture
def data(crafted):
    return crafted("edge", *Draft().without(VAL).parts())


def test_without_validation_nodes_the_last_model_is_kept(run, data, caplog):
    with caplog.at_level(logging.WARNING, "flwr"):
        finished = run(data=data, **KEYS)
    assert [record.getMessage() for record in caplog.records] == [LINE]
    result, first = finished.result, run(data=data, **{**KEYS, "rounds": 1}).result
    assert (result["best_round"], result["val_nodes"], result["val_accuracy"]) == (2, 0, None)
    assert result["model_fingerprint"] != first["model_fingerprint"]
    rows = read_history(finished.folder)
    assert [(row.val_accuracy, row.val_macro_f1, row.views) for row in rows] == [
        (None, None, {})
    ] * 2


def test_where_nothing_was_validated_it_is_said(run, data, tmp_path, cli):
    finished = run(data=data, **KEYS)
    status = read_status(finished.folder)
    assert (status.val_accuracy, status.best_round) == (None, None)
    shown = cli("status", finished.folder).out
    assert "accuracy    no round was validated" in shown and "best" not in shown
    export(finished.folder, tmp_path / "bundle")
    card = " ".join((tmp_path / "bundle" / "README.md").read_text("utf-8").split())
    assert "the last, as none was validated" in card
    assert "best on validation" not in card


@pytest.mark.parametrize(("objective", "best"), [("accuracy", 1), ("macro-f1", 2)])
def test_the_objective_chooses_the_best_round(run_config, tmp_path, objective, best):
    """Round 1 has 8 of 10 right, all of class 0; round 2 has 7, of both classes."""
    rounds = [
        Counts({"deployed": 8}, 10, [8, 0], [10, 0], [8, 2]),
        Counts({"deployed": 7}, 10, [5, 2], [5, 5], [8, 2]),
    ]
    config = run_config(method="fedavg-full", objective=objective)
    recorder = Recorder(tmp_path, Checkpoint("", config), lambda: ({}, {}))
    for number, counts in enumerate(rounds, 1):
        recorder.on_validation(counts)
        recorder.end_round(number, {"w": torch.full((1,), float(number))})
    assert recorder.best_round == best
    result = recorder.write({0: {"val": rounds[1], "test": rounds[1]}}, {})
    assert result["test_balanced_accuracy"] == pytest.approx((5 / 8 + 1) / 2)
    assert result["test_worst_client"] == pytest.approx(0.7)
    assert recorder.best_state["w"].item() == best


@pytest.fixture
def unmeasured(run, crafted):
    """A run without validation nodes and without test nodes."""
    return run(data=crafted("edge", *Draft().without(VAL, TEST).parts()), **KEYS)


def test_where_nothing_was_measured_every_score_is_null(unmeasured):
    result = json.loads((unmeasured.folder / "result.json").read_text("utf-8"))
    assert (result["test_nodes"], result["val_nodes"]) == (0, 0)
    for name in ("test_accuracy", "val_accuracy", "test_macro_f1"):
        assert result[name] is None
    assert set(result["test_accuracy_by_view"].values()) == {None}
    for row in result["clients"]:
        assert row["test_accuracy"] is None and row["val_accuracy"] is None
    numbers = final_numbers(result)
    assert set(numbers) == {"final/seconds_total"}


def test_every_reader_of_a_result_takes_null(unmeasured, tmp_path, cli):
    assert cli("status", unmeasured.folder).code == 0
    shown = cli("report", unmeasured.folder).out
    assert "not measured: no client has test nodes" in shown and "0.0000" not in shown
    assert read_status(unmeasured.folder).test_accuracy is None
    bundle = export(unmeasured.folder, tmp_path / "bundle")
    card = (tmp_path / "bundle" / "README.md").read_text("utf-8")
    assert "not measured: no client has test nodes" in card
    assert "test accuracy not measured" in repr(Predictor(bundle))
