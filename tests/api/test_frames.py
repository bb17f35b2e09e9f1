"""Frames of a result and of its history, comparisons, and methods that are not registered."""

from dataclasses import replace

import pytest
from support.graphs import SMALL

from dance_flwr.api import UserError, compare, federate
from dance_flwr.config.plugins import METHODS
from dance_flwr.methods import get_spec
from dance_flwr.runs.run import latest_run

KEYS = SMALL | {"rounds": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_frames_have_a_row_per_client_and_per_round(tiny):
    result = federate(str(tiny), KEYS, out="run", progress=False)
    clients, rounds = result.to_frame(), result.history.to_frame()
    assert clients["client"].tolist() == [0, 1, 2][: len(clients)] and len(clients) > 1
    assert clients["test_accuracy"].tolist() == [row["test_accuracy"] for row in result.clients]
    assert rounds["round"].tolist() == [1, 2]
    assert rounds["bytes_up"].tolist() == [sum(r.bytes_up.values()) for r in result.history]
    assert latest_run() == result.folder.resolve()


def test_without_pandas_the_error_names_it(tiny, monkeypatch):
    result = federate(str(tiny), KEYS, out="run", progress=False)
    monkeypatch.setattr("dance_flwr.api.result.find_spec", lambda name: None)
    for call in (result.to_frame, result.history.to_frame, lambda: compare(str(tiny), ["dance"])):
        with pytest.raises(UserError, match="expected the package pandas, found none; pip install"):
            call()


def test_methods_are_compared_over_seeds(tiny):
    table, figure = compare(str(tiny), ["fedavg-full", "local-only"], [0, 1], KEYS)
    assert len(table) == 2 * 2 * 2
    scores = table.groupby(["method", "seed"])["test_accuracy"].nunique()
    assert len(scores) == 4 and (scores == 1).all()
    (axes,) = figure.axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["fedavg-full", "local-only"]
    mean = table[table["method"] == "local-only"].groupby("round")["val_accuracy"].mean()
    assert axes.lines[1].get_ydata().tolist() == mean.tolist()


def test_a_method_object_needs_no_registration(tiny, monkeypatch):
    monkeypatch.setattr(METHODS, "builtin", dict(METHODS.builtin))
    spec = get_spec("fedavg-full")
    known = federate(str(tiny), KEYS, method=spec, out="known", progress=False)
    assert known.config.method == "fedavg-full"
    spec = replace(spec, client=type("Mine", (type(spec.make_client()),), {}))
    mine = federate(str(tiny), KEYS, method=spec, out="mine", progress=False)
    assert mine.config.method == "Mine" and mine.test_accuracy == known.test_accuracy
    assert mine.facts["model_fingerprint"] == known.facts["model_fingerprint"]
