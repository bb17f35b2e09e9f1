"""A server that crafts the model of a round, so that a masked sum gives single rows.

All units of a crafted model lead to one output, so that a row has the same factor in the gradient
of each. Bins (Fowl et al. 2022, "Robbing the Fed") have equal rows w, and biases at the quantiles
of w x. Traps (Boenisch et al. 2021, "When the Curious Abandon Honesty") have random rows, and are
active at about one node of all clients. Weights behind the first layer are so small that Adam's
update is proportional to the gradient.
"""

from contextlib import suppress
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from support.asking import asker, first_training, reason
from support.graphs import WORDS
from torch.nn import functional as F

import server_app
from dance_flwr.client_data.inputs import resident_inputs
from dance_flwr.data.graphs.codes import TEST, TRAIN, VAL
from dance_flwr.errors import UserError
from dance_flwr.federation.client.admission import clipped, shows_single_row
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.upload_checks import update_norm
from dance_flwr.runs.result import load_model
from dance_flwr.seeding import generator

WEIGHT, BIAS = "backbone.first.lin.weight", "backbone.first.bias"
NEXT, HEAD = "backbone.second.lin.weight", "head_graph.weight"
COSINE = 0.999  # with a candidate, above which a row counts as read
_SMALL = 3e-5
_VEIL = 0.3  # length of what veiled bins add to unit weights: cosines of 0.92, below 0.99


def bins(state, rows):
    """Return a model of equal rows w and biases in steps."""
    width, text_dim = state[WEIGHT].shape
    direction = _directions(1, text_dim).expand(width, -1)
    # About one row in a bin; where there are more rows than bins, those of the upper tail.
    levels = 1 - torch.arange(width, 0, -1) / max(width, len(rows))
    return _crafted(state, direction, torch.quantile(rows @ direction[0], levels))


def traps(state, rows):
    """Return a model of random rows whose units are active at one of N rows; see `bins`."""
    directions = _directions(*state[WEIGHT].shape)
    return _crafted(state, directions, torch.quantile(rows @ directions.T, 1 - 1 / len(rows), 0))


def _directions(number, text_dim):
    return F.normalize(torch.randn(number, text_dim, generator=generator(0, "crafted")), dim=1)


def _crafted(state, weight, level):
    new = {name: value.clone() for name, value in state.items()}
    new |= {WEIGHT: weight.clone(), BIAS: -level, NEXT: torch.zeros_like(new[NEXT])}
    new[NEXT][0] = _SMALL
    new[HEAD] = _SMALL * torch.randn(new[HEAD].shape, generator=generator(0, "crafted head"))
    return new


def veiled_bins(state, rows):
    """Return `bins` whose rows differ in the directions in which the texts vary least.

    An adaptive attacker: weights are less parallel than a node refuses, and outputs nearly are.
    """
    new = bins(state, rows)
    _, vectors = torch.linalg.eigh(torch.cov(rows.T))  # the least variance comes first
    low = vectors[:, : max(1, vectors.size(1) // 4)]
    veil = torch.randn(len(new[WEIGHT]), low.size(1), generator=generator(0, "veil")) @ low.T
    new[WEIGHT] = new[WEIGHT] + _VEIL * F.normalize(veil, dim=1)
    return new


def rows_read(start, seen, rows):
    """Return how many of the rows [N, d] the update from `start` to `seen` shows.

    Candidates are the updates of all units, and their differences in the order of the biases.
    """
    change = (seen[WEIGHT] - start[WEIGHT]).cpu().double()
    change = change[start[BIAS].cpu().argsort()]
    return _matched(torch.cat([change, change.diff(dim=0)]), rows)


def _matched(candidates, rows):
    cosines = F.normalize(candidates.double(), dim=1) @ F.normalize(rows.double(), dim=1).T
    best, row = cosines.abs().max(dim=1)
    return len(set(row[best > COSINE].tolist()))


# What a server would ask for: one step from the crafted model, and no randomness.
PLAIN = {
    **{"clients": 3, "rounds": 1, "method": "fedavg-full", "hidden_dim": 64},
    **{"local_epochs": 1, "weight_decay": 0.0, "dropout": 0.0},
}


@pytest.fixture(scope="module")
def rows(reference):
    """[s, d] what the first layer reads at the labelled nodes of all clients."""
    finished, parts = reference(**PLAIN), []
    for client in range(3):
        data = finished.data(client)
        shape = shape_of(data.text_dim, len(data.card.class_names), finished.config)
        backbone = initial_model(shape, finished.config).backbone
        inputs = resident_inputs(backbone, data.table.nodes, data.graph)
        parts.append(inputs[data.train_labels >= 0])
    return torch.cat(parts)


@pytest.mark.parametrize("craft", [bins, traps])
def test_one_crafted_start_model_gives_no_row_of_a_masked_sum(run, monkeypatch, rows, craft):
    crafted, sent = {}, []

    def initial_arrays(_, model):
        crafted.update(craft(model, rows))
        return arrays_of(crafted)

    def note(message):
        if not message.metadata.src_node_id and keys.ARRAYS in message.content:
            sent.append(messages.model_of(message))

    monkeypatch.setattr(server_app, "initial_arrays", initial_arrays)
    with suppress(UserError):
        run(on_message=note, privacy_secure_aggregation=True, **PLAIN)
    assert len(sent) > 1 and rows_read(crafted, sent[-1], rows) == 0


@pytest.fixture
def client(run, tmp_path):
    """A function that asks one client, which has a folder of its own, and returns its reply."""
    return asker(first_training(run, **PLAIN), tmp_path / "own")


@pytest.fixture
def site(reference):
    """A client of a masked run of one step without randomness."""
    finished = reference(**PLAIN)
    privacy = replace(finished.config.privacy, secure_aggregation=True)
    return Client(finished.data(0), replace(finished.config, privacy=privacy))


@pytest.mark.parametrize("craft", [bins, veiled_bins])
def test_a_client_leaves_out_a_round_that_would_show_its_rows(site, craft):
    """Whatever the model of a later round: bins, and those that hide from a look at the weights."""
    shape = shape_of(site.data.text_dim, len(site.data.card.class_names), site.config)
    model = initial_model(shape, site.config)
    inputs = site.data.inputs(site.data.graph, model.backbone).float()
    labelled = inputs[site.data.train_labels >= 0]
    start = craft(model.state_dict(), labelled)
    state, _ = site.train(start, RoundInfo("crafted", 1, ""))
    assert rows_read(start, state, labelled) > 2
    assert shows_single_row(site, start, state)
    # An honest model, and a server that reads every upload anyway.
    honest, _ = site.train(model.state_dict(), RoundInfo("honest", 1, ""))
    assert not shows_single_row(site, model.state_dict(), honest)
    plain = replace(site.config, privacy=replace(site.config.privacy, secure_aggregation=False))
    assert not shows_single_row(Client(site.data, plain), start, state)


def test_a_naive_twin_finds_the_same_rows(site):
    shape = shape_of(site.data.text_dim, len(site.data.card.class_names), site.config)
    model = initial_model(shape, site.config)
    rows = site.data.inputs(site.data.graph, model.backbone).double()
    draw = torch.Generator().manual_seed(0)
    found = []
    for trial in range(40):
        start = {name: value.clone() for name, value in model.state_dict().items()}
        start[WEIGHT][1] = start[WEIGHT][0] + 0.1 * trial / 40 * start[WEIGHT][1]
        noise = torch.randn(len(start[WEIGHT]), rows.size(1), generator=draw)
        state = start | {WEIGHT: start[WEIGHT] + noise}
        row = rows[trial % len(rows)].float()
        state[WEIGHT][1] = start[WEIGHT][1] + noise[0] + (row + trial / 80 * noise[1])
        found.append(shows_single_row(site, start, state))
        change = (state[WEIGHT] - start[WEIGHT]).double()
        weight = start[WEIGHT].double()
        spans = []
        for i, j in combinations(range(len(weight)), 2):
            if F.cosine_similarity(weight[i], weight[j], dim=0).abs() > 0.9:
                basis = torch.linalg.qr(change[[i, j]].T)[0]
                lengths = (F.normalize(rows, dim=1) @ basis).norm(dim=1)
                spans.append(int((lengths > 0.99).sum()))
        assert found[-1] == any(0 < count < 3 for count in spans), trial
    assert 5 < sum(found) < 35


def test_an_honest_run_with_parallel_units_ends(crafted, run):
    """Easy classes, whose units become parallel: no round of no client is refused."""
    ids, labels, texts, split, pairs = [], [], [], [], []
    rng = np.random.default_rng(0)
    for client in range(3):
        for i in range(12):
            ids.append(f"c{client}-{i}")
            labels.append(client if client < 2 else i % 3)  # two clients of one class each
            texts.append(" ".join(rng.choice(WORDS[sorted(WORDS)[labels[-1]]][:4], 12)))
            split.append((TRAIN, VAL, TEST)[i // 4])
            pairs.append((client * 12 + i, client * 12 + (i + 1) % 12))
    data = crafted("easy", ids, texts, labels, pairs, split)
    keys = {"method": "fedavg-full", "clients": 3, "partition": "random", "hidden_dim": 64}
    keys |= {"learning_rate": 0.02, "weight_decay": 0.2, "dropout": 0.0, "local_epochs": 5}
    keys |= {"lr_schedule": "constant", "evaluate_every": 40, "rounds": 80}
    finished = run(data=data, privacy_secure_aggregation=True, **keys)
    assert len(finished.result["history"]) == 80
    assert not any(row["absent"] for row in finished.result["history"])
    unit = F.normalize(load_model(finished.folder)[WEIGHT], dim=1)
    share = ((unit @ unit.T).fill_diagonal_(0).abs() > 0.99).any(1).float().mean()
    assert share > 0.1, "the case does not occur"


def test_round_1_starts_from_the_model_of_the_seed_and_no_round_from_one_far_away(client):
    other = {name: value + 0.01 for name, value in client.model.items()}
    assert "expected the initial model of the run's seed" in reason(client(model=other))
    assert not client(model=other, server_round=2).has_error()
    assert "max-change" in reason(client({"max-change": 0.01}, model=other, server_round=2))
    far = {name: 30 * value for name, value in client.model.items()}
    assert "max-change" in reason(client(model=far, server_round=2))
    lacking = {name: value for name, value in client.model.items() if name != WEIGHT}
    assert "found others or none" in reason(client(model=lacking))
    assert "found NaN" in reason(
        client(model=client.model | {WEIGHT: float("nan") * other[WEIGHT]})
    )


def test_a_node_clips_its_update(client):
    start, seen = client.model, messages.model_of(client({"max-change": 0.01}))
    length = update_norm(start, {name: 0 * value for name, value in start.items()})
    assert update_norm(seen, start) == pytest.approx(0.01 * length, rel=1e-3)
    assert update_norm(messages.model_of(client()), start) > 0.02 * length


def test_an_update_is_clipped_and_one_within_the_bound_is_the_same_to_the_last_bit():
    start = {"a": torch.randn(50), "n": torch.tensor(3)}
    state = {"a": start["a"] + 1, "n": torch.tensor(4)}
    assert clipped(state, start, 50**0.5 + 0.1) is state
    change = clipped(state, start, 2.0)["a"] - start["a"]
    assert torch.allclose(change, torch.full((50,), 2 / 50**0.5), atol=1e-6)
    broken = state | {"a": torch.full((50,), float("nan"))}
    assert clipped(broken, start, 2.0) is broken  # refused where uploads are checked
