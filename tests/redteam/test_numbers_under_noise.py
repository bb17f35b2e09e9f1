"""Under noise nothing that depends on a client's data leaves it, but what the noise covers.

Two runs differ in the data of client 0 alone: other labels, texts, edges, numbers of nodes. What it
answers must be the same, entry by entry, except for the noisy update and salted hashes. Clients
send no counts of validations, whatever a message asks for; and a node that demands noise answers no
message of a run without it.
"""

import numpy as np
import pytest
from support.asking import asker, first_training, reason
from support.graphs import WORDS, sentences

from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.errors import QuorumError
from dance_flwr.federation.client.app import REFUSAL
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.wire import keys, messages
from dance_flwr.runs.privacy_report import promises

NOISE = {"privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0}
MASKED = {"privacy_secure_aggregation": True}
MODES = {
    "central": {"privacy_dp": "central"},
    "adaptive": {"privacy_dp": "central", "privacy_clipping": "adaptive"},
    "local": {"privacy_dp": "local"},
    "distributed": {"privacy_dp": "distributed", **MASKED},
}
COVERED = {keys.ARRAYS, keys.SCALES}  # records of the update
PAID = {keys.UNCLIPPED}  # the server adds noise to their sum, out of the same epsilon
# Keys and shares are drawn anew; what the masked sum holds is tested below.
SECRET = {"pk1", "pk2", "shares", "ctxts", "masked_params"}
SALTED = {keys.DATA_SHA256, keys.EVIDENCE_SHA256}
CLIENTS, NODES = 3, 9


def graph(crafted, name, seed, more):
    """Three clients; `seed` and `more`, its additional nodes, decide the data of client 0."""
    sizes = [NODES + more, *[NODES] * (CLIENTS - 1)]
    ids, labels, texts, split, pairs = [], [], [], [], []
    for client, size in enumerate(sizes):
        rng = np.random.default_rng([client, seed if client == 0 else 0])
        begin, own = len(ids), rng.integers(0, 3, size)
        own[:3] = [0, 1, 2]
        ids += [f"c{client}-{i}" for i in range(size)]
        labels += own.tolist()
        texts += [sentences(rng, WORDS[sorted(WORDS)[c]], int(rng.integers(1, 5))) for c in own]
        split += [TRAIN if i < 3 else (TRAIN, VAL, TEST)[i % 3] for i in range(size)]
        pairs += [(begin + i, begin + (i + 1 + client) % size) for i in range(size - seed % 2)]
    return crafted(name, ids, texts, labels, pairs, split)


def said(finished):
    """What client 0 said, message by message, without its update and without salted hashes."""
    told = []
    for message in finished.messages:
        if message.metadata.src_node_id != 1:
            continue
        if message.has_error():
            told.append(("error", message.error.reason))
            continue
        entries = {
            (record, key): value
            for record, content in message.content.items()
            if record not in COVERED
            for key, value in content.items()
            if key not in SALTED | PAID | SECRET
        }
        told.append((message.metadata.message_type, entries))
    return told


@pytest.mark.parametrize("method", ["dance", "fedavg-full"])
@pytest.mark.parametrize("mode", ["central", "adaptive", "local", "distributed"])
def test_two_clients_of_different_data_say_the_same(crafted, run, mode, method):
    one, other = (
        said(
            run(
                data=graph(crafted, f"{name}", seed, more),
                partition="random",
                method=method,
                rounds=2,
                **MODES[mode],
                **NOISE,
            )
        )
        for name, seed, more in (("one", 1, 0), ("other", 2, 6))
    )
    assert len(one) >= 5 and [kind for kind, _ in one] == [kind for kind, _ in other]
    told = {
        (kind, *key)
        for (kind, left), (_, right) in zip(one, other, strict=True)
        for key in left.keys() | right.keys()
        if left.get(key) != right.get(key)
    }
    assert not told


def test_a_masked_sum_holds_none_of_them_either(crafted, run):
    data = graph(crafted, "summed", 1, 0)
    finished = run(
        data=data, partition="random", clients=CLIENTS, rounds=2, **MODES["distributed"], **NOISE
    )
    result = finished.result
    assert (result["test_nodes"], result["val_nodes"], result["best_round"]) == (0, 0, 2)
    assert result["nodes_per_client"] == [0] and result["tokens"]["encoder"]["fresh"] == 0
    for row in result["history"]:
        assert row["loss"] is None and row["val_accuracy"] is None
        assert not any((*row["counts"].values(), *row["seconds"].values()))


@pytest.mark.parametrize("mode", ["central", "local"])
def test_a_client_says_of_an_error_only_that_there_was_one(run, monkeypatch, caplog, mode):
    def failing(client, *_, **__):
        raise RuntimeError(f"a client of {client.weight} nodes")

    monkeypatch.setattr(Client, "train", failing)
    with caplog.at_level("WARNING", "flwr"), pytest.raises(QuorumError, match=REFUSAL) as caught:
        run(rounds=1, **MODES[mode], **NOISE)
    assert "RuntimeError" not in str(caught.value)
    assert "RuntimeError: a client of 1 nodes" in caplog.text


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
