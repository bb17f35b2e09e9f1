"""The linear probe by which clients vote on how their federation reads texts and edges."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from support.builders import rows_of

from dance_flwr.client_data import reading_probe as probe
from dance_flwr.client_data.agreement import agreeing_edges
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.reading_probe import elect, readings, ridge, with_choice
from dance_flwr.config.sections import ReadingConfig
from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError

ASKED = ReadingConfig(text_pooling="probe", edge_gates="probe")
ONE = ReadingConfig(text_pooling="probe", edge_gates="none")


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([0, 0, 1, 0], 0),  # 1 gained, none lost: one standard error, not more
        ([0, 0, 2, 0], 1),  # more than sqrt(2)
        ([0, 0, 4, 2], 0),  # 2 is less than sqrt(6)
        ([0, 0, 2, 0, 3, 0], 2),
        ([0, 0, 0, 0, 1, 4], 0),
        ([], 0),
    ],
)
def test_another_reading_is_elected_only_beyond_chance(votes, expected, monkeypatch):
    candidates = [f"reading {k}" for k in range(3)]
    monkeypatch.setattr(probe, "readings", lambda configured: candidates)
    assert elect(ASKED, votes) == candidates[expected]


@pytest.mark.parametrize(
    "choice",
    [
        {"text-pooling": "agreement"},
        {"text-pooling": "probe", "edge-gates": "none"},
        {"text-pooling": "agreement", "edge-gates": "agreement"},  # edges are not open
        {"text-pooling": "agreement", "edge-gates": ["none"]},
        {"edge-gates": "none"},
    ],
)
def test_a_choice_that_the_run_does_not_leave_open_is_refused(choice):
    with pytest.raises(UserError, match="expected a reading that the run's text-pooling"):
        with_choice(ONE, choice)
    assert with_choice(ReadingConfig(), choice) == ReadingConfig()  # nothing is open


def test_ridge_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((30, 5)), rng.standard_normal((30, 3))
    expected = Ridge(alpha=2.0, fit_intercept=False).fit(inputs, targets).coef_.T
    found = ridge(torch.tensor(inputs), torch.tensor(targets), 2.0)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)


def hits_of(data):
    nodes = probe.probe_nodes(data.labels, data.split, len(data.card.class_names), 0)
    return probe._hits(nodes, data.table.nodes, data.training_graph)


@pytest.fixture
def open_client(run_config, tmp_path):
    """Open a client of the tiny graph; nothing that was derived before is there."""

    def opened(reading=ASKED, **keys):
        folder = prepare(run_config(data_root=str(tmp_path), **keys)).folder / "client-0"
        return ClientData(folder, torch.device("cpu"), reading=reading)

    return opened


def test_votes_are_counted_once(open_client, monkeypatch):
    votes = open_client().reading_votes()
    assert len(votes) == 8
    assert votes[:2] == [0, 0]
    (path,) = (open_client().folder / "derived").glob("votes-*.json")
    assert all(n <= json.loads(path.read_text())["nodes"] for n in votes)
    monkeypatch.setattr(probe, "_hits", lambda *_: pytest.fail("probed again"))
    assert open_client().reading_votes() == votes


def test_votes_count_what_a_reading_gains_and_loses(open_client):
    by_reading = [hits_of(open_client(reading)) for reading in readings(ASKED)]
    expected = []
    for hits in by_reading:
        pairs = list(zip(hits.tolist(), by_reading[0].tolist(), strict=True))
        expected += [pairs.count((True, False)), pairs.count((False, True))]
    assert open_client().reading_votes() == expected


@pytest.mark.parametrize(
    "damage", ["", "[]", '{"votes": [0, 0]}', '{"votes": "00000000"}', '{"votes": [-1]}', "{"]
)
def test_damaged_votes_are_counted_again(open_client, damage):
    votes = open_client().reading_votes()
    (path,) = (open_client().folder / "derived").glob("votes-*.json")
    whole = path.read_text()
    path.write_text(damage)
    assert open_client().reading_votes() == votes
    assert path.read_text() == whole


def test_a_settled_reading_needs_no_vote_and_an_open_one_reads_nothing(open_client):
    assert open_client(ReadingConfig()).reading_votes() == []
    assert len(open_client(ONE).reading_votes()) == 4
    with pytest.raises(ValueError, match="expected a reading that the federation has chosen"):
        open_client(ONE).table  # noqa: B018  # reading it is the point


def test_test_labels_change_no_hit(open_client):
    data, other = (open_client(ReadingConfig(text_pooling="agreement")) for _ in range(2))
    tests = torch.nonzero(data.split == TEST).flatten()
    assert len(tests) > 1
    other.labels[tests] = (other.labels[tests] + 1) % len(data.card.class_names)
    assert torch.equal(hits_of(data), hits_of(other))
    validated = torch.nonzero(data.split == VAL).flatten()
    other.labels[validated] = (other.labels[validated] + 1) % len(data.card.class_names)
    assert not torch.equal(hits_of(data), hits_of(other))


def test_random_edges_let_the_probe_gate_them():
    """Two topics; most edges are random, and those within a topic join similar texts."""
    rng, n = np.random.default_rng(2), 600
    labels = np.arange(n) % 2
    texts = 0.35 * rng.standard_normal((2, 16))[labels] + 0.4 * rng.standard_normal((n, 16))
    within = [(a, b) for a, b in rng.integers(0, n, (3000, 2)) if labels[a] == labels[b]]
    pairs = np.concatenate([within, rng.integers(0, n, (6000, 2))])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    near = np.zeros((n, n), dtype=bool)
    near[pairs[:, 0], pairs[:, 1]] = near[pairs[:, 1], pairs[:, 0]] = True
    rows, texts = (
        rows_of((np.r_[0, near.sum(1).cumsum()], np.nonzero(near)[1])),
        torch.tensor(texts),
    )
    split = torch.tensor(np.where(np.arange(n) < 60, TRAIN, VAL))

    nodes = probe.probe_nodes(torch.tensor(labels), split, 2, 0)

    def hits_under(gates):
        graph = LocalGraph(rows, torch.ones(n, dtype=torch.bool), gates=gates)
        return probe._hits(nodes, texts.float(), graph)

    gates = agreeing_edges(texts.float(), rows, 0.2)
    plain, gated = (hits_under(each) for each in (None, gates))
    gained, lost = int((gated & ~plain).sum()), int((plain & ~gated).sum())
    gates_alone = ReadingConfig(text_pooling="attention", edge_gates="probe")
    assert elect(gates_alone, [0, 0, gained, lost]).edge_gates == "agreement"
    assert elect(gates_alone, [0, 0, lost, gained]).edge_gates == "none"
