"""Neighbourhoods of nodes within some distance."""

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from dance_flwr.nn.ragged import Ragged


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


def among(
    rows: Int64[Tensor, "E"], entries: Int64[Tensor, "E"], others: Ragged
) -> Bool[Tensor, "E"]:
    """Whether each entry is also in that row of `others`; [E] bool.

    Parameters
    ----------
    rows : number of each entry's row in `others`
    """
    size = 1 + max((int(part.max()) for part in (entries, others.index) if part.numel()), default=0)
    return torch.isin(rows * size + entries, others.rows() * size + others.index)
