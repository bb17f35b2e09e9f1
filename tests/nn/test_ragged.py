"""Ragged rows: every operation against a loop over the rows."""

from itertools import pairwise

import pytest
import torch
from entmax import entmax_bisect
from hypothesis import given
from hypothesis import strategies as st
from support.builders import split

from dance_flwr.nn.ragged import budgeted_rows, entmax_rows, project_budget, ptr_of_sizes

ROW_SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=8)  # of rows, empty ones included


def normal(total: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(total, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def ptr_of(sizes) -> torch.Tensor:
    return ptr_of_sizes(torch.tensor(sizes))


SIZES = [
    pytest.param([3, 0, 1, 64, 5], id="one bucket"),
    pytest.param([0, 65, 3, 130, 64, 0, 300, 1, 129], id="several buckets"),
    pytest.param([0, 0], id="nothing"),
    pytest.param([70, 0], id="a wide row beside empty rows only"),
    pytest.param([0, 200, 0, 80], id="wide rows of two buckets beside empty rows only"),
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_entmax_rows_is_entmax_of_each_row(sizes, scale):
    ptr = ptr_of(sizes)
    scores = scale * normal(sum(sizes))
    probs = entmax_rows(scores, ptr)
    assert probs.shape == scores.shape
    for start, end in pairwise(ptr):
        if end > start:
            alone = entmax_bisect(scores[start:end], alpha=1.5, dim=0, n_iter=80)
            torch.testing.assert_close(probs[start:end], alone, atol=1e-9, rtol=0)


@pytest.mark.parametrize("sizes", [[3, 0, 5, 1], [66, 2, 0]])
def test_entmax_rows_has_the_gradient_of_entmax(sizes):
    ptr = ptr_of(sizes)
    scores = (0.4 * normal(sum(sizes))).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: entmax_rows(s, ptr), (scores,), fast_mode=True)


@given(sizes=ROW_SIZES, budget=st.integers(0, 6), seed=st.integers(0, 1000), coarse=st.booleans())
def test_project_budget_keeps_the_best_entries_and_renormalises(sizes, budget, seed, coarse):
    ptr = ptr_of(sizes)
    scores = normal(sum(sizes), seed)
    scores = scores.round() if coarse else scores
    probs = entmax_rows(scores, ptr)
    for kept, full, score in zip(
        split(project_budget(probs, scores, ptr, budget), ptr),
        split(probs, ptr),
        split(scores, ptr),
        strict=True,
    ):
        best = sorted(range(len(full)), key=lambda i, score=score: (-score[i], i))[:budget]
        mass = sum(full[i] for i in best)
        expected = [full[i] / mass if i in best else 0.0 for i in range(len(full))]
        assert kept == pytest.approx(expected, abs=1e-12)
        assert sum(value != 0 for value in kept) == min(budget, sum(value > 0 for value in full))
        if full and budget:
            assert sum(kept) == pytest.approx(1.0, abs=1e-12)


def test_scores_decide_where_rounding_makes_weights_equal():
    """In float32 the scores 0 and 1e-10 beside 0.5 get the same weight; the higher score is kept
    all the same.
    """
    scores, ptr = torch.tensor([0.0, 1e-10, 0.5]), torch.tensor([0, 3])
    probs = entmax_rows(scores, ptr)
    assert probs[0] == probs[1] > 0
    assert (project_budget(probs, scores, ptr, 2) > 0).tolist() == [False, True, True]


@given(sizes=ROW_SIZES, budget=st.integers(0, 4), seed=st.integers(0, 1000))
def test_the_gradient_passes_straight_through_the_budget(sizes, budget, seed):
    ptr = ptr_of(sizes)
    upstream = normal(sum(sizes), seed + 1)

    def gradient(project: bool) -> torch.Tensor:
        scores = normal(sum(sizes), seed).requires_grad_()
        weights = entmax_rows(scores, ptr)
        if project:
            weights = project_budget(weights, scores, ptr, budget)
        (weights * upstream).sum().backward()
        return scores.grad

    torch.testing.assert_close(gradient(True), gradient(False), atol=1e-12, rtol=0)


@pytest.mark.parametrize("widest", [1, 9, 128, 129, 300])
@pytest.mark.parametrize("ties", [False, True])
def test_one_padding_gives_what_the_two_steps_give(widest, ties):
    rng = torch.Generator().manual_seed(widest)
    sizes = torch.randint(0, widest + 1, (40,), generator=rng)
    sizes[3], sizes[5] = 0, widest
    ptr = ptr_of_sizes(sizes)
    scores = torch.randn(int(ptr[-1]), generator=rng)
    scores = scores.round() if ties else scores
    for budget in (1, 3, torch.randint(1, 6, (40,), generator=rng)):
        torch.testing.assert_close(
            budgeted_rows(scores, ptr, budget),
            project_budget(entmax_rows(scores, ptr), scores, ptr, budget),
        )
    none = torch.zeros(0)
    assert not budgeted_rows(none, torch.zeros(5, dtype=torch.long), 2).numel()
