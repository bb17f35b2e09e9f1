"""Neighbourhoods of nodes within some distance."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Int64
from torch import Tensor

from dance_flwr.nn.ragged import Ragged


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
