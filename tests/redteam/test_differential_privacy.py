"""A server that asks for more than a client's privacy budget, or for less noise than it promised.

The lies go to clients beside an honest run: with its messages, their own folder and their account.
"""

import json
import math
import multiprocessing
import os
import signal
from copy import deepcopy

import pytest
import torch

import client_app
from dance_flwr.errors import ConfigError, UserError
from dance_flwr.federation.privacy.accounting import ACCOUNT, PrivacyAccount, epsilon_spent
from dance_flwr.federation.privacy.dp import ClientMechanism
from dance_flwr.federation.wire import keys
from tests.support.asking import asker, first_training, reason

SIGMA, DELTA = 4.0, 1e-5
ONE_ROUND = epsilon_spent(SIGMA, 1.0, 1, DELTA)
KEYS = {
    **{"clients": 5, "rounds": 1, "method": "fedavg-full", "privacy_dp": "local"},
    **{"privacy_noise_multiplier": SIGMA, "privacy_epsilon": ONE_ROUND * 1.01},
}


@pytest.fixture(scope="module")
def asked(run):
    """The training message and the context of a client in an honest run."""
    return first_training(run, **KEYS)


@pytest.fixture
def client(asked, tmp_path):
    """A function that asks one client, which has a folder of its own, and returns its reply."""
    return asker(asked, tmp_path / "node")


def test_a_budget_for_one_round_answers_one_request(client):
    """The same round again, other rounds, other runs: the budget is the client's."""
    requests = [{"run": f"run-{i % 4}", "server_round": 1 + i % 3} for i in range(40)]
    replies = [client(**values) for values in requests]
    assert sum(not reply.has_error() for reply in replies) == 1
    assert "privacy budget" in reason(replies[-1])


def test_a_server_cannot_raise_the_budget_of_a_node(client):
    node = {keys.MAX_EPSILON: ONE_ROUND * 1.01}
    more = {"privacy.epsilon": 1e6}
    replies = [client(node, more, run=f"run-{i}") for i in range(3)]
    assert [reply.has_error() for reply in replies] == [False, True, True]


def test_nor_by_another_delta(client):
    node = {keys.MAX_EPSILON: ONE_ROUND * 0.9}
    assert client(node, {"privacy.epsilon": 1e6, "privacy.delta": 0.5}).has_error()


@pytest.mark.parametrize(
    "lie",
    [
        {"privacy.noise-multiplier": 0.01, "privacy.epsilon": 1e9},
        {"privacy.dp": "none"},
        {"privacy.dp": "central"},
        {"privacy.seeded": True},
    ],
    ids=["little noise", "no noise", "noise of the server", "noise that it knows"],
)
@pytest.mark.parametrize("term", [{keys.MIN_NOISE_MULTIPLIER: 1.0}, {keys.MAX_EPSILON: 50.0}])
def test_a_node_that_demands_noise_adds_it(client, lie, term):
    assert not client(term).has_error()
    reply = client(term, lie, run="another")
    assert reply.has_error()


@pytest.mark.parametrize("norm", [math.nan, math.inf, -1.0, 0.0])
def test_a_norm_that_clips_nothing_is_refused(client, norm):
    """min(1, nan / length) is 1: with such a norm an update of any length passed."""
    assert "clipping-norm" in reason(client(clipping_norm=norm))


def test_a_run_that_is_void_says_so_and_spends_nothing(client):
    replies = [client(None, {"privacy.seeded": True}, run=f"run-{i}") for i in range(3)]
    assert not any(reply.has_error() for reply in replies)
    assert not (client.ledger / ACCOUNT).exists()


def test_a_ledger_that_cannot_be_read_answers_nothing(client):
    assert not client().has_error()
    path = client.ledger / ACCOUNT
    path.write_text(path.read_text()[:-5])
    assert ACCOUNT in reason(client(None, {"privacy.epsilon": 1e6}, run="later"))


def _spend(folder, times, started):
    account, done = PrivacyAccount(folder), 0
    started.wait()
    for _ in range(times):
        try:
            account.spend("run", 1.0, lambda runs: "" if sum(runs.values()) <= 20 else "spent")
            done += 1
        except UserError:
            pass
    os._exit(done)


def test_processes_that_answer_at_once_share_the_budget(tmp_path):
    context = multiprocessing.get_context("fork")
    started = context.Event()
    several = [context.Process(target=_spend, args=(tmp_path, 9, started)) for _ in range(4)]
    for one in several:
        one.start()
    started.set()
    for one in several:
        one.join(60)
    assert sum(one.exitcode for one in several) == 20
    kept = json.loads((tmp_path / ACCOUNT).read_text())
    assert kept["runs"] == {"run": 20.0}


def _answer(ask, pipe):
    """Answer one request, and die by SIGKILL where the reply is complete."""
    reply = ask()
    os.write(pipe, b"0" if reply.has_error() else b"1")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_client_that_is_killed_after_its_answer_has_spent(client):
    read, write = os.pipe()
    killed = multiprocessing.get_context("fork").Process(target=_answer, args=(client, write))
    killed.start()
    killed.join(120)
    assert os.read(read, 1) == b"1" and killed.exitcode == -signal.SIGKILL
    assert client().has_error()


def test_distributed_noise_without_masks_is_refused(run_config):
    """The server reads each upload: with the noise of a third of a sum, not with all of it."""
    distributed = {"clients": 5, "privacy_dp": "distributed", "privacy_noise_multiplier": SIGMA}
    with pytest.raises(ConfigError, match=r"privacy\.secure-aggregation: expected true under"):
        run_config(**distributed)
    assert run_config(privacy_secure_aggregation=True, **distributed)


def test_sampled_clients_under_masks_are_refused(run_config):
    with pytest.raises(ConfigError, match=r"client-fraction: expected 1, found 0.6"):
        run_config(clients=5, client_fraction=0.6, privacy_secure_aggregation=True)
    with pytest.raises(ConfigError, match=r"evaluate-fraction: expected 1 .*, found 0.6"):
        run_config(clients=5, evaluate_fraction=0.6, privacy_secure_aggregation=True)


def test_a_client_adds_the_noise_that_the_threshold_of_its_sum_demands(run):
    """A server that claims a thousand clients would get the noise share of one in six hundred."""
    refused = []
    distributed = KEYS | {"privacy_dp": "distributed", "privacy_secure_aggregation": True}
    distributed |= {"privacy_epsilon": 50.0}

    def app(message, context):
        if keys.SECURE_SUM in message.content and keys.ARRAYS in message.content:
            victim = deepcopy(context)
            victim.run_config["clients"] = 1000
            refused.append(client_app.app(deepcopy(message), victim).has_error())
        return client_app.app(message, context)

    run(app=app, **distributed)
    assert len(refused) >= 5 and all(refused[:5])


def test_weights_that_a_server_makes_large_do_not_lengthen_an_update(run_config):
    """Near 2^20, float32 has steps of 1/8: entries that were clipped to 0.07 became 0.125 again."""
    config = run_config(privacy_dp="local", privacy_noise_multiplier=SIGMA, privacy_seeded=True)
    start = {"w": torch.full((200_000,), 2.0**20)}
    norm = 0.07 * 200_000**0.5

    def sent(state):
        return ClientMechanism(config, norm, 1, 0).protect(state, start).state["w"]

    # Of the same noise, which is far larger than a step, what is left is the clipped update.
    difference = (sent({"w": start["w"] + 0.125}) - sent(start)).mean(dtype=torch.float64)
    assert float(difference) == pytest.approx(0.07, rel=0.05)
