import pytest
import torch

from dance_flwr.nn.propagation import operator
from support.blocks import blocks as blocks  # a stochastic block model of 90 nodes
from support.blocks import draw

"""Condensed graphs as clients upload them."""

from dance_flwr.federation.wire.messages import given_of, statistics_of
from dance_flwr.methods.condensation.matching import (
    Condensed,
)

DIM, CLASSES = 6, 3


KEYS = {
    "method": "fedgm",
    "condense_steps": 4,
    "rounds": 4,
    "fedgm_train_every": 2,
    "fedgm_train_steps": 5,
}


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(sizes, seed):
    """(Z, labels) with so many rows of each class."""
    labels = torch.tensor(
        [number for number, size in enumerate(sizes) for _ in range(size)], dtype=torch.int64
    )
    return torch.randn(len(labels), DIM, generator=draw(seed)), labels


def graph(sizes=(2, 1, 2), seed=0):
    """A condensed graph with so many rows of each class."""
    features, labels = rows(sizes, seed)
    weights = torch.rand(len(labels), len(labels), generator=draw(seed + 1))
    weights = (weights + weights.T) / 2
    return Condensed(labels, features, weights.fill_diagonal_(0))


@pytest.fixture(scope="module")
def finished(run):
    return run(**KEYS)


def uploads(finished):
    """client -> statistics of every round."""
    found = {}
    for reply in finished.replies("train"):
        found.setdefault(reply.metadata.src_node_id - 1, []).append(statistics_of(reply))
    return found


def sent(finished):
    """client -> what it was given in every round."""
    asked = [
        m
        for m in finished.messages
        if m.metadata.message_type == "train" and not m.metadata.src_node_id
    ]
    return {
        client: [given_of(m) for m in asked if m.metadata.dst_node_id == client + 1]
        for client in range(3)
    }


def without_edges(nodes):
    return operator("gcn", *torch.zeros(2, 0).long(), torch.zeros(0), nodes)
