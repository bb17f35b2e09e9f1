"""One round at the server: what `Round` composes around Flower's strategies."""

import math
import random

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord

from dance_flwr.config.plugins import READ_EACH, STRATEGIES
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation.client.client import initial_model
from dance_flwr.federation.privacy.dp import draw_clients, update_bound
from dance_flwr.federation.server.grid import FederationGrid
from dance_flwr.federation.server.polling import MessageLog
from dance_flwr.federation.server.round import initial_arrays
from dance_flwr.federation.server.strategies import make_round
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of, state_of
from dance_flwr.methods.server_side import Upload, entries_of, for_client, weighted_mean
from dance_flwr.metrics import Counts, Report
from dance_flwr.nn.model import ModelShape
from dance_flwr.runs.simulation.in_process import InProcessGrid

SHAPE = ModelShape(text_dim=6, hidden_dim=4, classes=3)
POISSON = {
    **{"privacy_dp": "central", "client_fraction": 0.5, "clients": 4, "rounds": 12},
    **{"privacy_seeded": True, "privacy_noise_multiplier": 1.0, "privacy_epsilon": 5000.0},
}


def moved(state, client):
    """What client k "trains": every entry a little larger, by another amount at each client."""
    return {name: tensor + 0.01 * (client + 1) for name, tensor in state.items()}


def scores(client):
    hits = client % 3
    return {"val": Counts({"deployed": hits}, 4, [hits, 0, 0], [2, 1, 1], [2, 1, 1])}


def trained(message, client, state, weight=1, report=Report()):  # noqa: B008  # immutable
    """Answer TRAIN, with a validation if the message asks for one."""
    validates = messages.config_of(message).get(keys.VALIDATE, False)
    validated = scores(client) if validates else None
    return messages.train_reply(message, state, weight, report, validated=validated)


def app(message, context):
    """A client without data: it moves every entry of the model, with weight k + 1, or 1 under
    differential privacy.
    """
    client = context.node_config[keys.PARTITION_ID]
    if message.metadata.message_type == keys.EVALUATE:
        return messages.evaluate_reply(message, scores(client))
    state = moved(messages.model_of(message), client)
    weight = client + 1 if context.run_config["privacy.dp"] == "none" else 1
    return trained(message, client, state, weight, Report(loss=float(client)))


class Server:
    """A `Round` with its Grid of fake clients and the model of the moment."""

    def __init__(self, config, client_app=app):
        self.config, self.trained, self.validated = config, [], []
        self.round = make_round(config, SHAPE, self.trained.append, self.validated.append)
        self.grid = FederationGrid(
            InProcessGrid(client_app, {"privacy.dp": config.privacy.dp}, config.clients),
            {client + 1: client for client in range(config.clients)},
            config,
            MessageLog(),
        )
        model = initial_model(SHAPE, config).state_dict()
        self.arrays = self.round.deployed = initial_arrays(self.round.side, model)
        self.common = ConfigRecord(messages.run_config("run", ""))

    def ask(self, number):
        """The messages of a training round."""
        return list(self.round.configure_train(number, self.arrays, self.common, self.grid))

    def train(self, number):
        """A training round; returns the clients that were asked."""
        batch = self.ask(number)
        replies = self.grid.send_and_receive(batch, timeout=1.0)
        arrays, _ = self.round.aggregate_train(number, replies)
        self.arrays = self.arrays if arrays is None else arrays
        return [message.metadata.dst_node_id - 1 for message in batch]

    def validate(self, number):
        batch = self.round.configure_evaluate(number, self.arrays, self.common, self.grid)
        self.round.aggregate_evaluate(number, self.grid.send_and_receive(batch, timeout=1.0))


def equal(left, right):
    left, right = state_of(left), state_of(right)
    assert left.keys() == right.keys()
    return all(torch.equal(left[name], right[name]) for name in left)


def check_moved(one, start, step):
    """Assert that every entry of the model has moved by `step`, with its type."""
    for name, tensor in state_of(one.arrays).items():
        torch.testing.assert_close(tensor, start[name] + step, atol=1e-6, rtol=0)


@pytest.fixture
def server(run_config):
    def make(client_app=app, **options):
        return Server(run_config(**{"method": "fedavg-full", **options}), client_app)

    return make


# Sample, merge, validate


@pytest.mark.parametrize(
    ("options", "joint"),
    [
        ({}, [2, 3, 4]),
        ({"evaluate_every": 2}, [3]),
        ({"strategy": "fedadam"}, [2, 3, 4]),
        ({"ema_decay": 0.5}, [2, 3, 4]),
        # Where other clients validate.
        ({"client_fraction": 0.5}, []),
        ({"evaluate_fraction": 0.5}, []),
    ],
    ids=["each round", "every second", "adam", "average", "sampled", "validators"],
)
def test_the_next_training_validates_the_deployed_model(server, options, joint):
    """In one message; the last round has a validation of its own."""
    one, asked = server(clients=4, rounds=4, **options), []
    for number in range(1, 5):
        before = len(one.validated)
        for message in one.ask(number):
            config = messages.config_of(message)
            asked += [number] * (config.get(keys.VALIDATE, False) and number not in asked)
            # Sent beside the one to train where it is another one.
            assert (keys.DEPLOYED in message.content) == ("ema_decay" in options and number > 1)
            if keys.DEPLOYED in message.content:
                assert equal(message.content[keys.DEPLOYED], one.round.deployed)
                assert not equal(one.arrays, one.round.deployed) or number == 2
        one.train(number)
        assert len(one.validated) - before == (number in joint)
        one.validate(number)
        alone = len(one.validated) - before - (number in joint)
        due = number % options.get("evaluate_every", 1) == 0
        assert alone == (number == 4 or (due and number + 1 not in joint))
    assert asked == joint
    assert all(val.total == 16 for val in one.validated) or "evaluate_fraction" in options


def test_a_validation_sums_the_counts_of_all_clients(server):
    one = server(clients=3, evaluate_every=2, rounds=3, client_fraction=0.9)
    for number in (1, 2, 3):
        one.validate(number)
    first, last = one.validated  # round 1 is not due; the last one always is
    assert first == last == Counts({"deployed": 3}, 12, [3, 0, 0], [6, 3, 3], [6, 3, 3])


def test_a_fraction_validates_and_the_round_alone_says_which(server):
    one = server(clients=4, evaluate_fraction=0.5, rounds=8)

    def asked(number):
        batch = one.round.configure_evaluate(number, one.arrays, one.common, one.grid)
        return [message.metadata.dst_node_id for message in batch]

    drawn = [asked(number) for number in range(1, 9)]
    assert all(len(nodes) == 2 for nodes in drawn) and len(set(map(tuple, drawn))) > 1
    random.random()  # whatever else draws in between
    assert [asked(number) for number in range(1, 9)] == drawn
    one.validate(3)
    assert one.validated[0].total == 8


def test_a_fraction_is_sampled_by_the_round_alone(server):
    options = {"clients": 4, "client_fraction": 0.5, "rounds": 8}
    first, again = server(**options), server(**options)
    asked = [first.train(number) for number in range(1, 9)]
    assert all(len(clients) == 2 for clients in asked) and len(set(map(tuple, asked))) > 1
    again.round.offset = 4
    assert [
        [message.metadata.dst_node_id - 1 for message in again.ask(number)]
        for number in range(1, 5)
    ] == asked[4:]


# Quorum


def broken(*clients):
    """The app, with clients whose models hold NaN."""

    def answer(message, context):
        reply = app(message, context)
        client = context.node_config[keys.PARTITION_ID]
        if client not in clients or message.metadata.message_type != keys.TRAIN:
            return reply
        state = {name: tensor * math.nan for name, tensor in messages.model_of(reply).items()}
        return trained(message, client, state, client + 1)

    return answer


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_round_below_the_quorum_raises_and_names_the_senders(server, strategy):
    one = server(broken(0, 2), clients=8, min_valid_replies=7, strategy=strategy)
    with pytest.raises(QuorumError, match=r"at least 7 .*found 6; client 0: .*; client 2: "):
        one.train(1)
    assert one.trained == []


# Strategies that read each upload


def poisoned(scale):
    """The app, with a client whose every entry moves far, but not too far to be read."""

    def answer(message, context):
        client = context.node_config[keys.PARTITION_ID]
        if client or message.metadata.message_type != keys.TRAIN:
            return app(message, context)
        state = {name: tensor - scale for name, tensor in messages.model_of(message).items()}
        return trained(message, client, state)

    return answer


@pytest.mark.parametrize("strategy", sorted(READ_EACH))
def test_one_poisoned_upload_of_five_does_not_move_a_robust_model(server, strategy):
    one = server(poisoned(1.0), clients=5, strategy=strategy)
    start = state_of(one.arrays)
    one.train(1)
    # Of -1.0, 0.02, 0.03, 0.04 and 0.05 the median, and the mean of the three in the middle.
    check_moved(one, start, 0.03)
    assert one.trained[0].loss == pytest.approx((0 + 2 + 6 + 12 + 20) / 15)


def test_the_trimmed_mean_cuts_one_on_each_side_of_the_fewest(server):
    one = server(poisoned(1.0), clients=4, min_valid_replies=3, strategy="fedtrimmedavg")
    start = state_of(one.arrays)
    one.train(1)
    check_moved(one, start, 0.025)
    with pytest.raises(UserError, match="expected at least 3 valid replies per round"):
        server(clients=5, min_valid_replies=2, strategy="fedtrimmedavg")


# Outliers


def test_a_finite_outlier_is_omitted_and_named(server):
    one = server(poisoned(1e30), clients=5, min_valid_replies=4)
    start = state_of(one.arrays)
    one.train(1)
    uploads = [Upload(client, moved(start, client), client + 1) for client in range(1, 5)]
    assert equal(
        one.arrays,
        arrays_of(weighted_mean(uploads, start, update_bound(one.config, one.round.norm.value))),
    )
    (reason,) = one.grid.take_absent().values()
    assert "expected an update of norm" in reason


def test_an_update_beyond_the_clipping_norm_is_no_part_of_a_private_mean(server):
    options = POISSON | {"client_fraction": 1.0, "min_valid_replies": 3}
    one = server(poisoned(1.0), **options)
    one.train(1)
    (reason,) = one.grid.take_absent().values()
    assert "expected an update of norm 1 at most" in reason


LIMIT = 2  # of the median of the round, and of the longest update of the client itself


def test_a_long_update_is_shortened_to_what_honest_ones_reach(server):
    one = server(poisoned(1.0), clients=5)
    start = state_of(one.arrays)
    one.train(1)
    # The median of 1.0, 0.02, 0.03, 0.04 and 0.05 is 0.04.
    steps = [-0.04 * LIMIT, 0.02, 0.03, 0.04, 0.05]
    expected = sum((k + 1) * step for k, step in enumerate(steps)) / 15
    check_moved(one, start, expected)
    assert not one.grid.take_absent(), "the client takes part"


def steady(steps):
    """The app, with clients that move every entry by `steps(client, round)`."""

    def answer(message, context):
        if message.metadata.message_type != keys.TRAIN:
            return app(message, context)
        client = context.node_config[keys.PARTITION_ID]
        step = steps(client, messages.config_of(message)[keys.ROUND])
        state = {name: tensor + step for name, tensor in messages.model_of(message).items()}
        return trained(message, client, state)

    return answer


@pytest.mark.parametrize("clients", [2, 5], ids=["without a median", "with one"])
def test_a_client_that_was_modest_is_held_to_its_own_longest_update(server, clients):
    one = server(steady(lambda k, t: 0.01 if k == 0 and t < 3 else 0.03), clients=clients)
    for number in (1, 2, 3):
        start = state_of(one.arrays)
        one.train(number)
    expected = (0.01 * LIMIT + 0.03 * (clients - 1)) / clients
    check_moved(one, start, expected)
    # From 0.02 it would be 50 times as long; nor does it grow without bound, round by round.
    one = server(steady(lambda k, t: 1.0 if k == 0 and t > 1 else 0.02), clients=clients)
    for number in (1, 2):
        start = state_of(one.arrays)
        one.train(number)
    expected = (0.02 * LIMIT + 0.02 * (clients - 1)) / clients
    check_moved(one, start, expected)


def test_clients_that_did_not_move_lower_no_bound(server):
    """Without a labelled node a client sends the model as it was: that says nothing of others."""
    one = server(steady(lambda k, t: 0.0 if k < 3 else 0.01 * k), clients=6)
    start = state_of(one.arrays)
    one.train(1)
    check_moved(one, start, 0.02)


def test_the_longest_updates_are_part_of_a_checkpoint(server):
    one, resumed = (server(steady(lambda k, t: 0.02 if t < 2 else 1.0), clients=2) for _ in "ab")
    one.train(1)
    resumed.arrays = resumed.round.restore(*one.round.state(one.arrays))
    one.train(2)
    resumed.train(2)
    assert equal(one.arrays, resumed.arrays)


# Poisson sampling: each client by itself, so that a round may ask any number of clients


@pytest.mark.parametrize("strategy", sorted({*STRATEGIES} - READ_EACH))
def test_every_strategy_steps_under_poisson_sampling(server, strategy):
    one = server(strategy=strategy, **POISSON)
    start, sizes, rounds = one.arrays, set(), []
    for number in range(1, 13):
        before = one.arrays
        asked = one.train(number)
        expected = draw_clients([1, 2, 3, 4], one.config, number)
        assert asked == [node - 1 for node in expected]
        assert equal(before, one.arrays) == (not asked), "a round without clients changes nothing"
        sizes.add(len(asked))
        rounds.append(bool(asked))
    assert len(sizes) > 2 and not equal(start, one.arrays)
    assert [not training.skipped for training in one.trained] == rounds
    for name, tensor in state_of(one.arrays).items():
        assert torch.isfinite(tensor).all() and tensor.dtype == state_of(start)[name].dtype


def test_poisson_sampling_keeps_what_a_strategy_sends(server):
    one = server(strategy="fedprox", proximal_mu=0.25, **POISSON)
    batch = [message for number in range(1, 13) for message in one.ask(number)]
    assert batch
    for message in batch:
        config = messages.config_of(message)
        assert config[keys.PROXIMAL_MU] == 0.25 and keys.CLIPPING_NORM in config


# Personalised models


def test_a_personalised_model_reaches_its_client_alone(server):
    one = server(method="local-only", clients=3)
    entries = {
        name: tensor + client
        for client in range(3)
        for name, tensor in for_client(entries_of(state_of(one.arrays), client), client).items()
    }
    one.arrays = one.round.deployed = arrays_of(entries)
    evaluated = one.round.configure_evaluate(1, one.arrays, one.common, one.grid)
    for message in (*one.ask(1), *evaluated):
        client = message.metadata.dst_node_id - 1
        assert equal(messages.arrays_in(message), arrays_of(entries_of(entries, client)))
        assert equal(one.round.model_for(one.arrays, client), messages.arrays_in(message))
    one.train(1)
    for client in range(3):
        own = arrays_of(moved(entries_of(entries, client), client))
        assert equal(one.round.model_for(one.arrays, client), own)


# State


@pytest.mark.parametrize("options", [{}, {"ema_decay": 0.5}], ids=["last", "average"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_restored_round_continues_bit_by_bit(server, strategy, options):
    options = options | {"clients": 3, "rounds": 4, "strategy": strategy}
    whole, resumed = server(**options), server(**options)
    for number in (1, 2):
        whole.train(number)
    groups, numbers = whole.round.state(whole.arrays)
    assert all(isinstance(a, np.ndarray) for group in groups.values() for a in group.values())
    copies = {
        group: {name: array.copy() for name, array in part.items()}
        for group, part in groups.items()
    }
    resumed.arrays = resumed.round.restore(copies, numbers)
    resumed.round.offset = 2
    for number in (3, 4):
        whole.train(number)
        resumed.train(number - 2)
        assert equal(whole.arrays, resumed.arrays)
        assert equal(whole.round.deployed, resumed.round.deployed)
    assert equal(whole.arrays, whole.round.deployed) == ("ema_decay" not in options)
    again, more = resumed.round.state(resumed.arrays)
    groups, numbers = whole.round.state(whole.arrays)
    assert more == numbers and again.keys() == groups.keys()
    for group, part in groups.items():
        assert list(part) == list(again[group])
        assert all(np.array_equal(array, again[group][name]) for name, array in part.items())


def test_the_memory_of_a_server_side_and_the_clipping_norm_are_restored(server):
    options = {
        **{"clients": 3, "privacy_dp": "central", "privacy_clipping": "adaptive"},
        **{"privacy_seeded": True, "privacy_noise_multiplier": 1.0, "privacy_epsilon": 500.0},
    }
    one, other = server(**options), server(**options)
    one.round.side.memory["client-0/features"] = np.arange(3.0)
    one.round.norm.value = 0.75
    other.round.restore(*one.round.state(one.arrays))
    assert other.round.norm.value == 0.75
    assert list(other.round.side.memory) == ["client-0/features"]
