"""FedGM: pooled gradients, refinement and the union against naive twins; uploads, state, faults."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from dance_flwr_rivals.condensation.adjacency import normalise, union_edges
from dance_flwr_rivals.condensation.graphs import as_upload, graph_fault, layer_normalise
from dance_flwr_rivals.condensation.matching import Network, class_gradients
from dance_flwr_rivals.fedgm.client import gradients
from dance_flwr_rivals.fedgm.server import Block, pool_gradients, refine
from hypothesis import given
from hypothesis import strategies as st
from rival_support.blocks import draw
from rival_support.condensed import CLASSES, DIM, graph, payloads, rows, uploads
from support.models import equal, models
from torch.nn import functional as F

from dance_flwr.nn.propagation import operator
from dance_flwr.runs.result import load_model

EVERY = torch.ones(CLASSES, dtype=torch.bool)
KEYS = {
    "method": "fedgm",
    "condense_steps": 4,
    "rounds": 4,
    "fedgm_train_every": 2,
    "fedgm_train_steps": 5,
}


@pytest.fixture(scope="module")
def finished(run):
    return run(**KEYS)


def theta(seed=0, dim=DIM, classes=CLASSES):
    return Network.draw(dim, classes, draw(seed), torch.device("cpu"))


# The algorithm


@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=4))
def test_pooled_gradients_are_those_of_the_pooled_nodes(sizes):
    """With counts of real nodes, it is the mean over the nodes of a class at all clients."""
    parts = [rows(own, seed) for seed, own in enumerate(sizes)]
    actual = pool_gradients(
        [class_gradients(theta(), *part) for part in parts], torch.tensor(sizes).float()
    )
    hidden, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    order = torch.sort(labels, stable=True).indices
    for ours, theirs in zip(
        actual, class_gradients(theta(), hidden[order], labels[order]), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def naive_loss(features, graphs, network, reference):
    """Return squared distances by class, by autograd on one dense block-diagonal graph."""
    labels = torch.cat([one.labels for one in graphs])
    step = normalise(torch.block_diag(*(one.adjacency for one in graphs)))
    logits = step @ step @ layer_normalise(features) @ network.weight + network.bias
    sizes = torch.bincount(labels, minlength=CLASSES)
    total = torch.zeros(())
    for number in range(CLASSES):
        loss = F.cross_entropy(logits[labels == number], labels[labels == number])
        slopes = torch.autograd.grad(loss, [network.weight, network.bias], create_graph=True)
        apart = [
            ((own - part[number]) ** 2).sum() for own, part in zip(slopes, reference, strict=True)
        ]
        total = total + sizes[number] / sizes.max() * sum(apart)
    return total


def test_refinement_is_adam_on_the_union_with_moments_kept_between_rounds():
    graphs = [graph((2, 1, 2), 0), graph((1, 3, 0), 5)]
    blocks = [Block(one) for one in graphs]
    features = torch.cat([one.features for one in graphs]).requires_grad_()
    optimizer = torch.optim.Adam([features], lr=0.05)
    for round_ in range(4):
        network = theta(round_)
        reference = class_gradients(theta(round_), *rows((4, 4, 4), 9))
        blocks, actual = refine(blocks, network, reference, EVERY, 0.05, "mse")
        network.weight.requires_grad_(), network.bias.requires_grad_()
        expected = naive_loss(features, graphs, network, reference)
        optimizer.zero_grad()
        features.grad = torch.autograd.grad(expected, features)[0]
        optimizer.step()
        assert actual == pytest.approx(expected.item(), rel=1e-4)
    moved = torch.cat([block.graph.features for block in blocks])
    torch.testing.assert_close(moved, features.detach(), atol=1e-4, rtol=1e-3)
    assert graphs[0].features.equal(graph((2, 1, 2), 0).features), "what was uploaded stays"
    assert {float(block.moments["step"]) for block in blocks} == {4.0}


def test_a_class_without_a_gradient_moves_nothing():
    alone = replace(graph((2, 2, 0)), adjacency=torch.zeros(4, 4))
    reference = class_gradients(theta(), *rows((3, 0, 1), 3))
    (block,), _ = refine(
        [Block(alone)], theta(), reference, torch.tensor([True, False, True]), 0.1, "mse"
    )
    moved = (block.graph.features != alone.features).any(dim=1)
    assert moved.tolist() == [True, True, False, False]
    same, loss = refine([Block(alone)], theta(), reference, ~EVERY, 0.1, "mse")
    assert same[0].graph is alone and loss == 0 and not same[0].moments


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4),
    st.sampled_from(["gcn", "mean", "sum", "loops"]),
)
def test_the_union_has_no_edge_between_clients(sizes, kind):
    graphs = [graph((*own, 0), seed) for seed, own in enumerate(sizes)]
    nodes = [len(one.labels) for one in graphs]
    every = union_edges([one.adjacency for one in graphs])
    actual = operator(kind, *every, sum(nodes)).to_dense()
    own = [
        operator(kind, *union_edges([one.adjacency]), size).to_dense()
        for one, size in zip(graphs, nodes, strict=True)
    ]
    torch.testing.assert_close(actual, torch.block_diag(*own))


FAULTS = {
    "features of": {"features": torch.zeros(5, DIM + 1)},
    "torch.float64": {"adjacency": torch.zeros(5, 5, dtype=torch.float64)},
    "labels from 0": {"labels": torch.tensor([0, 0, 1, 2, CLASSES])},
    "ascending": {"labels": torch.tensor([0, 1, 0, 2, 2])},
    "zero diagonal": {"adjacency": torch.eye(5)},
    r"\[0, 1\]": {"adjacency": 2 * graph().adjacency.sign()},
    "symmetric": {"adjacency": graph().adjacency.triu()},
}


@pytest.mark.parametrize("words", FAULTS)
def test_a_broken_graph_is_reported(words):
    sound = as_upload(graph())
    assert (
        graph_fault(sound, DIM, CLASSES)
        == ""
        == graph_fault(as_upload(graph((0, 0, 0))), DIM, CLASSES)
    )
    assert re.search(words, graph_fault(sound | FAULTS[words], DIM, CLASSES))


# Runs


def test_every_round_has_a_theta_of_its_own_and_its_gradients(finished):
    sent, answers = payloads(finished), uploads(finished)
    thetas = [own["weight"] for own in sent[0]]
    assert not any(left.equal(right) for left, right in pairwise(thetas))
    for client in range(3):
        assert all(
            own["weight"].equal(first) for own, first in zip(sent[client], thetas, strict=True)
        )
        for own, answer in zip(sent[client], answers[client], strict=True):
            expected = gradients(finished.data(client), Network(own["weight"], own["bias"]))
            assert all(answer[name].equal(tensor) for name, tensor in expected.items())


def test_the_deployed_network_is_retrained_when_it_is_due(finished):
    """It is retrained in rounds 1 and 3, every second one, and in the last."""
    down = [*models(finished, up=False)[0], models(finished, "evaluate", up=False)[0][-2]]
    changed = [not equal(left, right) for left, right in pairwise(down)]
    assert changed == [True, False, True, True]


def test_networks_with_different_initial_weights_are_not_averaged(run, finished):
    assert equal(load_model(run(**KEYS, ema_decay=0.9).folder), load_model(finished.folder))
