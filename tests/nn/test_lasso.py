"""Lassos that are degenerate, and where they end; their twin is in `dance/test_topology.py`."""

import numpy as np
import pytest
import torch

from dance_flwr.nn.lasso import Lassos, solve_lassos


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_problems_that_are_empty_solved_or_degenerate(dtype):
    """Padding, x = 0, w above every pull, and three equal columns, beside one that has to move."""
    rng = np.random.default_rng(1)
    A, x = rng.standard_normal((5, 6, 3)) + rng.standard_normal((6, 1)), rng.standard_normal((5, 6))
    w = rng.uniform(0.1, 1.0, (5, 3))
    A[0], x[1], w[2] = 0, 0, 1e3
    A[3] = A[3][:, :1]
    A, x, w = (torch.tensor(part, dtype=dtype) for part in (A, x, w))
    problems = Lassos.of(A.mT @ A, (A.mT @ x[..., None]).squeeze(2), x.square().sum(1), w)
    z, steps = solve_lassos(problems, 3000, 1e-4)
    assert bool(torch.isfinite(z).all()) and steps < 3000
    assert not z[:3].any() and z[3].any() and z[4].any()
    value, gap = problems.gap(z.T)
    assert gap[:3].tolist() == pytest.approx([0.0] * 3, abs=1e-5)
    assert float(gap.sum()) <= 1.1e-4 * float(value.sum())
