"""Samples of rows: how many entries, which, and that sums over them are unbiased."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.builders import lists, ragged, split
from support.tensors import LargestTensor

from dance_flwr.nn.neighbourhood import sample_rows
from dance_flwr.nn.ragged import Ragged, ptr_of_sizes

ROWS = st.lists(st.integers(0, 9), min_size=1, max_size=8)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def rows_of(sizes) -> Ragged:
    """Entry e of all rows points to e, so that an entry is its own name."""
    ptr = ptr_of_sizes(torch.tensor(sizes))
    return Ragged(ptr, torch.arange(int(ptr[-1])))


@given(ROWS, st.integers(0, 6), st.integers(0, 99), st.data())
def test_a_sample_has_distinct_entries_of_its_row_and_weights_that_sum_to_its_size(
    sizes, most, seed, data
):
    rows = rows_of(sizes)
    chosen = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=6))
    sample = sample_rows(rows, torch.tensor(chosen, dtype=torch.int64), most, draw(seed))
    own = lists(rows)
    for row, places, weights in zip(
        chosen, split(sample.place, sample.ptr), split(sample.weight, sample.ptr), strict=True
    ):
        entries = rows.index[places].tolist()
        assert len(entries) == (min(sizes[row], most) if most else sizes[row])
        assert sorted(set(entries)) == entries and set(entries) <= set(own[row])
        assert sum(weights) == sizes[row] and all(weight >= 1 for weight in weights)


@pytest.mark.parametrize("size,most", [(5, 2), (7, 3), (6, 4), (4, 1), (3, 5)])
def test_sums_are_unbiased_over_every_outcome(size, most, monkeypatch):
    """One entry of each part with equal chance: the mean over all outcomes is the exact sum."""
    rows, values = ragged([list(range(size))]), 2.0 ** torch.arange(size)
    kept = min(size, most)
    parts = [(j + 1) * size // kept - j * size // kept for j in range(kept)]
    estimates, seen = [], set()
    for outcome in product(*(range(part) for part in parts)):
        uniform = torch.tensor(
            [(offset + 0.5) / part for offset, part in zip(outcome, parts, strict=True)],
            dtype=torch.float64,
        )
        monkeypatch.setattr(torch, "rand", lambda *_, uniform=uniform, **__: uniform)
        sample = sample_rows(rows, torch.tensor([0]), most, draw())
        seen.add(tuple(sample.place.tolist()))
        estimates.append(float((sample.weight * values[sample.place]).sum()))
    assert len(seen) == len(estimates)  # every outcome is another sample, all equally likely
    assert sum(estimates) / len(estimates) == pytest.approx(float(values.sum()))


def test_a_hub_costs_no_more_than_its_sample():
    hub = Ragged(torch.tensor([0, 20_000_000]), torch.zeros(1, dtype=torch.int64).expand(1))
    with LargestTensor() as largest:
        sample = sample_rows(hub, torch.zeros(100, dtype=torch.int64), 10, draw())
    assert 0 < largest.elements <= 10_000  # of the 20 million entries, which do not even exist
    with LargestTensor() as largest:
        hub.rows()
    assert largest.elements == 20_000_000, "a look at each entry is seen"
    assert sample.place.numel() == 1000 and int(sample.place.max()) < 20_000_000
