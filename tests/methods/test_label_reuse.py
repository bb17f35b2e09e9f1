"""Training labels as an input: halves, losses, predictions, and the methods that offer them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import plain
from support.contract import (
    LabelReuseContract,
    check_batches_read_labels,
    check_loss_of_halves,
    refuses_label_reuse,
)
from support.sites import dense, toy_model, toy_site

from dance_flwr.config.plugins import METHODS
from dance_flwr.config.tree import parse
from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.label_reuse import LabelHalves
from dance_flwr.methods.rotating import FedAvgRotating, supervised_nodes
from dance_flwr.methods.whole_graph import FedAvgFull

OFFERED = ["fedavg-full", "fedavg-rotating", "local-only"]
N = 12
LABELS = [v % 3 for v in range(N)]


def config_of(method="fedavg-full", **keys):
    values = {"method": method, "dropout": 0.0, "local-epochs": 1, "rounds": 9, "label-reuse": True}
    return parse(values | keys)


def site_of(known=range(0, N, 2), labels=LABELS):
    split = [TRAIN if v in known else (VAL, TEST)[v % 2] for v in range(N)]
    edges = [(v, (v + 1) % N) for v in range(N)] + [(0, 5), (2, 9)]
    return toy_site(labels, split, edges)


def test_the_methods_that_offer_it():
    assert [name for name in METHODS.builtin if get_spec(name).label_reuse] == OFFERED


@pytest.mark.parametrize("method", [name for name in METHODS.builtin if name not in OFFERED])
def test_others_refuse_it_before_anything_starts(run, tmp_path, run_config, method):
    refuses_label_reuse(run, run_config, method, tmp_path / "run")


@given(
    st.lists(st.integers(-1, 2), min_size=1, max_size=30),
    st.integers(0, 10**6),
    st.integers(1, 5),
)
def test_a_half_is_shown_and_the_others_are_targets(labels, seed, round_):
    """Also where the loss covers some of the training nodes: half of these, and of the others."""
    known = torch.tensor(labels)
    covered = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed)) < 0.5
    asked = torch.where(covered, known, -1)
    model = toy_model(reads_labels=True)
    halves = LabelHalves(model, known, config_of(seed=seed), round_, 0)
    shown, targets = halves.split(asked)
    assert shown.dtype == torch.float32 and set(shown.unique().tolist()) <= {0.0, 1.0}
    visible = shown.sum(1) > 0
    assert (shown.argmax(1)[visible] == known[visible]).all() and (shown.sum(1) <= 1).all()
    assert (targets[visible] == -1).all(), "no node is asked for what it shows"
    assert targets.equal(torch.where(visible, -1, asked))
    for part in (asked >= 0, (known >= 0) & (asked < 0)):
        assert int((visible & part).sum()) == int(part.sum()) // 2
    assert bool((targets >= 0).any()) == bool((asked >= 0).any())


@pytest.mark.parametrize("trainer", [FedAvgFull, FedAvgRotating])
def test_the_loss_of_an_epoch_is_its_naive_twin(trainer):
    keys = {"condensation-ratio": 0.15, "rotating.supervised-ratio": 2.0}
    rotates = trainer is FedAvgRotating
    config = config_of("fedavg-rotating" if rotates else "fedavg-full", **keys)
    data, model = site_of(), toy_model(reads_labels=True)
    covered = data.train_labels
    if rotates:
        covered = torch.full_like(covered, -1)
        nodes = supervised_nodes(data, config, 4)
        covered[nodes] = data.train_labels[nodes]
        assert 1 < len(nodes) < 6
    check_loss_of_halves(trainer(), model, data, config, covered)


def test_predictions_show_every_training_label_and_no_other():
    data, config, model = site_of(), config_of(), toy_model(reads_labels=True)
    views = FedAvgFull().predict(model, data, config, RoundInfo("r", 1, ""), torch.arange(N))
    expected = plain.probabilities(
        model, data.features, dense(data.graph), data.train_labels.tolist()
    )
    np.testing.assert_allclose(views["deployed"], expected, atol=1e-5)
    other = site_of(labels=[v % 3 if v % 2 == 0 else 0 for v in range(N)])
    again = FedAvgFull().predict(model, other, config, RoundInfo("r", 1, ""), torch.arange(N))
    assert again["deployed"].equal(views["deployed"]), "labels of validation and test nodes"


@pytest.mark.parametrize("method", OFFERED)
class TestRuns(LabelReuseContract):
    """Of the methods of this package."""


@pytest.mark.parametrize("method", ["fedavg-full", "fedavg-rotating"])
def test_batches_read_labels_too(run, method):
    check_batches_read_labels(run, method)


def halves_of(data, config, round_=1, reads=True):
    return LabelHalves(toy_model(reads_labels=reads), data.train_labels, config, round_, 0)


def test_the_halves_change_with_epoch_round_client_and_seed_and_cover_every_node():
    data, config = site_of(range(N)), config_of()
    epochs = halves_of(data, config)
    drawn = [epochs.split(data.train_labels)[0].sum(1) for _ in range(40)]
    assert not drawn[0].equal(drawn[1])
    counts = torch.stack(drawn).sum(0)
    assert counts.min() >= 8 and counts.max() <= 32
    assert halves_of(data, config).split(data.train_labels)[0].sum(1).equal(drawn[0])
    others = (
        halves_of(data, config, round_=2),
        halves_of(data, config_of(seed=1)),
        LabelHalves(toy_model(reads_labels=True), data.train_labels, config, 1, 1),
    )
    assert not any(other.split(data.train_labels)[0].sum(1).equal(drawn[0]) for other in others)
