"""Frames of a result and of its history, and methods that are not registered."""

from dataclasses import replace

import pandas
import pytest
from support.graphs import SMALL

from dance_flwr.api import federate
from dance_flwr.config.plugins import METHODS
from dance_flwr.methods import get_spec
from dance_flwr.runs.run import latest_run

KEYS = SMALL | {"rounds": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_result_has_a_row_per_client_and_per_round(tiny):
    result = federate(str(tiny), KEYS, out="run", progress=False)
    clients, rounds = pandas.DataFrame(result.clients), pandas.DataFrame(result.history)
    assert clients["client"].tolist() == [0, 1, 2][: len(clients)] and len(clients) > 1
    assert clients["test_accuracy"].tolist() == [row["test_accuracy"] for row in result.clients]
    assert rounds["round"].tolist() == [1, 2]
    assert latest_run() == result.folder.resolve()


def test_a_method_object_needs_no_registration(tiny, monkeypatch):
    monkeypatch.setattr(METHODS, "builtin", dict(METHODS.builtin))
    spec = get_spec("fedavg-full")
    known = federate(str(tiny), KEYS, method=spec, out="known", progress=False)
    assert known.config.method == "fedavg-full"
    spec = replace(spec, client=type("Mine", (type(spec.make_client()),), {}))
    mine = federate(str(tiny), KEYS, method=spec, out="mine", progress=False)
    assert mine.config.method == "Mine" and mine.test_accuracy == known.test_accuracy
    assert mine.facts["model_fingerprint"] == known.facts["model_fingerprint"]
