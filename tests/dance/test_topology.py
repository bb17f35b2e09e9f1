"""Sec. 3.4: candidate sets, the evidence prior, self-expression and the adjacency, against the
loops of Alg. 4.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import topology as oracle
from support.builders import clients, lists, objective, split
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from dance_flwr.dance import topology as module
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.topology import (
    Coefficients,
    candidate_support,
    column_problems,
    connect,
    find_candidates,
    prior_block,
    self_express,
    support_in_class,
    synthesise_adjacency,
)


class LargestTensor(TorchDispatchMode):
    """Counts the elements of the largest tensor that an operation makes, views aside.

    Attributes
    ----------
    elements : of the largest storage made in the block, in elements of its tensor
    """

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for part in made if isinstance(made, tuple | list) else (made,):
            if isinstance(part, torch.Tensor):
                stored = part.untyped_storage().nbytes() // part.element_size()
                self.elements = max(self.elements, stored)
        return made


cores = {"seed": st.integers(0, 2**20), "size": st.integers(1, 12), "most": st.integers(1, 5)}


def sets(support: torch.Tensor) -> list[set[int]]:
    return [{j for j in row if j >= 0} for row in support.tolist()]


def dense(z: Coefficients) -> np.ndarray:
    """Z with column i from row i of the coefficients."""
    out = np.zeros((z.support.size(0),) * 2)
    for i, (rows, values) in enumerate(zip(z.support.tolist(), z.values.tolist(), strict=True)):
        for j, value in zip(rows, values, strict=True):
            if j >= 0:
                out[j, i] += value
    return out


def draw_core(
    rng: np.random.Generator, size: int, width: int = 8
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fused features of layer-norm size and evidence of norm at most 1; some nodes without evidence
    (S = 0).
    """
    x = rng.standard_normal((size, width))
    t = rng.standard_normal((size, width)) + 0.5
    t /= np.linalg.norm(t, axis=1, keepdims=True)
    t *= (rng.random(size) < 0.8)[:, None]
    return torch.tensor(x), torch.tensor(t)


@pytest.mark.parametrize("block", [1024, 3])
def test_candidate_sets_are_those_of_the_loops(block):
    """Features and evidence in coarse steps make products exact and ties common."""

    @given(**cores)
    def check(seed, size, most):
        rng = np.random.default_rng(seed)
        x, t = rng.integers(-2, 3, (size, 3)).astype(float), rng.integers(-2, 3, (size, 3)) / 4
        S = np.clip(t @ t.T, 0, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_ROWS_PER_BLOCK", block)
            support = candidate_support(torch.tensor(x), torch.tensor(t), most)
        assert sets(support) == [oracle.candidate_set(x, S, i, most) for i in range(size)]
        assert support.size(1) <= 2 * most
        for i, row in enumerate(support.tolist()):
            inside = [j for j in row if j >= 0]
            assert i not in inside
            assert len(inside) == len(set(inside))

    check()


@given(
    seed=st.integers(0, 2**20),
    size=st.integers(1, 40),
    most=st.integers(1, 5),
    num_classes=st.integers(1, 4),
    group=st.sampled_from([2, 3, 5, 128]),
)
def test_candidates_in_the_class_are_those_of_the_loops(seed, size, most, num_classes, group):
    rng = np.random.default_rng(seed)
    x, t = draw_core(rng, size)
    classes = rng.integers(0, num_classes, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_NODES_PER_GROUP", group)
        support = support_in_class(x, t, torch.tensor(classes), most)[0]
    S = np.clip((t @ t.T).numpy(), 0, 1)
    # The order along the direction may be reversed; cuts at equal shares then fall elsewhere.
    wanted = []
    for sign in (1, -1):
        parts = oracle.groups(sign * x.numpy(), classes.tolist(), group)
        assert max(map(len, parts)) <= group
        others = min(most, group - 1)
        ways = {
            i: oracle.candidate_set_within(x.numpy(), S, i, part, others)
            for part in parts
            for i in part
        }
        wanted.append([ways[i] for i in range(size)])
    found = sets(support)
    assert found in wanted
    assert all(
        len([j for j in row if j >= 0]) == len(members)
        for row, members in zip(support.tolist(), found, strict=True)
    )


@pytest.mark.parametrize("num_classes", [1, 7])
def test_search_in_classes_makes_nothing_of_size_k_squared(num_classes):
    size, width = 4000, 16
    x, t = draw_core(np.random.default_rng(1), size, width)
    classes = torch.arange(size) % num_classes
    with LargestTensor() as seen:
        support = support_in_class(x, t, classes, 10)[0]
    # The scores of each group with itself: at most 128 for each node, and the padding.
    assert size * 64 < seen.elements <= 1.2 * size * 128 and support.size(1) <= 20


@pytest.mark.parametrize(("search", "in_class"), [("in-class", True), ("exact", False)])
def test_the_key_chooses_the_search(search, in_class):
    x, t = draw_core(np.random.default_rng(4), 25)
    classes, keys = torch.arange(25) % 3, {"alpha": 50.0, "beta": 0.0, "candidates": 3}
    config = DanceConfig(candidate_search=search, neighbours=99, **keys)
    rows, cols, weights = connect(x, t, classes, config)
    unit = functional.normalize(x, dim=1)
    exact = candidate_support(unit, t, 3)
    support = support_in_class(unit, t, classes, 3)[0] if in_class else exact
    wanted = synthesise_adjacency(self_express(unit, t, support, config), 99)
    for found, expected in zip((rows, cols, weights), wanted, strict=True):
        torch.testing.assert_close(found, expected)
    assert bool((classes[rows] == classes[cols]).all()) == in_class and rows.numel()


@given(client=clients())
def test_the_prior_is_the_double_sum_over_selected_chunks(client):
    selection = client.select()
    chosen = [
        {r: pi for r, pi in zip(index, weights, strict=True) if pi > 0}
        for index, weights in zip(
            lists(selection.chunks),
            split(selection.chunk_weights, selection.chunks.ptr),
            strict=True,
        )
    ]
    S = prior_block(client.texts(selection)[0], torch.arange(len(chosen)))
    chunks = client.table.chunks.numpy()
    expected = [[oracle.prior(a, b, chunks) for b in chosen] for a in chosen]
    np.testing.assert_allclose(S, expected, atol=1e-9)
    assert torch.equal(S, S.T) or bool(((S - S.T).abs() < 1e-12).all())
    assert bool(((S >= 0) & (S <= 1)).all())


@pytest.mark.parametrize("block", [1024, 3])
def test_self_expression_is_that_of_the_loops(block):
    """The stopping rule holds what it promises, and without it the minimisers are the same."""

    @given(
        **cores,
        alpha=st.sampled_from([1.0, 4.0, 12.0]),
        beta=st.sampled_from([0.1, 1.0, 3.0]),
        unit=st.booleans(),
    )
    def check(seed, size, most, alpha, beta, unit):
        x, t = draw_core(np.random.default_rng(seed), size, width=20)
        x = functional.normalize(x + 0.7, dim=1) if unit else x
        support = candidate_support(x, t, most)
        S = np.clip((t @ t.T).numpy(), 0, 1)
        twin = oracle.coordinate_descent(x.numpy(), S, sets(support), alpha, beta, 5000)
        least = oracle.objective(x.numpy(), S, twin, alpha, beta)
        for tolerance in (0.01, 1e-3):
            config = DanceConfig(alpha=alpha, beta=beta, inner_tolerance=tolerance)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, "_ROWS_PER_BLOCK", block)
                z = self_express(x, t, support, config)
            found = objective(x, t, z, alpha, beta).item()
            assert found == pytest.approx(oracle.objective(x.numpy(), S, dense(z), alpha, beta))
            assert least * (1 - 1e-9) <= found <= least * (1 + tolerance) * (1 + 1e-9)
        exact = self_express(x, t, support, long(alpha, beta))
        np.testing.assert_allclose(dense(exact), twin, atol=1e-6)

    check()


def long(alpha: float, beta: float) -> DanceConfig:
    """So many steps that nothing moves any more."""
    return DanceConfig(alpha=alpha, beta=beta, inner_iterations=4000, inner_tolerance=0.0)


def test_products_of_groups_and_of_candidates_give_the_same_problems():
    """500 nodes are too many for products of all pairs; classes of 1 to 200 make nine groups."""
    x, t = draw_core(np.random.default_rng(7), 500)
    classes = torch.repeat_interleave(torch.tensor([200, 150, 100, 30, 17, 2, 1]))
    support, pairs = find_candidates(x, t, classes, DanceConfig())
    assert torch.equal(support, support_in_class(x, t, classes, 10)[0]) and len(pairs.gram) == 9
    of_groups, alone = (
        column_problems(x, t, support, torch.arange(500), DanceConfig(), given)
        for given in (pairs, None)
    )
    for name in ("gram", "target", "energy", "penalty"):
        torch.testing.assert_close(getattr(of_groups, name), getattr(alone, name))
    assert not of_groups.gram.permute(2, 0, 1)[support < 0].any()


@given(seed=st.integers(0, 2**20), size=st.integers(1, 12), most=st.integers(1, 4))
def test_the_adjacency_is_that_of_the_loops(seed, size, most):
    """Coefficients in steps of 1/4 make ties exact; zeros inside the support are no edges."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, (size, size)) / 4
    chosen = (rng.random((size, size)) < 0.4) & ~np.eye(size, dtype=bool)
    Z = np.where(chosen, values, 0)
    support = np.where(chosen.T, np.arange(size), -1)
    z = Coefficients(torch.tensor(support), torch.tensor(np.where(chosen.T, values.T, 0)))
    np.testing.assert_array_equal(dense(z), Z)
    rows, cols, weights = (part.tolist() for part in synthesise_adjacency(z, most))
    expected = oracle.adjacency(Z, most)
    assert list(zip(rows, cols, strict=True)) == list(expected)
    assert weights == pytest.approx(list(expected.values()))
    assert len(rows) <= 2 * size * most
