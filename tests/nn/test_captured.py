"""Local epochs as a CUDA graph, and what gives rounds one shape."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.config.tree import parse
from dance_flwr.federation.client.device import claim
from dance_flwr.nn.captured import forget_captured, train_replayed
from dance_flwr.nn.neighbourhood import Neighbourhood
from dance_flwr.nn.propagation import densified, places
from dance_flwr.nn.training import proximal_term, train_epochs
from dance_flwr.seeding import seeded

CONFIG = parse({"local-epochs": 3})


@dataclass(frozen=True)
class Inputs:
    features: Tensor
    labels: Tensor


def problem(device, nodes=12):
    """A model with dropout, and inputs for it."""
    draws = torch.Generator().manual_seed(nodes)
    with seeded(3, "model"):
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    features = torch.randn(nodes, 6, generator=draws)
    labels = torch.randint(3, (nodes,), generator=draws)
    return model.to(device), Inputs(features.to(device), labels.to(device))


def loss_of(model):
    return lambda inputs: F.cross_entropy(model(inputs.features), inputs.labels)


def weights_of(model):
    return torch.cat([value.detach().flatten() for value in model.parameters()]).cpu()


@st.composite
def operators(draw):
    """One or two CSR operators, from the outermost nodes to the targets."""
    sizes = sorted(draw(st.lists(st.integers(1, 9), min_size=2, max_size=3)))
    steps = []
    for rows, columns in pairwise(sizes):
        kept = draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
        dense = torch.arange(1.0, rows * columns + 1) * torch.tensor(kept)
        steps.append(dense.view(rows, columns).to_sparse_csr())
    return tuple(reversed(steps))


@given(operators())
def test_a_rounded_neighbourhood_is_the_same_among_zeros(steps):
    nodes = torch.arange(steps[0].size(1)) + 5
    wider = Neighbourhood(nodes, steps).rounded_up()
    assert wider.nodes.tolist() == [*nodes.tolist(), *[0] * (len(wider.nodes) - len(nodes))]
    sizes = [len(wider.nodes), *(step.size(0) for step in wider.operators)]
    assert all(size & (size - 1) == 0 for size in sizes)
    assert sizes == sorted(sizes, reverse=True)  # rows are the first of the columns
    for step, wide in zip(steps, wider.operators, strict=True):
        dense = densified(places(wide), wide.values(), wide.shape)
        rows, columns = step.shape
        assert torch.equal(dense, wide.to_dense())
        assert torch.equal(dense[:rows, :columns], step.to_dense())
        assert int((dense != 0).sum()) == int((step.to_dense() != 0).sum())


def test_without_a_gpu_epochs_are_those_of_any_method():
    (model, inputs), (other, _) = problem("cpu"), problem("cpu")
    with seeded(1, "train"):
        loss = train_replayed(model, loss_of(model), inputs, CONFIG, round_=2)
    with seeded(1, "train"):
        expected = train_epochs(other, partial(loss_of(other), inputs), CONFIG, round_=2)
    assert loss == expected
    assert torch.equal(weights_of(model), weights_of(other))


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def device():
    device = torch.device("cuda:0")
    with claim(device, None):
        yield device
    forget_captured()


@cuda
def test_a_replayed_round_is_that_of_operations(device):
    """To the last bit, whether a round is the first of its shape, captures, or replays."""
    results = []
    for turn in range(3):
        model, inputs = problem(device)
        for round_ in (1, 2, 3):  # runs, captures, replays
            with seeded(1, "train", round_=round_):
                if turn:
                    train_replayed(model, loss_of(model), inputs, CONFIG, round_=round_)
                else:
                    train_epochs(model, partial(loss_of(model), inputs), CONFIG, round_=round_)
        results.append(weights_of(model))
    assert torch.equal(results[1], results[2])
    assert results[0] == pytest.approx(results[1], abs=1e-6)


@cuda
def test_a_round_depends_on_nothing_that_was_captured_before(device):
    """Another shape, other inputs and another round between: the same bits."""
    model, inputs = problem(device)
    _, wider = problem(device, 20)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    results = []
    for between in (False, True):
        if between:
            train_replayed(model, loss_of(model), wider, CONFIG, round_=4)
            moved_on = Inputs(inputs.features + 1, inputs.labels)
            train_replayed(model, loss_of(model), moved_on, CONFIG, round_=9)
        model.load_state_dict(start)
        with seeded(1, "train"):
            results.append((train_replayed(model, loss_of(model), inputs, CONFIG, round_=2),))
        results[-1] += (weights_of(model),)
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


@cuda
def test_the_proximal_term_is_that_of_its_round(device):
    """Its hooks are not captured: with a large one the model stays near its start."""
    model, inputs = problem(device)
    train_replayed(model, loss_of(model), inputs, CONFIG, round_=1)
    changes = []
    for mu in (0.0, 1e4):
        before = weights_of(model)
        with proximal_term(model, mu):
            train_replayed(model, loss_of(model), inputs, CONFIG, round_=2)
        changes.append(float((weights_of(model) - before).abs().mean()))
    assert changes[0] != changes[1]
