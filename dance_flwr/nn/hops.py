"""Neighbourhoods of nodes at distance exactly 1 and 2."""

from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from dance_flwr.nn.neighbourhood import sample_rows
from dance_flwr.nn.ragged import Ragged, ptr_of_rows, stack_rows

# Why a limit (decision 16): 2-hop lists may have far more entries than the graph has edges, and a
# round reads those of its core alone.
_MAX_CACHED_PAIRS = 2_000_000
_ROWS_AT_ONCE = 16_384  # of 2-hop lists: the search needs some 20 times the memory of its result


@runtime_checkable
class HopLists(Protocol):
    """Candidate nodes at hops 0, 1 and 2 of some nodes."""

    def zero(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return the nodes at hop 0."""

    def one(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return the nodes at hop 1."""

    def two(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return the nodes at hop 2."""


class Hops:
    """N_v^(1) and N_v^(2): nodes at distance exactly 1 and exactly 2, sorted by index.

    With a fan-out F, a node with more than F neighbours offers a fixed sample of F of them, and so
    does each neighbour: a row costs O(F^2) whatever the degrees. The lists of the whole graph are
    cached if they are small.

    Parameters
    ----------
    rows : n rows of neighbours in ascending order, of an undirected graph without self loops
    fan_out : F; 0 = all neighbours
    """

    def __init__(self, rows: Ragged, fan_out: int = 0) -> None:
        self._rows, self._fan_out = rows, fan_out
        degrees = rows.ptr.diff()
        sizes = degrees.clamp(max=fan_out) if fan_out else degrees
        # Walks of two steps bound the number of pairs without a search; with few edges they are
        # cheap to count.
        few = rows.index.numel() <= _MAX_CACHED_PAIRS
        self._cached = few and int(sizes[rows.index].sum()) <= _MAX_CACHED_PAIRS

    def zero(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return {v} for every row node v ([m] int64)."""
        return Ragged(torch.arange(rows.numel() + 1, device=rows.device), rows)

    def one(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return N_v^(1) for every row node v ([m] int64)."""
        return self._one.take(rows) if self._cached else self._sampled(rows)

    def _sampled(self, rows: Int64[Tensor, "m"]) -> Ragged:
        # Why no generator (decision 16): candidates of a node are a fixed sample, the same in every
        # round.
        sample = sample_rows(self._rows, rows, self._fan_out, None)
        return Ragged(sample.ptr, self._rows.index[sample.place])

    def two(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return N_v^(2) for every row node v ([m] int64)."""
        return self._two.take(rows) if self._cached else self._two_hop(rows)

    @cached_property
    def _every(self) -> Int64[Tensor, "n"]:
        return torch.arange(self._rows.num_rows, device=self._rows.ptr.device)

    @cached_property
    def _one(self) -> Ragged:
        return self._sampled(self._every)

    @cached_property
    def _two(self) -> Ragged:
        return stack_rows([self._two_hop(rows) for rows in torch.split(self._every, _ROWS_AT_ONCE)])

    def _two_hop(self, rows: Int64[Tensor, "m"]) -> Ragged:
        near = self.one(rows)
        far = self.one(near.index)
        owner = near.rows()[far.rows()]
        # Sorted by (row, node): a list of pairs without repetition.
        keys = torch.unique(owner * self._rows.num_rows + far.index)
        row, node = keys // self._rows.num_rows, keys % self._rows.num_rows
        # Exactly two: no neighbour, not even one that the sample leaves out.
        exact = (node != rows[row]) & ~contains(self._rows, rows[row], node)
        return Ragged(ptr_of_rows(row[exact], rows.numel()), node[exact])


def contains(rows: Ragged, row: Int64[Tensor, "E"], entry: Int64[Tensor, "E"]) -> Bool[Tensor, "E"]:
    """Return whether each entry is in its row, by bisection of ascending rows; [E] bool."""
    if not rows.index.numel():
        return torch.zeros_like(row, dtype=torch.bool)
    low, high, last = rows.ptr[row], rows.ptr[row + 1], rows.index.numel() - 1
    widest = int((high - low).max()) if row.numel() else 0
    # Every halving runs for all entries at once: as many as the widest row needs.
    for _ in range(widest.bit_length()):
        middle = (low + high) // 2
        below = (middle < high) & (rows.index[middle.clamp(max=last)] < entry)
        # An entry whose search has ended changes neither bound.
        low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
    return (low < rows.ptr[row + 1]) & (rows.index[low.clamp(max=last)] == entry)
