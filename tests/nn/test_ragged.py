"""Ragged rows: every operation against a loop over the rows."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from entmax import entmax_bisect
from hypothesis import given
from hypothesis import strategies as st
from support.builders import lists, ragged, split

from dance_flwr.nn.ragged import (
    Ragged,
    budgeted_rows,
    concat_rows,
    entmax_rows,
    products,
    project_budget,
    ptr_of_sizes,
    rank_in_row,
    row_of_entry,
    stack_rows,
    weighted_rows,
)

ROW_SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=8)  # of rows, empty ones included


def normal(total: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(total, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def ptr_of(sizes) -> torch.Tensor:
    return ptr_of_sizes(torch.tensor(sizes))


tables = st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=7)


@given(table=tables, data=st.data())
def test_take_returns_the_rows_asked_for_in_that_order(table, data):
    rows = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=9))
    taken = ragged(table).take(torch.tensor(rows, dtype=torch.int64))
    assert lists(taken) == [table[row] for row in rows]


@given(table=tables)
def test_keep_drops_entries_and_never_rows(table):
    kept = ragged(table).keep(
        torch.tensor([entry % 2 == 0 for row in table for entry in row], dtype=torch.bool)
    )
    assert lists(kept) == [[entry for entry in row if entry % 2 == 0] for row in table]


@given(
    rows=st.lists(
        st.tuples(*[st.lists(st.integers(0, 20), max_size=4)] * 3), min_size=1, max_size=6
    )
)
def test_concat_rows_joins_row_by_row(rows):
    parts = [ragged([row[k] for row in rows]) for k in range(3)]
    assert lists(concat_rows(parts)) == [[*a, *b, *c] for a, b, c in rows]


@given(table=st.lists(st.lists(st.integers(-2, 2), max_size=8), min_size=1, max_size=6))
def test_rank_in_row_is_by_descending_score_then_by_position(table):
    rows = ragged(table)
    expected = []
    for row in table:
        order = sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))
        expected.append([order.index(i) for i in range(len(row))])
    assert split(rank_in_row(rows.index.float(), rows.ptr), rows.ptr) == expected


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


@given(sizes=ROW_SIZES, seed=st.integers(0, 1000), trained=st.booleans())
def test_weighted_rows_is_the_sum_over_each_row(sizes, seed, trained):
    rng = np.random.default_rng(seed)
    rows = Ragged(ptr_of(sizes), torch.tensor(rng.integers(0, 5, sum(sizes))))
    table = normal(15, seed).view(5, 3)
    weights = torch.tensor(rng.random(sum(sizes)) * (rng.random(sum(sizes)) < 0.6)).requires_grad_(
        trained
    )
    expected = torch.zeros(len(sizes), 3, dtype=torch.float64)
    for entry, row in enumerate(row_of_entry(rows.ptr).tolist()):
        expected[row] += weights[entry].detach() * table[rows.index[entry]]
    torch.testing.assert_close(weighted_rows(weights, rows, table).detach(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_products_are_those_of_every_entry(dtype):
    """Also where a row is empty, an entry repeats, and the table is of half precision."""
    table = torch.randn(9, 6).to(dtype)
    rows = Ragged(torch.tensor([0, 3, 3, 5, 6]), torch.tensor([2, 0, 2, 8, 1, 4]))
    queries = torch.randn(4, 6)
    wanted = [
        float(queries[row] @ table[entry].float())
        for row, entry in zip(rows.rows().tolist(), rows.index.tolist(), strict=True)
    ]
    torch.testing.assert_close(products(queries, rows, table), torch.tensor(wanted))
    nothing = Ragged(torch.zeros(5, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    assert products(queries, nothing, table).shape == (0,)


def test_stack_rows_puts_rows_below_each_other():
    assert lists(stack_rows([ragged([[3], [], [1, 2]]), ragged([]), ragged([[5, 4]])])) == [
        [3],
        [],
        [1, 2],
        [5, 4],
    ]
