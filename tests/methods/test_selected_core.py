"""Selected cores: selected once, the same in every round, trained on their induced subgraph."""

import numpy as np
import pytest
import torch

from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.selected_core import client as selected_core
from dance_flwr.methods.selected_core.rules import RULES, select_core

NAMES = ("random-core", "herding-core", "k-center-core")


@pytest.fixture(scope="module")
def finished(run):
    return {name: run(method=name, clients=3, rounds=2, local_epochs=1) for name in NAMES}


def core(finished, client=0):
    with np.load(finished.store(client).folder / "state.npz") as file:
        return torch.tensor(file["core"])


@pytest.mark.parametrize("name", NAMES)
def test_the_core_holds_labelled_training_nodes_alone(finished, name):
    for client in range(3):
        labels = finished[name].site(client).train_labels[core(finished[name], client)]
        assert (labels >= 0).all() and labels.numel() > 3


def test_the_three_rules_choose_differently(finished):
    random, herding, centres = (core(finished[name]).tolist() for name in NAMES)
    assert random != herding != centres != random


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_deterministic_rules_measure_after_two_hops(finished, name):
    site = finished[name].site(0)
    dense = site.graph.operator("gcn").to_dense()
    labels, chosen = site.train_labels, core(finished[name])
    quotas = torch.bincount(labels[chosen], minlength=3)
    rule = RULES[get_spec(name).make_client().rule]
    expected = select_core(
        dense @ dense @ site.table.nodes, labels, quotas, rule, torch.Generator()
    )
    assert chosen.equal(expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_round_trains_on_the_induced_subgraph(finished, monkeypatch, name):
    seen = []

    def spy(model, features, operator, labels, config, round_):
        seen.append((features, operator.to_dense(), labels))
        return 0.0

    monkeypatch.setattr(selected_core, "train_on", spy)
    site, nodes = finished[name].site(0), core(finished[name])
    method, config = get_spec(name).make_client(), finished[name].config
    from dance_flwr.federation.client.client import initial_model, shape_of

    model = initial_model(shape_of(384, 3, config), config)
    report = method.train(model, site, config, RoundInfo(finished[name].result["run"], 2, ""))
    features, operator, labels = seen[0]
    assert features.equal(site.table.nodes[nodes]) and labels.equal(site.train_labels[nodes])
    induced = site.graph.operator("sum").to_dense()[nodes][:, nodes]
    assert (operator.fill_diagonal_(0) > 0).equal(induced > 0)
    tokens = sum(
        int(site.bank.tokens[site.bank.ptr[v] : site.bank.ptr[v + 1]].sum()) for v in nodes.tolist()
    )
    assert report.counts["evidence-tokens"] == tokens and report.counts["condensed-nodes"] == len(
        nodes
    )
