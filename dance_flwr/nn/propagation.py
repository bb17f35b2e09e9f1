"""Sparse operators for message passing."""

import warnings

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops


def operator(
    kind: str,
    rows: Int64[Tensor, "E"],
    cols: Int64[Tensor, "E"],
    weights: Float[Tensor, "E"],
    num_nodes: int,
) -> Float[Tensor, "n n"]:
    """Return the [n, n] sparse CSR operator of one propagation step.

    kind "gcn": D^-1/2 (A + I) D^-1/2 (Kipf and Welling 2017); kind "mean": D^-1 A (Hamilton et al.
    2017), rows of zeros for isolated nodes; kind "sum": A; kind "loops": A with the mean of each
    row's entries on the diagonal, an explicit 0 for isolated nodes. Entry
    (row, col) carries a message from col to row.

    Parameters
    ----------
    rows, cols : [E] int64; weights : [E] float, >= 0

    Raises
    ------
    ValueError : unknown kind
    """
    if kind == "gcn":
        # PyG reads edge_index as (source, target) and normalises by in-degree at the target.
        edge_index, values = gcn_norm(
            torch.stack([cols, rows]), weights, num_nodes, add_self_loops=True
        )
        cols, rows = edge_index[0], edge_index[1]
    elif kind == "mean":
        degree = torch.zeros(num_nodes, dtype=weights.dtype, device=weights.device).index_add_(
            0, rows, weights
        )
        values = weights / degree.clamp(min=torch.finfo(weights.dtype).tiny)[rows]
    elif kind == "sum":
        values = weights
    elif kind == "loops":
        edge_index, values = remove_self_loops(torch.stack([cols, rows]), weights)
        edge_index, values = add_self_loops(
            edge_index, values, fill_value="mean", num_nodes=num_nodes
        )
        cols, rows = edge_index[0], edge_index[1]
    else:
        raise ValueError(f"expected operator 'gcn', 'mean', 'sum' or 'loops', found {kind!r}")
    return sparse_csr(rows, cols, values, num_nodes)


def sparse_csr(
    rows: Int64[Tensor, "E"], cols: Int64[Tensor, "E"], values: Float[Tensor, "E"], size: int
) -> Float[Tensor, "n n"]:
    """Return the [n, n] sparse CSR matrix of these entries.

    Parameters
    ----------
    size : n
    """
    ends = torch.stack([rows, cols])
    coo = torch.sparse_coo_tensor(ends, values, (size, size), check_invariants=False)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Sparse (CSR tensor support is in beta|invariant checks)"
        )
        return coo.to_sparse_csr()
