"""Condensed graphs, and what clients upload and are sent in a run."""

import torch
from dance_flwr_rivals.condensation.graphs import Condensed

from dance_flwr.federation.server.replies import statistics_of
from dance_flwr.federation.wire.messages import payload_of
from rival_support.blocks import draw

DIM, CLASSES = 6, 3


def rows(sizes, seed):
    """Return (Z, labels) with so many rows of each class."""
    labels = torch.tensor(
        [number for number, size in enumerate(sizes) for _ in range(size)], dtype=torch.int64
    )
    return torch.randn(len(labels), DIM, generator=draw(seed)), labels


def graph(sizes=(2, 1, 2), seed=0):
    """Return a condensed graph with so many rows of each class."""
    features, labels = rows(sizes, seed)
    weights = torch.rand(len(labels), len(labels), generator=draw(seed + 1))
    weights = (weights + weights.T) / 2
    return Condensed(labels, features, weights.fill_diagonal_(0))


def uploads(finished):
    """Return the statistics that each client uploaded: client -> one entry per round."""
    by_client = {}
    for reply in finished.replies("train"):
        by_client.setdefault(reply.metadata.src_node_id - 1, []).append(statistics_of(reply))
    return by_client


def payloads(finished):
    """Return what each client was sent beside the model: client -> one entry per round."""
    requests = [
        m
        for m in finished.messages
        if m.metadata.message_type == "train" and not m.metadata.src_node_id
    ]
    return {
        client: [payload_of(m) for m in requests if m.metadata.dst_node_id == client + 1]
        for client in range(3)
    }
