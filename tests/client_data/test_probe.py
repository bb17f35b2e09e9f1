"""The linear probe that chooses how a client's texts and edges are read."""

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
from dance_flwr.client_data.reading_probe import choose, ridge
from dance_flwr.config.sections import ReadingConfig
from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.data.prepare import prepare

ASKED = ReadingConfig(text_pooling="probe", edge_gates="probe")


def hits(*rows):
    return torch.tensor([[letter == "x" for letter in row] for row in rows], dtype=torch.bool)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (("xxxx....", "xxxxx..."), 0),  # 1 gained, none lost: one standard error, not more
        (("xxxx....", "xxxxxx.."), 1),  # 2 gained: more than sqrt(2)
        (("xxxx....", "..xxxxxx"), 0),  # 4 gained, 2 lost: 2 is less than sqrt(6)
        (("xxxx....", "xxxxxx..", "xxxxxxx."), 2),
        (("xxxx....", "xxxx....", "x......."), 0),
        (("", ""), 0),
    ],
)
def test_another_reading_is_chosen_only_beyond_chance(rows, expected):
    assert choose(hits(*rows)) == expected


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


def test_the_choice_is_kept_with_the_hits_of_every_candidate(open_client, monkeypatch):
    chosen = open_client().reading
    assert {chosen.text_pooling, chosen.edge_gates} <= {"attention", "agreement", "none"}
    (path,) = (open_client().folder / "derived").glob("reading-*.json")
    kept = json.loads(path.read_text())
    readings = [(c["text_pooling"], c["edge_gates"]) for c in kept["candidates"]]
    assert readings == [(text, gate) for gate in ("none", "agreement") for text in PAIR]
    assert all(0 <= c["hits"] <= kept["nodes"] for c in kept["candidates"])
    monkeypatch.setattr(probe, "_hits", lambda *_: pytest.fail("probed again"))
    assert open_client().reading == chosen


PAIR = ("attention", "agreement")


@pytest.mark.parametrize("damage", ["", "[]", '{"chosen": {"text_pooling": "attention"}}', "{"])
def test_a_damaged_choice_is_made_again(open_client, damage):
    chosen = open_client().reading
    (path,) = (open_client().folder / "derived").glob("reading-*.json")
    whole = path.read_text()
    path.write_text(damage)
    assert open_client().reading == chosen
    assert path.read_text() == whole


def test_a_kept_choice_that_was_not_asked_for_is_no_choice(open_client):
    chosen = open_client().reading
    (path,) = (open_client().folder / "derived").glob("reading-*.json")
    path.write_text('{"chosen": {"text_pooling": "probe", "edge_gates": "always"}}')
    assert open_client().reading == chosen


def test_one_asked_key_leaves_the_other_alone(open_client):
    data = open_client(ReadingConfig(text_pooling="agreement", edge_gates="probe"))
    assert data.reading.text_pooling == "agreement"
    assert data.reading.edge_gates in ("none", "agreement")
    assert open_client(ReadingConfig()).reading == ReadingConfig()


def test_test_labels_change_no_hit(open_client):
    data, other = (open_client(ReadingConfig(text_pooling="agreement")) for _ in range(2))
    tests = torch.nonzero(data.split == TEST).flatten()
    assert len(tests) > 1
    other.labels[tests] = (other.labels[tests] + 1) % len(data.card.class_names)
    assert torch.equal(hits_of(data), hits_of(other))
    validated = torch.nonzero(data.split == VAL).flatten()
    other.labels[validated] = (other.labels[validated] + 1) % len(data.card.class_names)
    assert not torch.equal(hits_of(data), hits_of(other))


def test_a_client_without_validation_nodes_keeps_the_papers_reading(open_client):
    data = open_client(ReadingConfig())
    data.split[data.split == VAL] = TEST
    nodes = probe.probe_nodes(data.labels, data.split, len(data.card.class_names), 0)
    path = data.folder / "derived" / "x.json"
    read = data.table.nodes, data.training_graph
    chosen = probe.probed(ASKED, nodes, lambda reading: read, path)
    assert (chosen.text_pooling, chosen.edge_gates) == ("attention", "none")


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
    found = torch.stack([hits_under(each) for each in (None, gates)])
    assert choose(found) == 1
    assert choose(found.flip(0)) == 0
