"""Neighbourhoods of nodes: at distance exactly 1 and 2, and within some distance."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
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


@dataclass(frozen=True)
class Balls:
    """The nodes within some hops of each of I targets, themselves included.

    Attributes
    ----------
    distinct : one row per distinct target, nodes in ascending order
    row : [I] int64, the row of each target
    """

    distinct: Ragged
    row: Int64[Tensor, "I"]

    @classmethod
    def of(cls, rows: Ragged, targets: Int64[Tensor, "I"], radius: int) -> "Balls":
        """Grow the balls edge by edge in the graph of these rows of neighbours."""
        # One target may occur in many cases: its ball is grown once.
        nodes, row = torch.unique(targets, return_inverse=True)
        single = Ragged(torch.arange(nodes.numel() + 1, device=nodes.device), nodes)
        return cls(nodes_around(rows, single, radius), row)

    def sizes(self) -> Int64[Tensor, "I"]:
        """Return the number of nodes around each target, [I] int64."""
        return self.distinct.ptr.diff()[self.row]

    def take(self, cases: Int64[Tensor, "j"]) -> Ragged:
        """Return the nodes around the targets of these cases ([j] int64) as j rows."""
        return self.distinct.take(self.row[cases])


def nodes_around(rows: Ragged, starts: Ragged, radius: int) -> Ragged:
    """Return the nodes within `radius` hops of any start of a row, row by row, ascending.

    Parameters
    ----------
    rows : n rows of neighbours; starts : rows of nodes; a node may occur twice
    """
    n = rows.num_rows

    def matrix(lists: Ragged) -> sp.csr_matrix:
        ptr, index = lists.ptr.cpu().numpy(), lists.index.cpu().numpy()
        return sp.csr_matrix((np.ones(len(index), np.float32), index, ptr), (lists.num_rows, n))

    adjacency, reached = matrix(rows), matrix(starts)
    reached.sum_duplicates()
    for _ in range(radius):
        reached = reached + reached @ adjacency
        reached.data[:] = 1  # paths exist or not: counts could overflow
    reached.sort_indices()
    ptr, index = (
        torch.as_tensor(part.astype(np.int64)) for part in (reached.indptr, reached.indices)
    )
    return Ragged(ptr.to(starts.ptr.device), index.to(starts.ptr.device))


def max_around(rows: Ragged, radius: int) -> Int64[Tensor, "n"]:
    """Return an upper bound of the number of nodes within `radius` hops of each node; [n] int64.

    b_0 = 1, b_r(u) = 1 + sum_{w in N(u)} b_{r-1}(w), at most n, without a search.
    """
    owner, largest = rows.rows(), torch.ones_like(rows.ptr[1:])
    for _ in range(radius):
        walks = torch.ones_like(largest).index_add_(0, owner, largest[rows.index])
        largest = walks.clamp(max=rows.num_rows)
    return largest
