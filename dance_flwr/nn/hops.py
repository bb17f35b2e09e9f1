"""The 1-hop and 2-hop neighbourhoods of the original local graph."""

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.nn.ragged import Ragged

_MOST_CACHED_PAIRS = 20_000_000


class Hops:
    """N_v^(1) and N_v^(2): nodes at distance exactly 1 and exactly 2, sorted by index.

    The whole graph's 2-hop lists are kept when an upper bound on their length (sum over edges of
    the neighbour's degree) stays below 20 million pairs; otherwise they are computed for the rows
    asked for, O(deg^2) each.

    Parameters
    ----------
    indptr, indices : CSR neighbour lists of an undirected graph without self loops
    device : where the lists are returned
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

    def zero(self, rows: Tensor) -> Ragged:
        """Return {v} for every row node v ([m] int64)."""
        return Ragged(torch.arange(rows.numel() + 1, device=self.device), rows)

    def one(self, rows: Tensor) -> Ragged:
        """Return N_v^(1) for every row node v ([m] int64)."""
        return self._one.take(rows)

    def two(self, rows: Tensor) -> Ragged:
        """Return N_v^(2) for every row node v ([m] int64)."""
        if self._two is not None:
            return self._two.take(rows)
        return self._two_hop(rows.cpu().numpy())

    def _two_hop(self, rows: NDArray[np.int64]) -> Ragged:
        near = self._adjacency[rows]
        reach = (near @ self._adjacency).tocoo()
        n = np.int64(self.num_nodes)
        keys = reach.row.astype(np.int64) * n + reach.col
        own = np.arange(len(rows), dtype=np.int64) * n + rows
        direct = near.tocoo()
        nearer = np.concatenate([direct.row.astype(np.int64) * n + direct.col, own])
        keys = np.setdiff1d(keys, nearer, assume_unique=True)
        keys.sort()
        ptr = np.concatenate([[0], np.cumsum(np.bincount(keys // n, minlength=len(rows)))])
        return Ragged(
            torch.as_tensor(ptr.astype(np.int64), device=self.device),
            torch.as_tensor(keys % n, device=self.device),
        )
