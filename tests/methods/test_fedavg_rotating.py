"""FedAvg whose supervised nodes change every round: which they are, their loss, its limits."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import plain
from support.sites import dense, toy_model, toy_site

from dance_flwr.config.tree import parse
from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.methods import whole_graph
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.rotating import FedAvgRotating, supervised_nodes
from dance_flwr.runs.result import load_model


def config_of(**keys):
    values = {"method": "fedavg-rotating", "dropout": 0.0, "local-epochs": 1, "rounds": 10}
    return parse(values | {key.replace("__", ".").replace("_", "-"): v for key, v in keys.items()})


def site_of(known, n=None, client=0):
    """Nodes in a ring; those of `known` are training nodes, the others validation and test."""
    n = n or max(known) + 1
    split = [TRAIN if v in known else (VAL, TEST)[v % 2] for v in range(n)]
    return toy_site(
        [v % 3 for v in range(n)], split, [(v, (v + 1) % n) for v in range(n)], client=client
    )


def test_the_nodes_of_a_round_are_the_golden_ones():
    """K = ceil(0.1 * 20) = 2, ceil(2.25 * 2) = 5; the draws are those of sha256 and randperm."""
    known = list(range(0, 20, 2))
    data, config = site_of(known, 20, client=3), config_of(condensation_ratio=0.1, seed=7)
    for round_ in (1, 2):
        digest = hashlib.sha256(f"7/{round_}/3/rotating".encode()).digest()
        draws = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        order = torch.randperm(10, generator=draws).tolist()
        nodes = supervised_nodes(data, config, round_).tolist()
        assert nodes == sorted(known[place] for place in order[:5])
    assert supervised_nodes(data, config, 1).tolist() == [2, 4, 10, 16, 18]


@given(st.sets(st.integers(0, 29), min_size=1), st.integers(0, 9), st.floats(0.1, 4.0))
def test_they_are_distinct_labelled_training_nodes_and_depend_on_seed_round_client(
    known, seed, times
):
    config = config_of(condensation_ratio=0.1, rotating__supervised_ratio=times, seed=seed)
    data = site_of(known, 30)
    nodes = supervised_nodes(data, config, 4)
    assert set(nodes.tolist()) <= known and len(set(nodes.tolist())) == len(nodes)
    assert len(nodes) == min(len(known), int(np.ceil(np.round(3 * times, 9))))
    assert supervised_nodes(data, config, 4).equal(nodes)


def test_the_loss_is_that_of_the_nodes_alone_on_the_full_graph():
    data, config, model = (
        site_of(range(0, 12, 2), 12),
        config_of(condensation_ratio=0.1),
        toy_model(),
    )
    probs = plain.probabilities(model, data.features, dense(data.graph))
    nodes = supervised_nodes(data, config, 3).tolist()
    assert 1 < len(nodes) < 6
    report = FedAvgRotating().train(model, data, config, RoundInfo("r", 3, ""))
    expected = plain.mean_loss(probs, {v: v % 3 for v in nodes})
    assert report.loss == pytest.approx(expected, rel=1e-4)
    assert report.counts["evidence-supervised"] == len(nodes)
    everything = plain.mean_loss(probs, {v: v % 3 for v in range(0, 12, 2)})
    assert report.loss != pytest.approx(everything, rel=1e-2)


def test_the_epochs_of_a_round_share_their_nodes(monkeypatch):
    seen, loss = [], whole_graph.labelled_loss

    def spy(model, graph, targets, *others):
        seen.append(torch.nonzero(targets >= 0).flatten())
        return loss(model, graph, targets, *others)

    monkeypatch.setattr(whole_graph, "labelled_loss", spy)
    data, config = site_of(range(30)), config_of(condensation_ratio=0.1, local_epochs=3)
    for round_ in (1, 2):
        FedAvgRotating().train(toy_model(), data, config, RoundInfo("r", round_, ""))
    assert len(seen) == 6 and all(nodes.equal(seen[0]) for nodes in seen[:3])
    assert seen[3].equal(supervised_nodes(data, config, 2)) and not seen[3].equal(seen[0])


def test_with_every_labelled_node_it_is_fedavg(run):
    keys = {"rounds": 2, "local_epochs": 2}
    full = load_model(run(method="fedavg-full", **keys).folder)
    every, some = (
        load_model(run(method="fedavg-rotating", rotating_supervised_ratio=times, **keys).folder)
        for times in (100.0, 1.0)
    )
    assert all(every[name].equal(full[name]) for name in full)
    assert not all(some[name].equal(full[name]) for name in full)
