"""Self-training: which nodes get a pseudo-label, the loss, and what it must never read."""

import numpy as np
import pytest
import torch
from dance_flwr_rivals.self_training import SelfTrainingConfig
from dance_flwr_rivals.self_training import client as self_training
from dance_flwr_rivals.self_training.client import SelfTraining, pseudo_labels
from oracles import plain
from support.models import equal
from support.sites import dense, toy_model, toy_site

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import parse
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.data.prepare import prepare
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.methods.contract import RoundInfo

LABELS = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
SPLIT = [TRAIN, TRAIN, TRAIN, VAL, VAL, TEST, TEST, TEST, NO_SPLIT, TRAIN]
EDGES = [(v, (v + 3) % 10) for v in range(10)] + [(0, 1), (4, 5), (7, 9)]


def config_of(**keys):
    """Pseudo-labels from round 1 on, for every node."""
    values = {"method": "self-training", "dropout": 0.0, "local-epochs": 1, "rounds": 10}
    values |= {"self-training.start-round": 1, "self-training.confidence": 0.0}
    return parse(values | {f"self-training.{k.replace('_', '-')}": v for k, v in keys.items()})


def settings_of(**keys):
    return SelfTrainingConfig.of(config_of(**keys))


def site_of(**keys):
    return toy_site(LABELS, SPLIT, EDGES, **keys)


def test_pseudo_labels_are_predictions_of_nodes_whose_label_training_does_not_know():
    data, model = site_of(), toy_model()
    probs = plain.probabilities(model, data.features, dense(data.graph))
    unknown = [3, 4, 5, 6, 7, 8]
    found = pseudo_labels(model, data, settings_of()).tolist()
    assert [v for v, label in enumerate(found) if label >= 0] == unknown
    assert [found[v] for v in unknown] == probs[unknown].argmax(axis=1).tolist()
    threshold = float(np.median(probs[unknown].max(axis=1)))
    some = pseudo_labels(model, data, settings_of(confidence=threshold)).tolist()
    expected = plain.confident(probs, unknown, threshold)
    assert {v: label for v, label in enumerate(some) if label >= 0} == expected
    assert 0 < len(expected) < 6


def test_in_inductive_mode_no_test_node_has_one_or_is_read():
    data, model = site_of(inductive=True), toy_model()
    found = pseudo_labels(model, data, settings_of())
    assert torch.nonzero(found >= 0).flatten().tolist() == [3, 4, 8]
    seen = (data.split != TEST).float()
    hidden = dense(data.graph) * seen[:, None] * seen
    probs = plain.probabilities(model, data.features, hidden)
    assert found[[3, 4, 8]].tolist() == probs[[3, 4, 8]].argmax(axis=1).tolist()
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    uploads = []
    for texts in (1.0, -7.0):
        data.features[5:8] = texts
        model.load_state_dict(start)
        SelfTraining().train(model, data, config_of(), RoundInfo("r", 1, ""))
        uploads.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    assert all(uploads[0][name].equal(uploads[1][name]) for name in start)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_the_loss_is_the_naive_sum_of_two_means(weight):
    data, model = site_of(), toy_model()
    probs = plain.probabilities(model, data.features, dense(data.graph))
    pseudo = plain.confident(probs, [3, 4, 5, 6, 7, 8], 0.0)
    labelled = {v: LABELS[v] for v in (0, 1, 2, 9)}
    expected = plain.mean_loss(probs, labelled) + weight * plain.mean_loss(probs, pseudo)
    config = config_of(weight=weight)
    report = SelfTraining().train(model, data, config, RoundInfo("r", 1, ""))
    assert report.loss == pytest.approx(expected, rel=1e-4)


def test_the_model_predicts_as_it_was_received_and_without_dropout(monkeypatch):
    """Once per round, before the first step, and the same whatever dropout would draw."""
    data, model, seen = site_of(), toy_model(dropout=0.9), []
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    compute = self_training.pseudo_labels

    def spy(model, data, settings):
        assert all(model.state_dict()[name].equal(start[name]) for name in start)
        seen.append(compute(model.train(), data, settings))
        return seen[-1]

    monkeypatch.setattr(self_training, "pseudo_labels", spy)
    values = {"method": "self-training", "local-epochs": 3, "self-training.start-round": 1}
    config = parse(values | {"self-training.confidence": 0.0})
    SelfTraining().train(model, data, config, RoundInfo("r", 1, ""))
    assert len(seen) == 1 and model.training
    probs = plain.probabilities(toy_model(dropout=0.9), data.features, dense(data.graph))
    assert seen[0][3:9].tolist() == probs[3:9].argmax(axis=1).tolist()


@pytest.mark.parametrize("label_reuse", [False, True])
@pytest.mark.parametrize("split_mode", ["transductive", "inductive"])
def test_labels_of_validation_and_test_nodes_do_not_reach_an_upload(
    run_config, split_mode, label_reuse
):
    config = run_config(
        method="self-training",
        split_mode=split_mode,
        label_reuse=label_reuse,
        **{"self-training.confidence": 0.0},
    )
    folder = prepare(config).folder / "client-0"

    def upload(*splits):
        """Train where the labels of these splits are others; all else is the same."""
        data = ClientData(folder, torch.device("cpu"), split_mode == "inductive")
        changed = torch.isin(data.split, torch.tensor(splits, dtype=torch.uint8))
        data.labels = torch.where(changed, (data.labels + 1) % 3, data.labels)
        client = Client(data, config)
        start = initial_model(shape_of(data.text_dim, 3, config), config).state_dict()
        client.model.load_state_dict(start)
        settings = SelfTrainingConfig.of(config)
        assert int((pseudo_labels(client.model, data, settings) >= 0).sum()) > 3
        return client.train(start, RoundInfo("alone", 2, ""))[0]

    untouched = upload()
    assert equal(upload(VAL, TEST), untouched)
    assert not equal(upload(TRAIN), untouched)
