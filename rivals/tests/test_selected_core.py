"""Selected cores: selected once, or anew in every round; trained on their induced subgraph."""

import numpy as np
import pytest
import torch
from dance_flwr_rivals.condensation.client import client_quotas
from dance_flwr_rivals.selected_core import client as selected_core
from dance_flwr_rivals.selected_core.client import RULES, select_core
from support.graphs import TEXT_DIM

from dance_flwr.federation.client.client import initial_model, shape_of
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.seeding import generator

NAMES = ("random-core", "herding-core", "k-center-core")
EVERY = (*NAMES, "rotating-core")


@pytest.fixture(scope="module")
def finished(run):
    return {name: run(method=name, clients=3, rounds=2, local_epochs=1) for name in EVERY}


def core(finished, client=0):
    with np.load(finished.store(client).folder / "state.npz") as file:
        return torch.tensor(file["core"])


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_deterministic_rules_measure_after_two_hops(finished, name):
    data = finished[name].data(0)
    dense = data.graph.operator("gcn").to_dense()
    labels, chosen = data.train_labels, core(finished[name])
    quotas = torch.bincount(labels[chosen], minlength=3)
    rule = RULES[get_spec(name).make_client().rule]
    expected = select_core(
        dense @ dense @ data.table.nodes, labels, quotas, rule, torch.Generator()
    )
    assert chosen.equal(expected)


@pytest.mark.parametrize("name", EVERY)
def test_a_round_trains_on_the_induced_subgraph(finished, monkeypatch, name):
    seen = []

    def spy(model, graph, config, round_):
        seen.append((graph.features, graph.operator.to_dense(), graph.labels))
        return 0.0

    monkeypatch.setattr(selected_core, "train_on", spy)
    data, nodes = finished[name].data(0), core(finished[name])
    method, config = get_spec(name).make_client(), finished[name].config
    model = initial_model(shape_of(TEXT_DIM, 3, config), config)
    report = method.train(model, data, config, RoundInfo(finished[name].result["run"], 2, ""))
    features, operator, labels = seen[0]
    assert features.equal(data.table.nodes[nodes]) and labels.equal(data.train_labels[nodes])
    induced = data.graph.operator("sum").to_dense()[nodes][:, nodes]
    assert (operator.fill_diagonal_(0) > 0).equal(induced > 0)
    tokens = sum(
        int(data.bank.tokens[data.bank.ptr[v] : data.bank.ptr[v + 1]].sum()) for v in nodes.tolist()
    )
    assert report.counts["evidence-tokens"] == tokens and report.counts["condensed-nodes"] == len(
        nodes
    )


def cores_of(data, config, name, rounds, run, monkeypatch):
    """The cores that `train` uses in these rounds of a run of its own."""
    seen = []

    def spy(model, graph, config, round_):
        matches = (data.features[:, None] == graph.features).all(2).nonzero()
        seen.append((matches[:, 0].sort().values, graph.labels, graph.operator.to_dense()))
        return 0.0

    monkeypatch.setattr(selected_core, "train_on", spy)
    model = initial_model(shape_of(TEXT_DIM, 3, config), config)
    for round_ in rounds:
        get_spec(name).make_client().train(model, data, config, RoundInfo(run, round_, ""))
    return seen


def test_a_rotating_core_is_drawn_anew_in_every_round(finished, monkeypatch, tmp_path):
    """The naive twin draws class by class; quotas are the same in all rounds, edges induced."""
    data, config = finished["rotating-core"].data(0), finished["rotating-core"].config
    quotas = client_quotas(data, config)
    adjacency = data.graph.operator("sum").to_dense()
    cores = cores_of(data, config, "rotating-core", (1, 2, 3), tmp_path.name, monkeypatch)
    for round_, (core, labels, operator) in enumerate(cores, 1):
        draws = generator(config.seed, "random-core", round_=round_, client=0)
        expected = []
        for label in range(3):
            nodes = [v for v, own in enumerate(data.train_labels.tolist()) if own == label]
            order = torch.randperm(len(nodes), generator=draws).tolist()
            expected += [nodes[place] for place in order[: int(quotas[label])]]
        assert core.tolist() == sorted(expected)
        assert labels.equal(data.train_labels[core])
        assert torch.bincount(labels, minlength=3).equal(quotas)
        linked = (operator.fill_diagonal_(0) > 0).float()
        assert linked.equal(adjacency[core][:, core])
    assert not cores[0][0].equal(cores[1][0]) and not cores[1][0].equal(cores[2][0])
