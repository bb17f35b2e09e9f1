"""Secure aggregation: same model, drop-outs, what the server sees, what a client refuses."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from scipy import stats
from support.altered import unlike
from support.graphs import TEXT_DIM
from support.models import equal

import client_app
from dance_flwr.config.plugins import METHODS
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation.client.client import initial_model, shape_of
from dance_flwr.federation.flower import SECAGG_CONFIGS, SECAGG_STATE, STATE_STAGE, bytes_to_ndarray
from dance_flwr.federation.flower import SecAggKey as Key
from dance_flwr.federation.flower import SecAggStage as Stage
from dance_flwr.federation.secagg import masks
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import Uplink
from dance_flwr.runs.result import load_model

STAGES = (Stage.SETUP, Stage.SHARE_KEYS, Stage.COLLECT_MASKED_VECTORS, Stage.UNMASK)
SECURE = {"privacy_secure_aggregation": True, "clients": 5, "rounds": 2}
PLAIN = {"method": "fedavg-full"}  # where a sum is a sum, whatever a client trains


def stage_of(message):
    """The stage that a message to a client belongs to, None for others."""
    if not message.has_content():
        return None
    return message.content.config_records.get(SECAGG_CONFIGS, {}).get(Key.STAGE)


class Dropping:
    """The client app with clients that fail from one stage of one sum on, until the sum ends.

    Sums count from 0: the weights, then training and validation of every round.
    """

    def __init__(self, stage, partitions, at=1):
        self.stage, self.partitions, self.at = STAGES.index(stage), partitions, at
        self.sums = Counter()
        self.seen = []

    def __call__(self, message, context):
        stage = stage_of(message)
        if stage is None:
            return client_app.app(message, context)
        partition = context.node_config["partition-id"]
        place = STAGES.index(stage)
        self.sums[partition] += place == 0
        if (
            self.sums[partition] - 1 == self.at
            and place >= self.stage
            and partition in self.partitions
        ):
            raise ConnectionError(f"client {partition} is gone")
        self.seen.append((partition, self.sums[partition] - 1, stage))
        return client_app.app(message, context)


@pytest.fixture(scope="module")
def plain(reference):
    return reference(clients=5, rounds=2)


@pytest.fixture(scope="module")
def secure(run):
    return run(**SECURE)


def test_masks_change_no_bit_of_the_model_nor_any_count(plain, secure):
    assert equal(load_model(plain.folder), load_model(secure.folder))
    for name in (
        "test_accuracy",
        "val_accuracy",
        "test_macro_f1",
        "best_round",
        "per_condensed_node",
        "test_nodes",
    ):
        assert plain.result[name] == secure.result[name], name
    for name in ("val_accuracy", "val_macro_f1", "views", "counts"):
        assert [row[name] for row in plain.result["history"]] == [
            row[name] for row in secure.result["history"]
        ], name
    losses = [[row["loss"] for row in result.result["history"]] for result in (plain, secure)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_only_sums_of_sizes_are_known(plain, secure):
    assert secure.result["nodes_per_client"] == [sum(plain.result["nodes_per_client"])]
    assert secure.result["encoder_tokens"] == [sum(plain.result["encoder_tokens"])]
    assert secure.result["clients"] == []


@pytest.mark.parametrize("stage", STAGES)
def test_one_of_five_may_drop_out_in_any_stage(run, reference, stage):
    app = Dropping(stage, {3})
    finished = run(app=app, **SECURE | PLAIN | {"rounds": 1})
    assert (3, 1, stage) not in app.seen
    # A client that is gone before it uploads is not in the mean; one that is gone afterwards is.
    # Nobody knows its weight, so it counts as one of mean weight.
    gone = {3} if stage != Stage.UNMASK else set()
    app = SILENCED[bool(gone)]
    expected = reference(app=app, clients=5, rounds=1, min_valid_replies=4, **PLAIN)
    sizes = [expected.data(client).num_nodes for client in range(5)]
    weight = sum(size for client, size in enumerate(sizes) if client not in gone) / sum(sizes)
    factor = weight * 5 / (5 - len(gone))
    start = initial_model(shape_of(TEXT_DIM, 3, expected.config), expected.config).state_dict()
    left, right = load_model(finished.folder), load_model(expected.folder)
    for name, first in start.items():
        mean = first + (right[name] - first) * factor
        torch.testing.assert_close(left[name], mean, atol=1e-6, rtol=0)


SILENCED = client_app.app, unlike({3}, range(9))


@pytest.mark.parametrize("stage", STAGES)
def test_three_of_five_that_drop_out_stop_the_run_and_leave_the_last_good_model(
    run, tmp_path, stage
):
    with pytest.raises(
        QuorumError, match=r"expected at least 3 of 5 clients, found 2.*is gone"
    ) as caught:
        # Sum 3 trains round 2.
        run(app=Dropping(stage, {0, 2, 3}, at=3), folder=tmp_path, **SECURE | PLAIN)
    assert stage.replace("_", " ") in str(caught.value)
    assert load_model(tmp_path)  # of round 1
    assert not (tmp_path / "result.json").exists()


def test_three_clients_are_summed_together_or_not_at_all(run):
    """Of a sum of two, each could subtract its own part."""
    with pytest.raises(QuorumError, match="expected at least 3 of 3 clients, found 2"):
        run(app=Dropping(Stage.COLLECT_MASKED_VECTORS, {1}), **SECURE | PLAIN | {"clients": 3})


def test_the_server_reads_no_weight_and_no_metric(plain, secure):
    """Records with a client's own numbers occur in plain runs only."""
    assert all("metrics" in reply.content for reply in plain.replies("train"))
    for reply in secure.replies("train"):
        for name, record in reply.content.metric_records.items():
            assert (name, dict(record)) == ("fitres.num_examples", {"num_examples": 1})
        assert all(not record for record in reply.content.array_records.values())
    assert secure.replies("evaluate") == []
    described = secure.replies("query.describe")
    assert {reply.content["config"]["num_nodes"] for reply in described} == {0}
    assert {reply.content["config"]["encoder_tokens"] for reply in described} == {0}


def uploads(finished):
    """Masked training vectors as the server receives them, [messages, entries]."""
    found = []
    for reply in finished.replies("train"):
        parts = reply.content.config_records.get(SECAGG_CONFIGS, {}).get(Key.MASKED_PARAMETERS)
        if parts:
            found.append(np.concatenate([bytes_to_ndarray(part).ravel() for part in parts]))
    longest = max(len(vector) for vector in found)
    return np.stack([vector for vector in found if len(vector) == longest])


def p_value(left, right):
    """p of a two-sample test on the bytes of two masked vectors: lowest of 4 positions, times 4."""
    p = []
    for shift in (0, 8, 16, 24):
        counts = [np.bincount((side >> shift) & 255, minlength=256) for side in (left, right)]
        table = np.stack(counts)
        p.append(stats.chi2_contingency(table[:, table.any(axis=0)]).pvalue)
    return min(1.0, 4 * min(p))


def correlation_p_values(vectors):
    """p that two masked vectors are not correlated, for each pair."""
    return [
        stats.pearsonr(left, right).pvalue for left, right in itertools.combinations(vectors, 2)
    ]


def chosen(monkeypatch, run, **keys):
    """A run in which client 0 uploads zeros and client 1 nearly the largest allowed change."""
    from dance_flwr.federation.client.client import Client

    honest = Client.train

    def fixed(self, state, info, **options):
        _, report = honest(self, state, info, **options)
        change = {0: 0.0, 1: 0.9}.get(self.data.card.client, 0.1)
        return {key: value + change for key, value in state.items()}, report

    monkeypatch.setattr(Client, "train", fixed)
    return run(**keys | PLAIN | {"rounds": 1, "hidden_dim": 64})


# What may be seen by chance once in ten million repetitions of 16 tests on random masks.
CHANCE = 1e-9


def test_two_chosen_updates_cannot_be_told_apart(run, monkeypatch):
    vectors = uploads(chosen(monkeypatch, run, **SECURE))
    assert len(vectors) == 5 and vectors.shape[1] > 5_000
    for vector in vectors:
        assert stats.kstest(vector, stats.randint(0, 2**32).cdf).pvalue > CHANCE
    assert p_value(vectors[0], vectors[1]) > CHANCE
    assert min(correlation_p_values(vectors)) > CHANCE


def test_the_same_test_tells_updates_apart_where_masks_are_missing(run, monkeypatch):
    """The test above can fail: with masks of zeros it does."""
    monkeypatch.setattr(
        masks,
        "masks",
        lambda secret, modulus, shapes: [np.zeros(s, np.int64) for s in shapes],
    )
    vectors = uploads(chosen(monkeypatch, run, **SECURE))
    monkeypatch.undo()
    masks.install()
    assert p_value(vectors[0], vectors[1]) < CHANCE
    assert min(correlation_p_values(vectors)) < CHANCE
    assert stats.kstest(vectors[0], stats.randint(0, 2**32).cdf).pvalue < CHANCE


def test_a_round_uses_new_keys(secure):
    keys = [
        reply.content.config_records[SECAGG_CONFIGS][name]
        for reply in secure.replies("train")
        for name in (Key.PUBLIC_KEY_1, Key.PUBLIC_KEY_2)
        if name in reply.content.config_records[SECAGG_CONFIGS]
    ]
    assert len(keys) == len(set(keys)) >= 2 * 5 * 5  # two keys, five clients, five sums


@pytest.fixture
def logged(caplog):
    """A function that returns the clients' ordinary log: to the server they do not say it."""
    return lambda: "".join(r.getMessage() for r in caplog.records if r.name == "flwr")


@pytest.fixture
def context(run_config, secure):
    from dance_flwr.config.tree import flatten

    keys = flatten(run_config(**SECURE))
    return Context(1, 1, {"partition-id": 0}, RecordDict(), keys)


def asked(context, configs, message_type=MessageType.TRAIN, **records):
    """The client's answer to one message of the server."""
    content = RecordDict(
        {**({SECAGG_CONFIGS: ConfigRecord(configs)} if configs else {}), **records}
    )
    return client_app.app(Message(content, 1, message_type), context)


@pytest.mark.parametrize("message_type", [MessageType.TRAIN, MessageType.EVALUATE])
@pytest.mark.parametrize("operator", [False, True])
def test_an_unmasked_request_is_refused(context, message_type, operator, logged):
    if operator:  # the run says no, the node's own operator yes
        context.run_config["privacy.secure-aggregation"] = False
        context.node_config["secure-aggregation"] = True
    reply = asked(context, None, message_type, config=ConfigRecord({}))
    assert reply.has_error() and "found an unmasked one" in logged()


def test_a_rounds_secrets_are_forgotten(run):
    contexts = {}

    def app(message, context):
        contexts[context.node_id] = context
        return client_app.app(message, context)

    run(app=app, **SECURE | PLAIN)
    for context in contexts.values():
        assert dict(context.state.config_records[SECAGG_STATE]) == {STATE_STAGE: Stage.UNMASK}


def test_a_method_that_reads_each_upload_is_refused(run, monkeypatch):
    spec = replace(get_spec("dance"), uplink=Uplink.EACH)
    monkeypatch.setitem(METHODS.builtin, "dance", spec)
    with pytest.raises(
        UserError, match=r"choose another method, or omit privacy\.secure-aggregation"
    ):
        run(**SECURE)


@pytest.mark.parametrize("strategy", ["fedprox", "fedadam"])
def test_strategies_of_means_work_unchanged(run, strategy):
    keys = PLAIN | {"clients": 5, "rounds": 2, "strategy": strategy}
    left, right = run(**keys), run(privacy_secure_aggregation=True, **keys)
    assert left.result["model_fingerprint"] == right.result["model_fingerprint"]
