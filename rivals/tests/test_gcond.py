"""GCond: condensed once, all rows labelled, stored by the client, tested on the real graph."""

import numpy as np
import pytest
import torch
from dance_flwr_rivals.condensation import client as condensed
from support.graphs import TEXT_DIM

from dance_flwr.federation.client.client import initial_model, shape_of
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import Report

KEYS = {"method": "gcond", "clients": 3, "condense_steps": 4, "local_epochs": 1}


@pytest.fixture(scope="module")
def finished(run):
    return run(**KEYS)


def state(finished, client=0):
    with np.load(finished.store(client).folder / "state.npz") as file:
        return dict(file)


@pytest.mark.parametrize("method", ["gcond", "sfgc"])
def test_a_round_trains_on_s_and_on_nothing_else(run, monkeypatch, method):
    """The condensed graph of SFGC has no edges."""
    seen = []

    def spy(model, graph, config, round_):
        seen.append((graph.features, graph.operator.to_dense(), graph.labels))
        return 0.0

    finished = run(method=method, clients=3, condense_steps=4, local_epochs=1)
    monkeypatch.setattr(condensed, "train_on", spy)
    data, actual, config = finished.data(0), state(finished), finished.config
    model = initial_model(shape_of(TEXT_DIM, 3, config), config)
    info = RoundInfo(finished.result["run"], 2, "")
    report = get_spec(method).make_client().train(model, data, config, info)
    (features, operator, labels) = seen[0]
    assert np.array_equal(features.numpy(), actual["features"])
    assert np.array_equal(labels.numpy(), actual["condensed_labels"])
    assert operator.shape == (len(labels),) * 2
    assert operator.equal(torch.eye(len(labels))) == (method == "sfgc")
    assert report.counts["condensed-nodes"] == report.counts["evidence-supervised"] == len(labels)
    assert isinstance(report, Report) and report.counts["evidence-tokens"] == 0
