"""FedTAD: reliability, pseudo-graphs and losses against naive twins; its limit FedAvg."""

import numpy as np
import pytest
import torch
from dance_flwr_rivals.fedtad import FedTadConfig
from dance_flwr_rivals.fedtad import client as fedtad
from dance_flwr_rivals.fedtad.server import (
    Generator,
    distil,
    divergence,
    generator_loss,
    node_weights,
    normalise_reliability,
    pseudo_labels,
    pseudo_operator,
)
from hypothesis import given
from hypothesis import strategies as st
from rival_support import oracle_fedtad as oracle
from rival_support.random_graphs import random_graph
from support.models import equal, models

from dance_flwr.federation.client.client import Client
from dance_flwr.federation.server.replies import statistics_of, upload_of
from dance_flwr.methods.server_side import weighted_mean
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.runs.result import load_model
from dance_flwr.seeding import seeded

SHAPE = ModelShape(text_dim=12, hidden_dim=8, classes=3)


def new_models(seed, backbone="gcn"):
    """Return a new model and generator."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return PlainModel(SHAPE, backbone, 0.5), Generator(SHAPE.classes, SHAPE.text_dim, 4)


def by_client(finished):
    """Return the training replies of a run of one round, ordered by client."""
    return sorted(finished.replies("train"), key=lambda reply: reply.metadata.src_node_id)


def settings(**changes):
    return FedTadConfig(**{"nodes": 20, "noise_dim": 4, **changes})


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([1, 7, 1024]))
def test_return_probabilities_are_diagonals_of_dense_powers(seed, density, block):
    graph, adjacency, _ = random_graph(seed, 20, density)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fedtad, "_ROWS", block)
        actual = fedtad.return_probabilities(graph)
    assert actual.dtype == torch.float32 and actual.shape == (20, 5)
    np.testing.assert_allclose(actual, oracle.return_probabilities(adjacency), atol=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.2]))
def test_agreement_is_its_naive_twin(seed, density):
    graph, adjacency, _ = random_graph(seed, 20, density)
    features = np.random.default_rng(seed).standard_normal((20, 6))
    labels = np.random.default_rng(seed).integers(-1, 3, 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fedtad, "_EDGES", 7)
        per_node = fedtad.agreement(torch.tensor(features).float(), *graph.edges()).numpy()
    actual = [per_node[labels == c].sum() for c in range(3)]
    np.testing.assert_allclose(
        actual, oracle.reliability(features, adjacency, labels, 3), atol=1e-5
    )


def test_a_clients_reliability_is_its_naive_twin(run):
    finished = run(method="fedtad", rounds=1)
    for number, reply in enumerate(by_client(finished)):
        data = finished.data(number)
        rows, cols = data.graph.edges()
        adjacency = np.zeros((data.num_nodes, data.num_nodes))
        adjacency[rows, cols] = 1
        labels = data.train_labels.numpy()
        features = np.concatenate(
            [data.table.nodes.numpy(), oracle.return_probabilities(adjacency)], axis=1
        )
        (sent,) = statistics_of(reply).values()
        np.testing.assert_allclose(
            sent, oracle.reliability(features, adjacency, labels, 3), atol=1e-4
        )
        assert fedtad.reliability(data) is fedtad.reliability(data), "computed once"


@given(st.integers(0, 10**6))
def test_shares_of_a_class_sum_to_1_or_0(seed):
    phi = np.random.default_rng(seed).random((4, 5))
    phi[:, 2], phi[1, 3] = 0, 0
    shares = normalise_reliability(torch.tensor(phi))
    np.testing.assert_allclose(shares, oracle.normalised(phi), atol=1e-12)
    np.testing.assert_allclose(shares.sum(dim=0), [1, 1, 0, 1, 1])
    assert normalise_reliability(torch.tensor([[-1.0], [2.0]])).tolist() == [[0.0], [1.0]]


@given(st.integers(0, 10**6), st.integers(1, 25))
def test_a_pseudo_graph_links_the_nearest_both_ways(seed, most):
    features = np.random.default_rng(seed).standard_normal((20, 6))
    graph = pseudo_operator(torch.tensor(features), most, "sum")
    np.testing.assert_array_equal(graph.to_dense(), oracle.neighbours(features, most))


@given(st.integers(0, 10**6))
def test_losses_are_their_naive_twins(seed):
    rng = np.random.default_rng(seed)
    labels = pseudo_labels(11, 4)
    ours, theirs = rng.standard_normal((11, 4)), rng.standard_normal((3, 11, 4))
    shares = oracle.normalised(rng.random((3, 4)))
    features, noise = rng.standard_normal((11, 6)), rng.standard_normal((11, 5))
    weights = node_weights(torch.tensor(shares), labels)
    actual = divergence(torch.tensor(ours), torch.tensor(theirs), weights)
    assert float(actual) == pytest.approx(oracle.divergence(ours, theirs, shares, labels.numpy()))
    tensors = (torch.tensor(values) for values in (ours, theirs))
    config = settings(label_weight=0.7, diversity_weight=1.3)
    actual = generator_loss(
        *tensors, weights, labels, torch.tensor(features), torch.tensor(noise), config
    )
    expected = oracle.generator_loss(
        ours, theirs, shares, labels.numpy(), features, noise, 0.7, 1.3
    )
    assert float(actual) == pytest.approx(expected)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_equal_clients_teach_nothing(backbone):
    model, generator = new_models(0, backbone)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = {name: tensor.clone() for name, tensor in generator.state_dict().items()}
    losses = distil(
        model, generator, [before, before], normalise_reliability(torch.rand(2, 3)), settings()
    )
    assert len(losses) == 25 and set(losses) == {0.0}
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not all(
        torch.equal(tensor, first[name]) for name, tensor in generator.state_dict().items()
    )


def test_the_global_model_learns_the_clients_logits():
    (model, generator), (teacher, _) = new_models(0), new_models(1)
    config = settings(steps=1, generator_steps=0, model_steps=60)
    losses = distil(model, generator, [teacher.state_dict()], torch.ones(1, 3), config)
    assert losses[-1] < 0.5 * losses[0]


def test_a_round_is_the_mean_of_the_uploads_then_distilled(run):
    """Recomputed without a server side: noise and generator depend on the run's seed only."""
    finished = run(method="fedtad", rounds=1, fedtad_nodes=20)
    replies, start = by_client(finished), models(finished, up=False)[0][0]
    uploads = [upload_of(reply, client) for client, reply in enumerate(replies)]
    mean = weighted_mean(uploads, start, finished.config.privacy.update_range)
    model = Client(finished.data(0), finished.config).model
    model.load_state_dict(mean)
    with seeded(0, "generator"):
        generator = Generator(3, finished.data(0).text_dim, 32)
    shares = normalise_reliability(
        torch.stack([statistics_of(reply)["reliability"] for reply in replies])
    )
    with seeded(0, "distil", round_=1):
        distil(
            model,
            generator,
            [upload.state for upload in uploads],
            shares,
            FedTadConfig.of(finished.config),
        )
    assert equal(load_model(finished.folder), model.state_dict())
    assert not equal(load_model(finished.folder), mean)
    assert finished.result["history"][0]["seconds"]["distil"] > 0
