"""FedC4: its three selectors against naive twins and by hand; its limits gcond and fedavg-full."""

import numpy as np
import pytest
import torch
from dance_flwr_rivals.condensation.graphs import layer_normalise
from dance_flwr_rivals.fedc4 import client as method
from dance_flwr_rivals.fedc4 import server
from dance_flwr_rivals.fedc4.client import FedC4, embeddings, join_received
from dance_flwr_rivals.fedc4.server import (
    append_selected,
    group_clients,
    rebuild_graph,
    select_nodes,
    wasserstein_distances,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from rival_support.blocks import draw
from rival_support.condensed import graph, payloads, uploads
from scipy.optimize import minimize

from dance_flwr.federation.client.client import Client
from dance_flwr.methods.contract import RoundInfo

KEYS = {"method": "fedc4", "condense_steps": 4, "rounds": 4}
WIDE = {"fedc4_groups": 1, "fedc4_threshold": -1.0}  # every client is sent all nodes


# Groups of clients


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=2, max_size=4))
def test_distances_are_areas_between_distribution_functions(samples):
    actual = wasserstein_distances([np.array(own, np.float32) for own in samples])
    steps = np.arange(0, 10)
    below = np.array([[(np.array(own) <= x).mean() for x in steps] for own in samples])
    expected = np.abs(below[:, None] - below[None]).sum(axis=2)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def of_norms(*samples):
    """Return embeddings of these norms in random directions."""
    actual = {}
    for client, norms in enumerate(samples):
        rows = torch.nn.functional.normalize(
            torch.randn(len(norms), 4, generator=draw(client)), dim=1
        )
        actual[client] = rows * torch.tensor(norms)[:, None]
    return actual


def test_clients_of_like_norms_are_one_group():
    groups = group_clients(of_norms([1.0, 1.1], [5.0, 5.2, 5.1], [1.05], [4.9]), 2)
    assert groups[0] == groups[2] != groups[1] == groups[3]
    by_hand = group_clients(
        of_norms([0.0], [1.0], [2.2], [4.0]), 2
    )  # linkage by the mean: 0-1, then 2 at 1.7 to them
    assert by_hand[0] == by_hand[1] == by_hand[2] != by_hand[3]


# Choice of nodes


@given(st.integers(0, 10**6), st.sampled_from([-1.0, 0.0, 0.4, 1.0]))
def test_chosen_nodes_are_those_of_the_loop(seed, threshold):
    own = {client: torch.randn(1 + client, 3, generator=draw(seed + client)) for client in range(4)}
    groups = {0: 0, 1: 1, 2: 0, 3: 0}
    for client in own:
        mean = own[client].mean(0)
        expected = {
            other: [
                i
                for i, e in enumerate(own[other])
                if float(e @ mean / e.norm() / mean.norm()) > threshold
            ]
            for other in own
            if other != client and groups[other] == groups[client]
        }
        actual = select_nodes(client, own, groups, threshold)
        assert {other: rows.tolist() for other, rows in actual.items()} == expected


def test_own_nodes_are_first_and_edges_stay_within_a_client():
    graphs = {0: graph((1, 2, 0), 0), 1: graph((2, 2, 2), 3), 2: graph((1, 1, 1), 6)}
    rows = {1: torch.tensor([1, 4]), 2: torch.tensor([0])}
    actual = append_selected(graphs[0], graphs, rows)
    assert actual.labels.tolist() == [0, 1, 1, 0, 2, 0]
    rows = [graphs[0].features, graphs[1].features[[1, 4]], graphs[2].features[:1]]
    assert actual.features.equal(torch.cat(rows))
    blocks = torch.zeros(6, 6, dtype=torch.bool)
    blocks[:3, :3] = blocks[3:5, 3:5] = True
    assert not actual.adjacency[~blocks].any()
    assert actual.adjacency[3, 4] == graphs[1].adjacency[1, 4] > 0 and actual.adjacency[
        :3, :3
    ].equal(graphs[0].adjacency)


# Rebuilding


def objective(features, similarity, sparsity):
    unit = torch.nn.functional.normalize(layer_normalise(features), dim=1).double().numpy()
    penalty = similarity * (1 - unit @ unit.T) + sparsity

    def value(adjacency):
        return np.sum((unit - adjacency @ unit) ** 2) + np.sum(penalty * np.abs(adjacency))

    return value


@settings(max_examples=10)
@given(st.sampled_from([(5, 8), (7, 3)]), st.integers(0, 10**6))
def test_rebuilding_goes_as_low_as_another_solver(shape, seed):
    rows, width = shape
    features = torch.randn(rows, width, generator=draw(seed)) + torch.randn(
        width, generator=draw(seed + 1)
    )
    value, upper = objective(features, 0.5, 0.1), np.triu_indices(rows, 1)

    def of_pairs(pairs):
        adjacency = np.zeros((rows, rows))
        adjacency[upper] = pairs
        return value(adjacency + adjacency.T)

    other = minimize(
        of_pairs, np.full(len(upper[0]), 0.1), bounds=[(0, None)] * len(upper[0]), method="L-BFGS-B"
    )
    actual = rebuild_graph(features, 0.5, 0.1, 400).numpy()
    assert (
        (actual >= 0).all() and not actual.diagonal().any() and np.array_equal(actual, actual.T)
    ), "a lower value must be feasible"
    assert value(actual) <= other.fun + 1e-3, "that solver may stop early where rows are dependent"
    assert value(rebuild_graph(features, 0.5, 0.1, 50).numpy()) <= 1.01 * other.fun + 1e-3


@given(st.integers(0, 12), st.integers(0, 10**6))
def test_a_rebuilt_graph_is_symmetric_finite_and_without_loops(rows, seed):
    features = torch.randn(rows, 4, generator=draw(seed))
    features[: rows // 2] = features[:1]  # equal rows, and one that layer normalisation makes zero
    features[rows - 1 :] = 3.0
    actual = rebuild_graph(features, 0.5, 0.1, 30)
    assert (
        actual.shape == (rows, rows) and torch.isfinite(actual).all() and bool((actual >= 0).all())
    )
    assert actual.equal(actual.T) and not actual.diagonal().any()


# Runs


@pytest.fixture(scope="module")
def finished(run):
    return run(**KEYS, **WIDE)


def test_a_client_is_sent_the_nodes_of_others_and_a_graph_over_all(finished):
    graphs = {client: own[0] for client, own in sorted(uploads(finished).items())}
    for client, rounds in payloads(finished).items():
        assert rounds[0] == {} and len(rounds) == 4
        own, others = graphs[client], [graphs[other] for other in graphs if other != client]
        for payload in rounds[1:]:
            assert payload["features"].equal(torch.cat([other["features"] for other in others]))
            assert payload["labels"].equal(torch.cat([other["labels"] for other in others]))
            whole = torch.cat([own["features"], payload["features"]])
            assert payload["adjacency"].equal(rebuild_graph(whole, 1.3, 0.26, 50))
    nodes_received = 2 * sum(len(own["labels"]) for own in graphs.values())
    assert [row["counts"]["nodes-given"] for row in finished.result["history"]] == [
        0,
        *[nodes_received] * 3,
    ]
    assert [row["seconds"]["rebuild"] > 0 for row in finished.result["history"]] == [True] * 4
    assert (finished.result["strategy"], finished.result["evaluation"]) == ("fedc4", "global")


def test_a_round_trains_on_own_and_received_rows(finished, monkeypatch):
    seen = []

    def spy(model, graph, config, round_):
        seen.append((graph.features, graph.labels, graph.operator))
        return 0.0

    monkeypatch.setattr(method, "train_on", spy)
    client, payload = Client(finished.data(1), finished.config), payloads(finished)[1][1]
    report = FedC4().train(
        client.model,
        client.data,
        finished.config,
        RoundInfo(finished.result["run"], 2, "", payload),
    )
    (features, labels, operator), own = seen[0], uploads(finished)[1][0]
    assert features.equal(torch.cat([own["features"], payload["features"]])) and len(
        operator
    ) == len(labels)
    assert (
        report.counts["condensed-nodes"]
        == len(own["labels"])
        < report.counts["evidence-supervised"]
        == len(labels)
    )
    assert join_received(graph(), {}).features.equal(graph().features)


def test_embeddings_are_of_the_trained_model_on_own_nodes(finished):
    from dance_flwr.federation.wire.messages import model_of

    reply = min(finished.replies("train"), key=lambda reply: reply.metadata.src_node_id)
    client, actual = Client(finished.data(0), finished.config), uploads(finished)[0][0]
    client.model.load_state_dict(model_of(reply))
    own = method.Condensed(actual["labels"], actual["features"], actual["adjacency"])
    assert embeddings(client.model, own).equal(actual["embeddings"])


def test_embeddings_of_another_shape_are_reported(run_config):
    from dance_flwr_rivals.condensation.graphs import as_upload

    from dance_flwr.nn.model import ModelShape

    side = server.FedC4Server(run_config(), ModelShape(6, 8, 3))
    sound = as_upload(graph()) | {"embeddings": torch.zeros(5, 8)}
    assert side.upload_fault(0, sound) == "" and "ascending" in side.upload_fault(
        0, sound | {"labels": torch.tensor([1, 0, 1, 2, 2])}
    )
    assert "expected embeddings of torch.float32 and shape (5, 8)" in side.upload_fault(
        0, sound | {"embeddings": torch.eye(5)}
    )
    side.memory = {f"client-0/{name}": tensor.numpy() for name, tensor in sound.items()}
    assert (
        side.upload_fault(0, {"embeddings": torch.zeros(5, 8)})
        == ""
        != side.upload_fault(0, {"embeddings": torch.zeros(4, 8)})
    )
