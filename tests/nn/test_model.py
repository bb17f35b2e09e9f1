"""The plain model with labels as an input, and without."""

import pytest
import torch
from support.builders import random_csr

from dance_flwr.config.plugins import BACKBONES
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.model import ModelShape, PlainModel, load_state
from dance_flwr.nn.propagation import operator

N, WIDTH, HIDDEN, CLASSES = 9, 12, 8, 3
SHAPE = ModelShape(WIDTH, HIDDEN, CLASSES)
every_backbone = pytest.mark.parametrize("name", BACKBONES)


def model_of(name, reads_labels, dropout=0.0):
    torch.manual_seed(4)
    model = PlainModel(SHAPE, name, dropout, reads_labels).eval()
    if reads_labels:
        torch.nn.init.normal_(model.label_weight)
    return model


def graph_of(kind, seed=2):
    import numpy as np

    indptr, cols = random_csr(np.random.default_rng(seed), N, 0.3)
    rows = torch.repeat_interleave(torch.arange(N), torch.tensor(indptr).diff())
    return operator(kind, rows, torch.tensor(cols), torch.ones(len(cols)), N)


def inputs(seed=8):
    draws = torch.Generator().manual_seed(seed)
    features = torch.randn(N, WIDTH, generator=draws)
    labels = torch.zeros(N, CLASSES)
    labels[torch.arange(0, N, 2), torch.randint(CLASSES, (5,), generator=draws)] = 1
    return features, labels


@every_backbone
def test_labels_enter_like_columns_behind_the_normalised_texts(name):
    """The twin is a backbone whose text is as wide as both, with the weights side by side."""
    model, (features, labels) = model_of(name, True), inputs()
    wide = BACKBONES.get(name)(WIDTH + CLASSES, HIDDEN, 0.0).eval()
    joined = torch.cat([model.backbone.text_weight(), model.label_weight], dim=1).detach()
    own = dict(model.backbone.state_dict())
    state, row = {}, 0
    for key, tensor in wide.state_dict().items():
        state[key] = own[key]
        if tensor.shape != own[key].shape:  # a part of the first linear map, in the same order
            state[key] = joined[row : row + len(tensor)]
            row += len(tensor)
    assert row == len(joined)
    wide.load_state_dict(state)
    graph = graph_of(model.backbone.operator)
    expected = wide.propagate(torch.cat([normalise(features), labels], dim=1), graph)
    actual = model.logits(features, graph, labels)
    torch.testing.assert_close(actual, model.graph_logits(expected), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(actual, model.logits(features, graph), atol=1e-2)


@pytest.mark.parametrize("change", ["missing", "unknown", "broadcast"])
def test_a_state_of_other_tensors_is_refused(change):
    model = model_of("gcn", False)
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    if change == "missing":
        del state["head_graph.bias"]
    elif change == "unknown":
        state["more"] = torch.zeros(1)
    else:  # one number, which a copy would spread over all entries
        state["head_graph.bias"] = torch.zeros(1)
    with pytest.raises(RuntimeError, match="more" if change == "unknown" else "head_graph.bias"):
        load_state(model, state)
