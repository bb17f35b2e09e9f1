"""FedSage+: hiding, losses and augmentation against naive twins, the exchange, interrupted runs."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dance_flwr_rivals.fedsage import FedSageConfig, neighgen
from dance_flwr_rivals.fedsage.learning import (
    FEATURE_GENERATOR,
    ImpairedSample,
    NeighGen,
    cross_gradient,
    feature_loss,
    generator_loss,
    impair,
    links_of,
    nearest_distances,
    select_generated,
    step_with_peers,
)
from dance_flwr_rivals.fedsage.networks import (
    FeatureGenerator,
    empty_feature_generator,
    load_feature_generator,
)
from dance_flwr_rivals.fedsage.server import peers_of
from dance_flwr_rivals.refined_graph import augmented_operator
from hypothesis import given
from hypothesis import strategies as st
from rival_support import oracle_fedsage as oracle
from rival_support.random_graphs import random_graph
from support.killing import Kill, Killed, asks, same
from support.models import equal
from torch.nn import functional as F

import client_app
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation.client import handlers as client_tasks
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.wire import messages
from dance_flwr.federation.wire.keys import EXCHANGE, EXCHANGED
from dance_flwr.federation.wire.messages import exchange_record, with_content
from dance_flwr.federation.wire.tensors import arrays_of, state_of
from dance_flwr.methods.server_side import entries_under
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.runs.result import load_model

SHAPE = ModelShape(text_dim=6, hidden_dim=4, classes=3)
CONFIG = FedSageConfig(
    max_generated_per_node=3, maker_dim=8, latent_dim=5, batch=4, learning_rate=0.01
)


def lists(table):
    return [[entry for entry in row if entry >= 0] for row in table.tolist()]


def dense(rows, cols, n):
    matrix = np.zeros((n, n))
    np.add.at(matrix, (rows.numpy(), cols.numpy()), 1)
    return matrix


def impaired_sample(seed=0):
    graph, _, rng = random_graph(seed, 20)
    hidden = torch.zeros(20, dtype=torch.bool)
    hidden[:6] = True
    impaired = impair(*graph.edges(), graph.visible, hidden, CONFIG.max_generated_per_node)
    features = F.normalize(torch.tensor(rng.standard_normal((20, 6))).float(), dim=1)
    return ImpairedSample(impaired, features, torch.arange(14) % 4 - 1)


def neighgen_of(own):
    model = NeighGen(6, CONFIG, PlainModel(SHAPE, "gcn", 0.0))
    state = {
        FEATURE_GENERATOR + name: tensor.clone()
        for name, tensor in model.feature_generator.state_dict().items()
    }
    count = len(own.graph.nodes)
    return model, state | {"latents": torch.randn(count, 5), "counts": torch.arange(count) % 4}


# Hiding


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.5]), st.integers(0, 4))
def test_an_impaired_graph_is_its_naive_twin(seed, density, most):
    graph, adjacency, rng = random_graph(seed, density=density)
    visible, hidden = rng.random(12) < 0.8, rng.random(12) < 0.3
    actual = impair(*graph.edges(), torch.tensor(visible), torch.tensor(hidden), most)
    nodes, among, lost = oracle.impaired(adjacency, visible, hidden, most)
    assert (
        actual.nodes.tolist() == nodes
        and lists(actual.lost) == lost
        and actual.lost.shape == (len(nodes), most)
    )
    np.testing.assert_array_equal(dense(actual.rows, actual.cols, len(nodes)), among)
    assert actual.missing.tolist() == [len(own) for own in lost]


# Losses


@given(st.integers(0, 10**6))
def test_losses_are_their_naive_twins(seed):
    rng = np.random.default_rng(seed)
    features, generated_features = rng.standard_normal((9, 4)), rng.standard_normal((5, 3, 4))
    counts, targets = rng.integers(0, 5, 5), np.full((5, 3), -1)
    for row in targets:
        own = rng.integers(0, 4)
        row[:own] = rng.choice(9, own, replace=False)
    arguments = (
        torch.tensor(generated_features),
        torch.tensor(counts),
        torch.tensor(targets),
        torch.tensor(features),
    )
    listed = lists(torch.tensor(targets))
    np.testing.assert_allclose(
        nearest_distances(*arguments), oracle.nearest(generated_features, counts, listed, features)
    )
    assert float(feature_loss(*arguments)) == pytest.approx(
        oracle.feature_loss(generated_features, counts, listed, features)
    )


# Augmentation


@given(st.integers(0, 10**6), st.integers(0, 6))
def test_an_augmented_graph_is_its_naive_twin(seed, generated):
    graph, adjacency, rng = random_graph(seed)
    owners = rng.integers(0, 12, generated)
    expected = oracle.augmented(adjacency, owners)
    links, sizes = links_of(torch.tensor(owners)), (12, generated)
    actual = augmented_operator("sum", *graph.edges(), links, sizes).to_dense()
    np.testing.assert_array_equal(actual, expected)
    loops = expected + np.eye(12 + generated)
    root = np.sqrt(loops.sum(axis=1))
    actual = augmented_operator("gcn", *graph.edges(), links, sizes).to_dense()
    np.testing.assert_allclose(actual, loops / np.outer(root, root), rtol=1e-5)


def test_the_first_neighbours_of_each_node_are_taken():
    generated_features = torch.arange(12.0).reshape(3, 4, 1)
    counts = torch.tensor([2, 0, 3])
    owners, features = select_generated(torch.tensor([7, 5, 2]), generated_features, counts)
    assert owners.tolist() == [7, 7, 2, 2, 2]
    assert features.flatten().tolist() == [0.0, 1.0, 8.0, 9.0, 10.0]


# Learning


def test_a_step_is_adams_on_the_sum_of_all_gradients():
    """Two steps through the state, as between messages, are two steps of one optimiser."""
    own = impaired_sample()
    model, state = neighgen_of(own)
    others = [
        {name: torch.randn_like(p) for name, p in model.feature_generator.named_parameters()}
        for _ in range(2)
    ]
    feature_generator = FeatureGenerator(6, CONFIG, 0.0)
    feature_generator.load_state_dict(entries_under(state, FEATURE_GENERATOR))
    optimizer = torch.optim.Adam(
        feature_generator.parameters(), lr=0.01, weight_decay=CONFIG.weight_decay
    )
    classifier = model.classifier.requires_grad_(False).eval()
    for number, sums in enumerate(others):
        torch.manual_seed(number)
        optimizer.zero_grad()
        generator_loss(
            feature_generator, classifier, own, state["latents"], state["counts"], CONFIG
        ).backward()
        for name, parameter in feature_generator.named_parameters():
            parameter.grad += sums[name]
        optimizer.step()
    for number, sums in enumerate(others):
        torch.manual_seed(number)
        state = step_with_peers(
            {name: tensor.clone() for name, tensor in state.items()}, classifier, own, sums, CONFIG
        )
    for name, tensor in feature_generator.state_dict().items():
        torch.testing.assert_close(state[FEATURE_GENERATOR + name], tensor, rtol=1e-5, atol=1e-6)


def test_a_gradient_is_that_of_the_cross_loss_at_the_other_client():
    features, latents, counts = torch.randn(6, 6), torch.randn(5, 5), torch.tensor([3, 1, 2, 0, 3])
    table = torch.tensor([[-1, -1], [2, 4], [-1, -1], [5, -1], [-1, -1], [0, 3]])
    feature_generator = FeatureGenerator(6, CONFIG, 0.0)
    torch.manual_seed(5)
    actual = cross_gradient(
        load_feature_generator(feature_generator.state_dict(), 6, CONFIG, 0.0),
        latents,
        counts,
        table,
        features,
        4,
    )
    torch.manual_seed(5)
    targets = table[torch.tensor([1, 3, 5])[torch.randint(3, (5,))]]
    arguments = counts, targets, features
    loss = nearest_distances(feature_generator(latents), *arguments).mean() / 4
    twin = oracle.nearest(
        feature_generator(latents).detach().numpy(),
        counts.numpy(),
        lists(targets),
        features.numpy(),
    )
    assert loss.item() == pytest.approx(twin.mean() / 4, rel=1e-5)
    loss.backward()
    for name, parameter in feature_generator.named_parameters():
        torch.testing.assert_close(actual[name], parameter.grad)
        assert parameter.grad.abs().sum() > 0


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 30))
def test_peers_are_visited_equally_and_in_turn(clients, most, number):
    actual = peers_of(range(clients), most, number)
    asked = min(most or clients - 1, clients - 1)
    visits = [peer for peers in actual.values() for peer in peers]
    assert all(len(set(peers)) == asked and client not in peers for client, peers in actual.items())
    assert {visits.count(client) for client in range(clients)} == {asked}
    if asked:
        turns = [peers_of(range(clients), most, n)[0] for n in range(clients - 1)]
        assert {sum(peers.count(peer) for peers in turns) for peer in range(1, clients)} == {asked}


# Runs

FAST = {"method": "fedsage", "rounds": 2, "local_epochs": 1}
AUGMENTING = {**FAST, "fedsage_hidden_ratio_of_val_nodes": 1.0, "fedsage_steps": 30}


def exchanges(finished):
    """Return the tensors that clients sent: step -> client -> name -> tensor."""
    actual = {}
    for request in finished.messages:
        if request.metadata.message_type == EXCHANGE and not request.metadata.src_node_id:
            step = request.content["config"]["step"]
        elif request.metadata.message_type == EXCHANGE and not request.has_error():
            actual.setdefault(step, {})[request.metadata.src_node_id - 1] = state_of(
                exchange_record(request)
            )
    return actual


def generated_of(finished, client=0):
    return neighgen.read(finished.store(client).folder / neighgen.GENERATED, torch.device("cpu"))


@pytest.fixture(scope="module")
def finished(run):
    return run(**AUGMENTING)


def test_generators_are_exchanged_before_round_1_and_never_again(finished):
    actual = exchanges(finished)
    kinds = [m.metadata.message_type for m in finished.messages]
    assert max(i for i, kind in enumerate(kinds) if kind == EXCHANGE) < kinds.index("train")
    assert {step: sorted(sent) for step, sent in actual.items()} == {
        step: [0, 1, 2] for step in range(5)
    }
    names = empty_feature_generator(384, FedSageConfig.of(finished.config), 0.0).state_dict().keys()
    for step in (0, 2):
        assert all(sent.keys() == {*names, "latents", "counts"} for sent in actual[step].values())
    for step in (1, 3):
        assert actual[step][0].keys() == {f"client-{k}/{name}" for k in (1, 2) for name in names}
    assert actual[4] == {0: {}, 1: {}, 2: {}}
    assert not (finished.store(0).folder / neighgen.GENERATOR).exists()
    assert sum(finished.result["history"][0]["bytes_up"].values()) > sum(
        finished.result["history"][1]["bytes_up"].values()
    )


def test_a_client_gets_the_scaled_sum_of_what_others_sent(run):
    finished, sums = run(**AUGMENTING, fedsage_peers=1), {}
    for message in finished.messages:
        if message.metadata.message_type == EXCHANGE and not message.metadata.src_node_id:
            sums[message.content["config"]["step"], message.metadata.dst_node_id - 1] = state_of(
                exchange_record(message)
            )
    actual = exchanges(finished)
    for client in range(3):
        (peer,) = peers_of(range(3), 1, 0)[client]
        for name, tensor in sums[2, client].items():
            torch.testing.assert_close(tensor, 2 * actual[1][peer][f"client-{client}/{name}"])


INSTANTS = {
    "in the exchange": Kill(lambda m: is_step(m, 3), 2),
    "after the exchange": asks("train", 1, 2),
    "in round 2": asks("train", 2, 2),
}


def is_step(message, step):
    down = not message.metadata.src_node_id and message.metadata.message_type == EXCHANGE
    return down and message.content["config"]["step"] == step


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_killed_run_ends_as_if_it_had_not_been(finished, run, tmp_path, instant):
    with pytest.raises(Killed):
        run(folder=tmp_path, on_message=INSTANTS[instant], **AUGMENTING)
    again = run(folder=tmp_path, resume=True, **AUGMENTING)
    same(finished, again)
    assert len(exchanges(again)) == (0 if instant == "in round 2" else 5)


def run_folder(asked, client):
    return Path(asked["partition-dir"]) / f"client-{client}" / "runs" / asked["run"]


def test_a_client_that_lost_its_folder_in_the_exchange_says_so(run):
    def lose(message):
        if is_step(message, 2) and message.metadata.dst_node_id == 2:
            shutil.rmtree(run_folder(message.content["config"], 1))

    with pytest.raises(
        QuorumError, match=r"client 1: .*expected its generator after step 0 of the exchange"
    ):
        run(**AUGMENTING, on_message=lose)
    finished = run(**AUGMENTING, on_message=lose, min_valid_replies=2)
    assert "expected its generator" in finished.result["history"][0]["absent"]["1"]
    assert sorted(exchanges(finished)[3]) == [0, 2] and generated_of(finished, 1) is not None


class Broken:
    """The ClientApp, where client 1 corrupts its answer in one step of the exchange."""

    def __init__(self, step, change):
        self.step, self.change = step, change

    def __call__(self, message, context):
        asked = messages.config_of(message)
        reply = client_app.app(message, context)
        if asked.get("step") != self.step or context.node_config["partition-id"] != 1:
            return reply
        content = reply.content
        content[EXCHANGED] = arrays_of(self.change(state_of(exchange_record(reply))))
        return with_content(reply, content)


@pytest.mark.parametrize(
    ("step", "change", "reason"),
    [
        (0, lambda state: state | {"0.weight": state["0.weight"] * torch.nan}, "finite numbers"),
        (0, lambda state: state | {"5.bias": torch.zeros(3)}, "of shape"),
        (0, lambda state: state | {"latents": torch.zeros(2, 3)}, "expected latents"),
        (
            0,
            lambda state: state | {"counts": state["counts"].float()},
            "expected counts of torch.int64",
        ),
        (
            0,
            lambda state: {name: state[name] for name in state if name != "counts"},
            "expected counts, found none",
        ),
        (
            1,
            lambda state: {name: torch.full_like(state[name], torch.inf) for name in state},
            "finite numbers",
        ),
        (4, lambda state: {"features": torch.zeros(3)}, "found others or none: features"),
    ],
)
def test_an_unusable_answer_is_skipped(run, step, change, reason):
    app = Broken(step, change)
    finished = run(**{**FAST, "rounds": 1}, app=app, min_valid_replies=2)
    (client, fault), *others = finished.result["history"][0]["absent"].items()
    assert client == "1" and reason in fault and not others
    assert all(torch.isfinite(tensor).all() for tensor in load_model(finished.folder).values())
    if step == 0:
        assert sorted(exchanges(finished)[2]) == [0, 2]


def test_a_repeated_step_is_answered_with_the_same_tensors(finished):
    client = Client(finished.data(0), finished.config)
    sums = {
        name: torch.ones_like(t)
        for name, t in entries_under(exchanges(finished)[0][0], "").items()
        if name[0].isdigit()
    }
    first = client.exchange("again", 0, {})
    assert equal(first, client.exchange("again", 0, {})) and equal(first, exchanges(finished)[0][0])
    second = client.exchange("again", 2, sums)
    assert equal(second, client.exchange("again", 2, sums)) and not equal(first, second)
    assert client.exchange("again", 4, sums) == client.exchange("again", 4, sums) == {}
    with pytest.raises(UserError, match="expected its generator after step 0"):
        client.exchange("never", 2, sums)


def test_a_client_that_demands_masks_exchanges_nothing(finished):
    request = next(m for m in finished.messages if is_step(m, 0))
    context = SimpleNamespace(run_config={"privacy.secure-aggregation": True}, node_config={})
    with pytest.raises(UserError, match=r"expected a masked query\.exchange"):
        client_tasks.work(request, context)
