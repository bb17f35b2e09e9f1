"""Sparse operators for message passing."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dance_flwr.nn.sums import HOST, sums_at, sums_of_rows

# Why (decision 16): up to this many entries the gradient of a dense product is the cheaper one.
_MAX_DENSE = 65_536
_MAX_GATHERED = 2**26  # floats that a product gathers at once on a GPU, 256 MB
_TRANSPOSED = WeakTensorKeyDictionary()  # operator -> P^T


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
    """
    if kind == "gcn":
        every = torch.arange(num_nodes, device=rows.device)
        rows, cols = torch.cat([rows, every]), torch.cat([cols, every])
        # Loops weigh 1, so that no degree is 0.
        values = torch.cat([weights, weights.new_ones(num_nodes)])
        degree = sums_at(values, rows, num_nodes)
        root = degree.rsqrt()
        values = root[cols] * values * root[rows]
    elif kind == "mean":
        degree = sums_at(weights, rows, num_nodes)
        # Clamped: an isolated node has a row of zeros, not of NaN.
        values = weights / degree.clamp(min=torch.finfo(weights.dtype).tiny)[rows]
    elif kind == "sum":
        values = weights
    elif kind == "loops":
        # Imported here (decision 16): torch-geometric costs more to import than torch, and no other
        # kind needs it.
        from torch_geometric.utils import add_self_loops, remove_self_loops

        edge_index, values = remove_self_loops(torch.stack([cols, rows]), weights)
        edge_index, values = add_self_loops(
            edge_index, values, fill_value="mean", num_nodes=num_nodes
        )
        cols, rows = edge_index[0], edge_index[1]
    else:
        raise ValueError(f"expected operator 'gcn', 'mean', 'sum' or 'loops', found {kind!r}")
    return sparse_csr(rows, cols, values, num_nodes)


def propagated(operator: Any, features: Float[Tensor, "n d"]) -> Float[Tensor, "m d"]:
    """P X, added up in the same order every time on every device; gradients of X alone.

    Parameters
    ----------
    operator : dense, sparse CSR, or what stands for one (`evidence.replicas`)
    """
    if isinstance(operator, Tensor) and operator.layout == torch.sparse_csr:
        on_card = operator.device != HOST
        return _Product.apply(operator, features, on_card)  # type: ignore[no-any-return,no-untyped-call]
    return operator @ features  # type: ignore[no-any-return]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operator: Tensor, features: Tensor, on_card: bool) -> Tensor:
        if ctx.needs_input_grad[1]:
            # Why kept: torch transposes P in every backward pass, which takes eight times as long
            # as the product; an operator is multiplied by in every epoch.
            if operator not in _TRANSPOSED:
                _TRANSPOSED[operator] = _transposed(operator)
            ctx.transposed, ctx.on_card = _TRANSPOSED[operator], on_card
        return _product(operator, features, on_card)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        return None, _product(ctx.transposed, gradients[0], ctx.on_card), None


def _product(operator: Tensor, features: Tensor, on_card: bool) -> Tensor:
    if not on_card:
        return operator @ features
    # Why (decision 31): cuSPARSE promises no order of its sums. In blocks of columns, as every
    # entry of the operator gathers a row of the features.
    ptr, cols, values = operator.crow_indices(), operator.col_indices(), operator.values()
    width = max(1, _MAX_GATHERED // max(1, cols.numel()))
    sums = [
        torch.segment_reduce(values[:, None] * block[cols], "sum", offsets=ptr, unsafe=True)
        for block in torch.split(features, width, dim=1)
    ]
    return sums[0] if len(sums) == 1 else torch.cat(sums, dim=1)


def _transposed(operator: Tensor) -> Tensor:
    ptr, cols = operator.crow_indices(), operator.col_indices()
    rows = torch.repeat_interleave(ptr.diff(), output_size=cols.numel())
    ordered, order = torch.sort(cols, stable=True)
    ends = torch.arange(operator.size(1) + 1, device=cols.device)
    starts, size = torch.searchsorted(ordered, ends), (operator.size(1), operator.size(0))
    return csr(starts, rows[order], operator.values()[order], size)


@dataclass(frozen=True)
class EdgeWeights:
    """Entries of the operator of a graph, as functions of the degrees and the edges' weights.

    P_ij = left_i right_j a_ij for an edge from j to i, P_ii = loops_i; so a row of P needs no more
    than the neighbour list and its weights.

    Attributes
    ----------
    left, right : [n] float32
    loops : [n] float32; None = an operator without the diagonal
    sums : whether the entries weigh a sum, so that a sampled one stands for several; False where
        they are features of edges
    gates : [E] float32, a_ij, in the order of the neighbour list; None = all 1
    """

    left: Float[Tensor, "n"]
    right: Float[Tensor, "n"]
    loops: Float[Tensor, "n"] | None
    sums: bool = True
    gates: Float[Tensor, "A"] | None = None

    def of(
        self, rows: Int64[Tensor, "E"], cols: Int64[Tensor, "E"], place: Int64[Tensor, "E"]
    ) -> Float[Tensor, "E"]:
        """Return the entries of these edges; `place` is their position in the neighbour list."""
        entries = self.left[rows] * self.right[cols]
        return entries if self.gates is None else entries * self.gates[place]


def edge_weights(
    kind: str, ptr: Int64[Tensor, "p"], gates: Float[Tensor, "A"] | None = None
) -> EdgeWeights:
    """Return the entries of `operator(kind, ...)` on a graph without self loops.

    Parameters
    ----------
    ptr : of the rows of neighbours
    gates : weights >= 0 of all edges, in the order of the rows; None = all 1
    """
    sizes = ptr.diff()
    degree = sizes.float()
    if gates is not None:
        # Under gates a degree is the sum of the weights of its edges, as in `operator`.
        degree = sums_of_rows(gates, ptr)
    one = torch.ones_like(degree)
    if kind == "gcn":
        # + 1 for the loop, whose entry is then 1 / (degree + 1).
        root = (degree + 1).rsqrt()
        return EdgeWeights(root, root, root * root, gates=gates)
    if kind == "mean":
        tiny = torch.finfo(degree.dtype).tiny
        return EdgeWeights(1 / degree.clamp(min=tiny), one, None, gates=gates)
    if kind == "sum":
        return EdgeWeights(one, one, None, gates=gates)
    if kind == "loops":
        # The mean weight of the edges; 0 for an isolated node.
        loops = degree / sizes.clamp(min=1)
        return EdgeWeights(one, one, loops, sums=False, gates=gates)
    raise ValueError(f"expected operator 'gcn', 'mean', 'sum' or 'loops', found {kind!r}")


def trainable(operator: Tensor, kind: str) -> Tensor:
    """Return an operator of a single round as it trains fastest: dense, if it is small.

    Its transpose, which a gradient needs, would be computed for a few epochs only.
    """
    # Attention needs the list of edges, whatever the size.
    small = operator.numel() <= _MAX_DENSE
    return operator.to_dense() if small and kind != "loops" else operator


def places(operator: Float[Tensor, "m n"]) -> Int64[Tensor, "E"]:
    """Return where the entries of a sparse CSR matrix are in the flat dense one."""
    ptr, cols = operator.crow_indices(), operator.col_indices()
    return torch.repeat_interleave(ptr.diff()) * operator.size(1) + cols


def densified(
    places: Int64[Tensor, "E"], values: Float[Tensor, "E"], size: torch.Size
) -> Float[Tensor, "m n"]:
    """Return the dense matrix with these entries at `places`, each at most once."""
    # Why not `to_dense` (decision 31): it waits for a GPU, and adds up in no fixed order there.
    return values.new_zeros(size.numel()).scatter_(0, places, values).view(size)


def widened(operator: Float[Tensor, "m n"], rows: int, columns: int) -> Float[Tensor, "_ _"]:
    """Return a sparse CSR matrix with rows and columns of zeros added; [rows, columns]."""
    ptr = operator.crow_indices()
    ptr = torch.cat([ptr, ptr[-1:].expand(rows - operator.size(0))])
    return csr(ptr, operator.col_indices(), operator.values(), (rows, columns))


def csr(
    ptr: Int64[Tensor, "p"],
    cols: Int64[Tensor, "E"],
    values: Float[Tensor, "E"],
    size: tuple[int, int],
) -> Tensor:
    """Return the sparse CSR matrix of these rows; columns need no order within a row."""
    with warnings.catch_warnings():
        # torch announces that CSR tensors are in beta; nothing follows from it for a run.
        warnings.filterwarnings(
            "ignore", message="Sparse (CSR tensor support is in beta|invariant checks)"
        )
        return torch.sparse_csr_tensor(ptr, cols, values, size, check_invariants=False)


def sparse_csr(
    rows: Int64[Tensor, "E"], cols: Int64[Tensor, "E"], values: Float[Tensor, "E"], size: int
) -> Float[Tensor, "n n"]:
    """Return the [n, n] sparse CSR matrix of these entries."""
    ends = torch.stack([rows, cols])
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Sparse (CSR tensor support is in beta|invariant checks)"
        )
        coo = torch.sparse_coo_tensor(ends, values, (size, size), check_invariants=False)
        return coo.to_sparse_csr()
