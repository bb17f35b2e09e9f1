"""A stochastic block model to condense."""

import numpy as np
import pytest
import torch
from dance_flwr_rivals.condensation.graphs import RealGraph

from dance_flwr.nn.propagation import operator


def draw(seed=0):
    """Return a CPU generator."""
    return torch.Generator().manual_seed(seed)


def labels_of(*sizes, unknown=0):
    """Return `unknown` entries of -1, then so many labels of each class."""
    return torch.tensor(
        [-1] * unknown + [number for number, size in enumerate(sizes) for _ in range(size)],
        dtype=torch.int64,
    )


@pytest.fixture(scope="module")
def blocks():
    """Return (real graph, true labels, edges) of 90 noisy nodes of 3 classes in 12 dimensions.

    Two thirds have a training label.
    """
    rng = np.random.default_rng(5)
    truth = np.arange(90) % 3
    chance = np.where(truth[:, None] == truth[None, :], 0.15, 0.02)
    rows, cols = np.nonzero(np.triu(rng.random((90, 90)) < chance, 1))
    ends = torch.tensor(np.concatenate([np.stack([rows, cols]), np.stack([cols, rows])], axis=1))
    centres = torch.randn(3, 12, generator=draw(8))
    features = centres[torch.tensor(truth)] + 1.5 * torch.randn(90, 12, generator=draw(9))
    labels = torch.tensor(np.where(np.arange(90) % 9 < 6, truth, -1))
    graph = operator("gcn", *ends, torch.ones(ends.size(1)), 90)
    return RealGraph(features, graph, labels), torch.tensor(truth), ends
