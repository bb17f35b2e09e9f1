"""What the paper proves about hard budgets, as properties of the code; and what Sec. 3.4 promises
of its solver.
"""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from support.builders import clients, objective, split

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.topology import candidate_support, self_express
from dance_flwr.nn.ragged import entmax_rows, project_budget, rank_in_row


def one_row(length: int) -> torch.Tensor:
    return torch.tensor([0, length])


@given(client=clients())
def test_proposition_hard_budgets(client):
    """At most B_l neighbours per hop and B_tok chunks per node, hence at most K B_tok chunks in
    all.
    """
    config = client.config
    selection = client.select()
    budgets = (config.hop0_budget, config.hop1_budget, config.hop2_budget)
    for hop, budget in enumerate(budgets):
        for row in split(selection.gates[hop], selection.hops[hop].ptr):
            assert sum(weight != 0 for weight in row) <= budget
            assert sum(row) == pytest.approx(1.0 if row and budget else 0.0, abs=1e-12)
    for row in split(selection.chunk_weights, selection.chunks.ptr):
        assert 1 <= sum(weight != 0 for weight in row) <= config.chunk_budget
        assert sum(row) == pytest.approx(1.0, abs=1e-12)
    assert (
        int((selection.chunk_weights != 0).sum()) <= selection.nodes.numel() * config.chunk_budget
    )
    widest = int((client.table.chunks_of.ptr[1:] - client.table.chunks_of.ptr[:-1]).max())
    offered = selection.chunks.ptr[1:] - selection.chunks.ptr[:-1]
    assert int(offered.max()) <= sum(budgets) * widest


@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 20),
    budget=st.integers(1, 8),
    peak=st.sampled_from([0.1, 1.0, 9.0]),
)
def test_theorem_truncation_bound_for_any_distribution(seed, n, budget, peak):
    """||sum p e - sum Pi_B(p) e|| <= 2 M delta_B(p)."""
    rng = np.random.default_rng(seed)
    p = torch.tensor(rng.dirichlet(np.full(n, 1 / peak)))
    e = torch.tensor(rng.standard_normal((n, 5)))
    projected = project_budget(p, p, one_row(n), budget)
    tail = float(p.sort(descending=True).values[budget:].sum())
    gap = float((p @ e - projected @ e).norm())
    assert gap <= 2 * float(e.norm(dim=1).max()) * tail + 1e-9


@given(
    seed=st.integers(0, 2**20),
    n=st.integers(2, 20),
    budget=st.integers(1, 19),
    scale=st.sampled_from([0.05, 0.5, 5.0]),
    worst=st.booleans(),
)
def test_theorem_selection_is_stable_under_drift_below_half_the_margin(
    seed, n, budget, scale, worst
):
    """Every score moves by less than Delta_B / 2: the top-B set stays, and so does {alpha > 0}
    where entmax keeps at least B scores before and after. `worst` moves the top B down and the rest
    up as far as is allowed.
    """
    assume(budget < n)
    rng = np.random.default_rng(seed)
    scores = torch.tensor(scale * rng.standard_normal(n))
    ordered = scores.sort(descending=True)
    margin = float(ordered.values[budget - 1] - ordered.values[budget])
    assume(margin > 1e-9)
    drift = torch.tensor(rng.uniform(-1, 1, n))
    if worst:
        drift = torch.ones(n, dtype=torch.float64)
        drift[ordered.indices[:budget]] = -1
    moved = scores + 0.499 * margin * drift
    ptr = one_row(n)
    assert torch.equal(rank_in_row(scores, ptr) < budget, rank_in_row(moved, ptr) < budget)
    before, after = entmax_rows(scores, ptr), entmax_rows(moved, ptr)
    selected = project_budget(before, scores, ptr, budget) > 0
    selected_after = project_budget(after, moved, ptr, budget) > 0
    if min(int((before > 0).sum()), int((after > 0).sum())) >= budget:
        assert torch.equal(selected, selected_after)
        assert int(selected.sum()) == budget


def draw_problem(seed: int, size: int):
    rng = np.random.default_rng(seed)
    x, t = (
        torch.tensor(rng.standard_normal((size, 6))),
        torch.tensor(rng.standard_normal((size, 6))),
    )
    # Two nodes that are nearly the same make the Gram matrix ill-conditioned.
    x[-1] = x[0] + 1e-3 * x[-1]
    return rng, x, t / t.norm(dim=1, keepdim=True)


problems = {"seed": st.integers(0, 2**20), "size": st.integers(2, 12), "most": st.integers(1, 6)}
weights = {"alpha": st.sampled_from([1.0, 4.0, 12.0]), "beta": st.sampled_from([0.0, 3.0, 10.0])}


def after(steps: int, alpha: float, beta: float) -> DanceConfig:
    return DanceConfig(alpha=alpha, beta=beta, inner_iterations=steps, inner_tolerance=0.0)


@given(**problems, **weights)
def test_the_objective_falls_at_the_accelerated_rate(seed, size, most, alpha, beta):
    """After L steps from 0 the objective exceeds its minimum by at most sum_i 2 L_i ||z_i||^2 /
    (L + 1)^2 with L_i = 2 alpha max_row_sum|G_i|; of plain proximal gradient, that is L_i ||z_i||^2
    / (2 L).
    """
    _, x, t = draw_problem(seed, size)
    support = candidate_support(x, t, most)
    best = self_express(x, t, support, after(5000, alpha, beta))
    least = float(objective(x, t, best, alpha, beta))
    columns = x[support.clamp(min=0)] * (support >= 0)[..., None]
    steepness = 2 * alpha * (columns @ columns.mT).abs().sum(2).max(1).values
    distance = float((steepness * best.values.square().sum(1)).sum())
    for steps in (1, 2, 3, 5, 8, 13, 21, 34, 55):
        value = float(
            objective(x, t, self_express(x, t, support, after(steps, alpha, beta)), alpha, beta)
        )
        assert least - 1e-9 <= value <= least + 2 * distance / (steps + 1) ** 2 + 1e-9
