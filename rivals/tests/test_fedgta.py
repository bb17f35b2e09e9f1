"""FedGTA: statistics against naive twins; its limits FedAvg and training in isolation."""

import numpy as np
import pytest
import torch
from dance_flwr_rivals.fedgta import client as fedgta
from dance_flwr_rivals.fedgta.server import mix_models, mixing_weights, similar_pairs
from hypothesis import given
from hypothesis import strategies as st
from rival_support import oracle_fedgta as oracle
from support.builders import random_csr
from support.models import equal, models

from dance_flwr.federation.server.replies import statistics_of
from dance_flwr.nn.propagation import operator


def random_client(seed, n=12, classes=3):
    """Return (dense A, Y_0 with one-hot training rows, training rows) in float64."""
    rng = np.random.default_rng(seed)
    indptr, indices = random_csr(rng, n, 0.25)
    adjacency = np.zeros((n, n))
    adjacency[np.repeat(np.arange(n), np.diff(indptr)), indices] = 1
    known = rng.random(n) < 0.4
    start = rng.dirichlet(np.ones(classes), n)
    start[known] = np.eye(classes)[rng.integers(0, classes, known.sum())]
    return adjacency, start, known


def propagated(adjacency, start, known, steps=5, alpha=0.5):
    rows, cols = (torch.tensor(ends) for ends in np.nonzero(adjacency))
    graph = operator("gcn", rows, cols, torch.ones(len(rows), dtype=torch.float64), len(adjacency))
    return fedgta.propagate(torch.tensor(start), torch.tensor(known), graph, steps, alpha)


@given(st.integers(0, 10**6), st.integers(0, 6), st.sampled_from([0.0, 0.5, 1.0]))
def test_propagation_is_its_naive_twin(seed, steps, alpha):
    adjacency, start, known = random_client(seed)
    expected = oracle.propagate(start, known, adjacency, steps, alpha)
    np.testing.assert_allclose(
        propagated(adjacency, start, known, steps, alpha), expected, atol=1e-10
    )


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_moments_are_their_naive_twin(seed, order):
    rows = np.random.default_rng(seed).dirichlet(np.ones(4), 9)
    actual = fedgta.moments(torch.tensor(rows), order)
    assert actual.dtype == torch.float32
    np.testing.assert_allclose(actual, oracle.moments(rows, order), atol=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([0.05, 1.0, 50.0]))
def test_confidence_is_never_negative(seed, spread):
    rng = np.random.default_rng(seed)
    rows = torch.tensor(rng.standard_normal((20, 4)) * spread).softmax(1)
    degree = torch.tensor(rng.integers(0, 5, 20))
    expected = sum(
        float(degree[v]) * sum(np.exp(-1) + s * np.log(s + 1e-8) for s in rows[v].tolist())
        for v in range(20)
    )
    actual = float(fedgta.confidence(rows, degree))
    assert actual >= 0 and actual == pytest.approx(expected, rel=1e-5)
    assert float(fedgta.confidence(torch.full((1, 1), np.exp(-1.0)), torch.ones(1))) >= 0, (
        "the minimum of x ln x"
    )


@given(st.integers(0, 10**6), st.sampled_from([-1.0, 0.0, 0.5, 0.9, 1.0]))
def test_the_means_are_their_naive_twin(seed, epsilon):
    rng = np.random.default_rng(seed)
    moments, confidence = rng.standard_normal((4, 6)), rng.random(4) + 0.1
    states = [{"a": torch.tensor(rng.standard_normal(5))} for _ in range(4)]
    weights = mixing_weights(
        similar_pairs(torch.tensor(moments), epsilon), torch.tensor(confidence)
    )
    actual = torch.stack([state["a"] for state in mix_models(states, weights)])
    expected = oracle.models(moments, confidence, [state["a"].numpy() for state in states], epsilon)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_clients_without_confidence_count_equally():
    accepted = torch.tensor([[True, True, False], [True, True, True], [False, False, True]])
    weights = mixing_weights(accepted, torch.tensor([0.0, 0.0, 2.0]))
    assert weights.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    assert similar_pairs(torch.zeros(2, 3), 0.0).tolist() == [[True, False], [False, True]]


def test_statistics_change_nothing_of_the_training_and_travel_as_declared(run):
    finished, alone = run(method="fedgta", rounds=2), run(method="local-only", rounds=2)
    assert all(equal(models(finished)[client][0], models(alone)[client][0]) for client in range(3))
    for reply in finished.replies("train"):
        sent = statistics_of(reply)
        assert {name: tuple(tensor.shape) for name, tensor in sent.items()} == {
            "moments": (60,),
            "confidence": (1,),
        }
        assert float(sent["confidence"]) > 0
    history = finished.result["history"]
    assert all(
        0 <= row["counts"]["pairs-accepted"] <= row["counts"]["pairs-asked"] == 6 for row in history
    )
