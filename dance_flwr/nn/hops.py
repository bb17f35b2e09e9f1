"""Neighbourhoods of nodes: at distance exactly 1 and 2, and within some distance."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.nn.ragged import Ragged

_MOST_CACHED_PAIRS = 20_000_000


@runtime_checkable
class HopLists(Protocol):
    """Candidate nodes at hops 0, 1 and 2 of given nodes."""

    def zero(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return the nodes at hop 0."""
        ...

    def one(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return the nodes at hop 1."""
        ...

    def two(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return the nodes at hop 2."""
        ...


class Hops:
    """N_v^(1) and N_v^(2): nodes at distance exactly 1 and exactly 2, sorted by index.

    The 2-hop lists of the whole graph are cached if an upper bound on their length (sum over edges
    of the neighbour's degree) is at most 20 million pairs; otherwise they are computed for the
    requested rows, O(deg^2) each.

    Parameters
    ----------
    indptr, indices : CSR neighbour lists of an undirected graph without self loops
    device : device of the returned lists
    """

    def __init__(
        self, indptr: NDArray[np.int64], indices: NDArray[np.int64], device: torch.device
    ) -> None:
        n = len(indptr) - 1
        self.num_nodes = n
        self.device = device
        self._adjacency = sp.csr_matrix(
            (np.ones(len(indices), np.float32), indices, indptr), shape=(n, n)
        )
        self._one = Ragged(
            torch.tensor(indptr, device=device), torch.tensor(indices, device=device)
        )
        pairs = int(np.diff(indptr)[indices].sum())
        self._two = self._two_hop(np.arange(n)) if pairs <= _MOST_CACHED_PAIRS else None

    def zero(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return {v} for every row node v ([m] int64)."""
        return Ragged(torch.arange(rows.numel() + 1, device=self.device), rows)

    def one(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return N_v^(1) for every row node v ([m] int64)."""
        return self._one.take(rows)

    def two(self, rows: Int64[Tensor, "m"]) -> Ragged:
        """Return N_v^(2) for every row node v ([m] int64)."""
        if self._two is not None:
            return self._two.take(rows)
        return self._two_hop(rows.cpu().numpy())

    def _two_hop(self, rows: NDArray[np.int64]) -> Ragged:
        near = self._adjacency[rows]
        reach = (near @ self._adjacency).tocoo()
        n = np.int64(self.num_nodes)
        keys = reach.row.astype(np.int64) * n + reach.col
        itself = np.arange(len(rows), dtype=np.int64) * n + rows
        direct = near.tocoo()
        nearer = np.concatenate([direct.row.astype(np.int64) * n + direct.col, itself])
        keys = np.setdiff1d(keys, nearer, assume_unique=True)
        keys.sort()
        ptr = np.concatenate([[0], np.cumsum(np.bincount(keys // n, minlength=len(rows)))])
        return Ragged(
            torch.as_tensor(ptr.astype(np.int64), device=self.device),
            torch.as_tensor(keys % n, device=self.device),
        )


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
    def of(cls, hops: Hops, targets: Int64[Tensor, "I"], radius: int) -> "Balls":
        """Grow the balls edge by edge."""
        nodes, row = torch.unique(targets, return_inverse=True)
        n = hops.num_nodes
        edges = hops.one(torch.arange(n, device=targets.device))
        indptr, indices = edges.ptr.cpu().numpy(), edges.index.cpu().numpy()
        adjacency = sp.csr_matrix(
            (np.ones(len(indices), np.float32), indices, indptr), shape=(n, n)
        )
        reached = sp.eye(n, format="csr", dtype=np.float32)[nodes.cpu().numpy()]
        for _ in range(radius):
            reached = reached + reached @ adjacency
            reached.data[:] = 1  # paths exist or not: counts could overflow
        reached.sort_indices()
        ptr, index = (
            torch.as_tensor(part.astype(np.int64)) for part in (reached.indptr, reached.indices)
        )
        return cls(Ragged(ptr.to(targets.device), index.to(targets.device)), row)

    def sizes(self) -> Int64[Tensor, "I"]:
        """Return the number of nodes around each target, [I] int64."""
        return self.distinct.ptr.diff()[self.row]

    def take(self, cases: Int64[Tensor, "j"]) -> Ragged:
        """Return the nodes around the targets of these cases ([j] int64) as j rows."""
        return self.distinct.take(self.row[cases])
