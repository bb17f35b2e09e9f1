"""Operators in the form in which they are trained, and products with them."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.card import counting

from dance_flwr.nn import propagation
from dance_flwr.nn.propagation import propagated


@given(st.data(), st.booleans(), st.integers(1, 7), st.integers(1, 9), st.integers(1, 40))
def test_a_product_is_the_dense_one_on_a_card_in_a_fixed_order(
    data, on_card, rows, columns, gathered
):
    """Value and gradient, rows and columns without an entry, in blocks of any width."""
    filled = data.draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    dense = torch.arange(1.0, rows * columns + 1).view(rows, columns)
    dense = dense * torch.tensor(filled).view(rows, columns)
    found, step = [], dense.to_sparse_csr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagation, "_MAX_GATHERED", gathered)
        for product in (propagated, lambda _, x: dense @ x):
            x = torch.arange(columns * 5.0).view(columns, 5).requires_grad_()
            with counting() if on_card else nullcontext() as counts:
                for _ in range(2):  # the second time by what was kept of the first
                    y = product(step, x)
                    y.square().sum().backward()
            found.append((y.detach(), x.grad))
            assert not on_card or not counts.unordered
    for own, expected in zip(*found, strict=True):
        torch.testing.assert_close(own, expected)
