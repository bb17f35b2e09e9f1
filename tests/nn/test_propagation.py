"""Operators in the form in which they are trained."""

import pytest
import torch

from dance_flwr.nn.propagation import operator, trainable

KINDS = ("gcn", "mean", "sum")


def ring(kind, size):
    """The operator of a ring of nodes with edges of different weights."""
    here = torch.arange(size)
    there = (here + 1) % size
    rows, cols = torch.cat([here, there]), torch.cat([there, here])
    return operator(kind, rows, cols, torch.rand(2 * size) + 0.1, size)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_operator_is_dense_and_means_the_same(kind):
    torch.manual_seed(0)
    sparse = ring(kind, 12)
    dense = trainable(sparse, kind)
    assert sparse.layout == torch.sparse_csr and dense.layout == torch.strided
    torch.testing.assert_close(dense, sparse.to_dense())
    features = torch.randn(12, 5)
    found = []
    for step in (sparse, dense):
        x = features.clone().requires_grad_()
        (step @ x).square().sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)


def test_a_large_operator_and_a_list_of_edges_stay_as_they_are():
    for step, kind in ((ring("gcn", 257), "gcn"), (ring("sum", 12), "loops")):
        assert trainable(step, kind) is step
