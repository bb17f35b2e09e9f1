"""Weights of classes in the cross-entropy (`loss-weights`)."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dance_flwr.config.tree import parse
from dance_flwr.methods.plain_method import LabelledGraph, train_on
from dance_flwr.methods.whole_graph import train_on_graph
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.nn.training import class_weights, learning_rate, train_epochs

BALANCED = parse({"loss-weights": "balanced", "local-epochs": 1, "dropout": 0.0})
LABELS = torch.tensor([0, 0, 0, 0, 0, 0, 2, 2, -1, -1])


def test_epochs_step_as_the_optimizer_of_torch_bit_by_bit():
    """At the rate of the round; also a parameter that has no gradient in some epochs."""
    config = parse({"local-epochs": 4, "weight-decay": 0.01, "learning-rate": 0.1, "rounds": 4})
    found = []
    for by_class in (False, True):
        torch.manual_seed(1)
        model, epochs = torch.nn.ModuleList([torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)]), []
        inputs = torch.randn(5, 4)

        def loss_of(model=model, epochs=epochs, inputs=inputs):
            epochs.append(len(epochs))
            read = model if len(epochs) % 2 else model[:1]
            return sum(layer(inputs).square().sum() for layer in read)

        if by_class:
            options = {"lr": learning_rate(config, 3), "weight_decay": config.weight_decay}
            optimizer = torch.optim.Adam(model.parameters(), **options, fused=True)
            for _ in range(config.local_epochs):
                optimizer.zero_grad()
                loss_of().backward()
                optimizer.step()
        else:
            train_epochs(model, loss_of, config, round_=3)
        found.append(list(model.parameters()))
    assert all(map(torch.equal, *found))


def test_balanced_weights_are_those_of_scikit_learn():
    from sklearn.utils.class_weight import compute_class_weight

    known = LABELS[LABELS >= 0].numpy()
    expected = compute_class_weight("balanced", classes=np.array([0, 2]), y=known)
    weights = class_weights(torch.where(LABELS == 2, 1, LABELS), 2, BALANCED)
    assert weights.tolist() == pytest.approx(expected.tolist())
    assert class_weights(LABELS, 3, parse({})) is None


@pytest.mark.parametrize(
    ("train", "batch"), [(train_on, 0), (train_on_graph, 0), (train_on_graph, 4)]
)
def test_training_reads_the_weights_of_all_labels(train, batch, monkeypatch):
    """Also a batch of four nodes, whose own classes are in other proportions."""
    config = parse({"loss-weights": "balanced", "sampling.batch-nodes": batch, "local-epochs": 3})
    seen, loss = [], F.cross_entropy

    def watching(logits, labels, weight=None, **others):
        seen.append(weight)
        return loss(logits, labels, weight, **others)

    monkeypatch.setattr(F, "cross_entropy", watching)
    none = torch.empty(0, dtype=torch.int64)
    step = operator("gcn", none, none, torch.empty(0), len(LABELS))
    graph = LabelledGraph(torch.randn(len(LABELS), 5), step, LABELS)
    train(PlainModel(ModelShape(5, 4, 3), "gcn", 0.0), graph, config, 1)
    expected = class_weights(LABELS, 3, config)
    assert len(seen) == 3 and all(weights.equal(expected) for weights in seen)
