"""A server that learns labels from counts of validations, which no noise of an update covers.

Under differential privacy clients send no such counts, whatever a message asks for; and a node that
demands noise answers no validation of a run without it.
"""

import pytest

from dance_flwr.federation.wire import keys, messages
from dance_flwr.runs.privacy_report import promises
from tests.support.asking import asker, first_training, reason

NOISE = {"privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0}
MASKED = {"privacy_secure_aggregation": True, "clients": 5}
MODES = {
    "central": {"privacy_dp": "central"},
    "local": {"privacy_dp": "local"},
    "distributed": {"privacy_dp": "distributed", **MASKED},
}


def counts_in(reply):
    """All numbers of a reply about the nodes of a split, and its number of scored nodes."""
    metrics = messages.metrics_of(reply.content)
    named = [metrics[name] for name in metrics if name.startswith(("val-", "test-"))]
    flat = [each for entry in named for each in (entry if isinstance(entry, list) else [entry])]
    return [*flat, metrics[keys.WEIGHT]]


@pytest.fixture(scope="module")
def asked(run):
    """The training message and the context of a client in an honest run of DANCE."""
    return first_training(run, rounds=1, privacy_dp="local", **NOISE)


@pytest.fixture
def client(asked, tmp_path):
    return asker(asked, tmp_path / "node")


@pytest.mark.parametrize("mode", ["central", "local"])
def test_no_count_of_a_validation_leaves_a_client(run, mode):
    finished = run(rounds=2, **MODES[mode], **NOISE)
    replies = finished.replies("evaluate")
    assert len(replies) == finished.config.clients, "of the final model alone"
    assert all(set(counts_in(reply)) == {0} for reply in replies)
    result = finished.result
    assert result["test_accuracy"] is None and result["val_accuracy"] is None
    assert {row["val_accuracy"] for row in result["history"]} == {None}
    assert result["best_round"] == 2, "the last model is kept"


def test_nor_does_a_masked_sum_hold_one(run):
    finished = run(rounds=2, **MODES["distributed"], **NOISE)
    result = finished.result
    assert (result["test_nodes"], result["val_nodes"], result["best_round"]) == (0, 0, 2)
    assert {row["val_accuracy"] for row in result["history"]} == {None}


def test_a_server_that_asks_for_validations_gets_none(client):
    """In any round, final or not: the message does not decide."""
    *counts, weight = counts_in(client(task=keys.TRAIN, validate=True))
    assert len(counts) > 4 and set(counts) == {0} and weight == 1
    for values in ({}, {"server_round": 2}, {"final": True}):
        reply = client(task=keys.EVALUATE, **values)
        assert not reply.has_error() and set(counts_in(reply)) == {0}


def test_nor_losses_of_mixtures_with_personal_models(client):
    """They are sums over validation nodes, and come with the number of these."""
    for lie in ({"personal": "mix"}, {}):
        refused = reason(client(None, lie, task=keys.EVALUATE, personalise=True))
        assert "personalise: expected a run of personal models without" in refused


def test_noise_that_the_server_knows_protects_nothing_and_hides_no_count(client):
    """Studies measure accuracy so; the epsilon of such a run is void, and every report says it."""
    assert max(counts_in(client(None, {"privacy.seeded": True}, task=keys.EVALUATE))) > 0


@pytest.mark.parametrize("term", [{keys.MIN_NOISE_MULTIPLIER: 1.0}, {keys.MAX_EPSILON: 500.0}])
@pytest.mark.parametrize(
    "lie",
    [{"privacy.dp": "none"}, {"privacy.dp": "central"}, {"privacy.seeded": True}],
    ids=["no noise", "noise of the server", "noise that it knows"],
)
def test_a_node_that_demands_noise_validates_nothing_without(client, term, lie):
    """With training refused, 300 validations gave the exact histogram of one client's labels."""
    assert not client(term, task=keys.EVALUATE).has_error()
    refused = reason(client(term, lie, task=keys.EVALUATE))
    assert "expected a run whose clients add noise of their own" in refused


@pytest.mark.parametrize("task", [keys.DESCRIBE, keys.SEAL, keys.EXCHANGE, keys.TRAIN])
@pytest.mark.parametrize("term", [{keys.MIN_NOISE_MULTIPLIER: 1.0}, {keys.MAX_EPSILON: 500.0}])
def test_nor_does_it_answer_any_other_message(client, term, task):
    """A description has the number of its nodes and its votes, which count validation nodes."""
    honest = client(term, task=task)
    assert honest.has_error() == (task == keys.EXCHANGE), "an exchange has no noise in any run"
    refused = reason(client(term, {"privacy.dp": "none"}, task=task))
    assert "expected a run whose clients add noise of their own" in refused


def test_whoever_reads_an_epsilon_reads_what_it_is_of(run, caplog):
    """It bounds what was learned of training nodes, and nothing of a count."""
    with caplog.at_level("INFO", "flwr"):
        finished = run(rounds=1, **MODES["local"], **NOISE)
    spent = f"{finished.result['privacy']['epsilon']:.4g}"
    (line,) = [line for line in promises(finished.result) if spent in line]
    assert f"epsilon {spent} of training nodes" in line
    assert "no count of validation or test nodes left a client" in promises(finished.result)[-1]
    assert f"round 1: spent epsilon {spent} of 500 of training nodes" in caplog.text
