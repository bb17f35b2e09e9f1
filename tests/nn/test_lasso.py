"""Batched lassos: against scikit-learn, their duality gap, and degenerate problems."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Lasso

from dance_flwr.nn.lasso import Lassos, solve_lassos


def draw(seed: int, problems: int, width: int, rows: int = 6, shared: float = 1.0):
    """A [K, rows, s], x [K, rows] and w [K, s]; columns share a direction, as similar nodes do."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((problems, rows, width)) + shared * rng.standard_normal((rows, 1))
    x = rng.standard_normal((problems, rows)) + shared * rng.standard_normal(rows)
    return A, x, rng.uniform(0.1, 1.0, (problems, width))


def problems_of(A, x, w, dtype=torch.float64) -> Lassos:
    A, x, w = (torch.tensor(part, dtype=dtype) for part in (A, x, w))
    gram, target = A.mT @ A, (A.mT @ x[..., None]).squeeze(2)
    return Lassos.of(gram, target, x.square().sum(1), w)


def objective(A, x, w, z) -> np.ndarray:
    return np.array(
        [
            0.5 * np.sum((x[k] - A[k] @ z[k]) ** 2) + np.sum(w[k] * np.abs(z[k]))
            for k in range(len(A))
        ]
    )


@given(
    seed=st.integers(0, 2**20),
    problems=st.integers(1, 6),
    width=st.integers(1, 8),
    tolerance=st.sampled_from([0.1, 0.01, 1e-4]),
)
def test_the_objective_is_within_the_tolerance_of_scikit_learn(seed, problems, width, tolerance):
    """Lasso has one penalty; column j divided by w_j has penalty 1 on z_j w_j."""
    A, x, w = draw(seed, problems, width)
    z, steps = solve_lassos(problems_of(A, x, w), 3000, tolerance)
    twin = []
    for k in range(problems):
        one = Lasso(alpha=1 / len(x[k]), fit_intercept=False, tol=1e-12, max_iter=100_000)
        twin.append(one.fit(A[k] / w[k], x[k]).coef_ / w[k])
    least = objective(A, x, w, np.array(twin)).sum()
    assert objective(A, x, w, z.numpy()).sum() <= least * (1 + tolerance) * (1 + 1e-6)
    assert steps % 10 == 0 and steps < 3000


@given(
    seed=st.integers(0, 2**20),
    width=st.integers(1, 8),
    steps=st.sampled_from([0, 1, 3, 12, 200]),
    size=st.sampled_from([0.0, 0.1, 3.0]),
)
def test_the_gap_bounds_the_distance_to_the_minimum_at_any_point(seed, width, steps, size):
    A, x, w = draw(seed, 4, width)
    given_ = problems_of(A, x, w)
    z = solve_lassos(given_, steps, 0)[0] + size * torch.tensor(
        np.random.default_rng(seed).standard_normal((4, width))
    )
    best = solve_lassos(given_, 5000, 0)[0]
    value, gap = given_.gap(z.T)
    np.testing.assert_allclose(value, objective(A, x, w, z.numpy()), rtol=1e-9)
    above = objective(A, x, w, z.numpy()) - objective(A, x, w, best.numpy())
    assert bool((gap.numpy() >= above - 1e-9).all())
    assert float(given_.gap(best.T)[1].abs().max()) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_problems_that_are_empty_solved_or_degenerate(dtype):
    """Padding, x = 0, w above every pull, and three equal columns, beside one that has to move."""
    A, x, w = draw(1, 5, 3)
    A[0], x[1], w[2] = 0, 0, 1e3
    A[3] = A[3][:, :1]
    given_ = problems_of(A, x, w, dtype)
    z, steps = solve_lassos(given_, 3000, 1e-4)
    assert bool(torch.isfinite(z).all()) and steps < 3000
    assert not z[:3].any() and z[3].any() and z[4].any()
    value, gap = given_.gap(z.T)
    assert gap[:3].tolist() == pytest.approx([0.0] * 3, abs=1e-5)
    assert float(gap.sum()) <= 1.1e-4 * float(value.sum())
