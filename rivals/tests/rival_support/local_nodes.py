"""Nodes of a client in memory, as LLaTA reads them."""

from types import SimpleNamespace

import torch
from dance_flwr_rivals.llata.nodes import LocalNodes

CLASSES = ("astronomy", "cooking", "sailing")


def pairs_of(edges):
    """[m, 2] int64, sorted, each edge once."""
    once = sorted({(min(a, b), max(a, b)) for a, b in edges if a != b})
    return torch.tensor(once, dtype=torch.int64).reshape(-1, 2)


def nodes_of(edges, labels, texts=None, classes=CLASSES, seed=0):
    """Nodes with these edges, training labels (-1 = unknown) and texts."""
    n = len(labels)
    data = SimpleNamespace(
        card=SimpleNamespace(client=0, class_names=tuple(classes)),
        num_nodes=n,
        texts=lambda: texts or [f"text {v}" for v in range(n)],
    )
    draws = torch.Generator().manual_seed(seed)
    features = torch.nn.functional.normalize(torch.randn(n, 8, generator=draws), dim=1)
    return LocalNodes(data, torch.arange(n), pairs_of(edges), features, torch.tensor(labels))
