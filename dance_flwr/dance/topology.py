"""Sec. 3.4 and Alg. 4: self-expressive topology reconstruction on the condensed core."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Evidence
from dance_flwr.dance.model import DanceModel
from dance_flwr.nn.ragged import ptr_of_rows, rank_in_row

_ROWS_PER_BLOCK = 1024

# (rows, cols, weights) of a weighted graph.
Edges = tuple[Int64[Tensor, "E"], Int64[Tensor, "E"], Float[Tensor, "E"]]


@dataclass(frozen=True)
class Coefficients:
    """Sparse Z of X ~ XZ: column i is supported on C(i).

    Attributes
    ----------
    support : [K, s] int64, C(i) in row i, -1 where padded; s <= 2q
    values : [K, s] float32, Z[C(i), i]; 0 where padded
    """

    support: Int64[Tensor, "K s"]
    values: Float[Tensor, "K s"]


@torch.no_grad()
def rebuild_topology(
    model: DanceModel, hidden: Float[Tensor, "K h"], evidence: Evidence, settings: DanceConfig
) -> Edges:
    """Alg. 4: (rows, cols, weights) of the adjacency on the core.

    Parameters
    ----------
    hidden : [K, h] g_v of the core
    """
    features = model.fuse(hidden, evidence.fused_text)
    support = candidate_support(features, evidence.text, settings.candidates)
    z = self_express(
        features, evidence.text, support, settings.alpha, settings.beta, settings.inner_iterations
    )
    return synthesise_adjacency(z, settings.neighbours)


def candidate_support(
    features: Float[Tensor, "K d"], evidence: Float[Tensor, "K d"], most: int
) -> Int64[Tensor, "K s"]:
    """eq:candidate_set: C(i) = TopK_q(x_i^T x_j) union TopK_q(S_ij), j != i; [K, s] int64.

    Padded with -1. Rows are processed in blocks: memory is O(block * K), never O(K^2).

    Parameters
    ----------
    features : [K, d] x; evidence : [K, d] t~, whose clipped products are S; most : q
    """
    size = features.size(0)
    width = min(most, size - 1)
    if width <= 0:
        return torch.full((size, 0), -1, dtype=torch.int64, device=features.device)
    blocks = []
    for start in range(0, size, _ROWS_PER_BLOCK):
        rows = torch.arange(start, min(start + _ROWS_PER_BLOCK, size), device=features.device)
        tops = []
        for scores in (features[rows] @ features.T, prior_block(evidence, rows)):
            scores[torch.arange(rows.numel(), device=rows.device), rows] = float("-inf")
            tops.append(torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :width])
        blocks.append(torch.cat(tops, dim=1))
    union = torch.cat(blocks).sort(dim=1).values
    repeated = torch.zeros_like(union, dtype=torch.bool)
    repeated[:, 1:] = union[:, 1:] == union[:, :-1]
    return union.masked_fill(repeated, -1)


def prior_block(evidence: Float[Tensor, "K d"], rows: Int64[Tensor, "b"]) -> Float[Tensor, "b K"]:
    """S[rows, :] with S_ij = clip(<t~_i, t~_j>, 0, 1); [b, K].

    The expected cosine between a chunk of i and a chunk of j: sum_{a,b} pi_ia pi_jb cos(e_a, e_b)
    collapses to an inner product because chunk embeddings have unit norm. Symmetric; in [0, 1] by
    Cauchy-Schwarz.
    """
    return (evidence[rows] @ evidence.T).clamp(0, 1)


def self_express(
    features: Float[Tensor, "K d"],
    evidence: Float[Tensor, "K d"],
    support: Int64[Tensor, "K s"],
    alpha: float,
    beta: float,
    iterations: int,
) -> Coefficients:
    """eq:self_expressive_sparse by proximal gradient on the support.

    min_Z alpha ||X - XZ||_F^2 + beta ||Z||_1 + sum_{i != j} (1 - S_ij) |Z_ij|.

    Columns are independent, so each is a small problem in its own Gram matrix G_i = X_C(i)^T
    X_C(i): gradient 2 alpha (G z - b), soft threshold eta (beta + 1 - S_ij), step eta_i = 1 / (2
    alpha max_row_sum|G_i|), which is at most 1 / L_i, so the objective never rises. Alg. 4 takes
    one step size for all columns; ours is never smaller than 1 / (2 alpha s max_j ||x_j||^2) and
    needs no spectral norm. Memory is O(block q^2) in addition to the O(Kq) result.

    Parameters
    ----------
    features : [K, d] x, one node a row (the paper's X has nodes as columns)
    """
    values = torch.zeros(support.shape, dtype=features.dtype, device=features.device)
    for start in range(0, support.size(0) if support.size(1) else 0, _ROWS_PER_BLOCK):
        rows = slice(start, start + _ROWS_PER_BLOCK)
        values[rows] = _solve_block(
            features, evidence, support[rows], start, alpha, beta, iterations
        )
    return Coefficients(support, values)


def _solve_block(
    features: Tensor,
    evidence: Tensor,
    support: Tensor,
    start: int,
    alpha: float,
    beta: float,
    iterations: int,
) -> Tensor:
    inside = support >= 0
    index = support.clamp(min=0)
    column = torch.arange(start, start + support.size(0), device=support.device)
    columns = features[index] * inside[..., None]
    gram = columns @ columns.transpose(1, 2)
    target = (columns @ features[column, :, None]).squeeze(2)
    prior = (evidence[index] @ evidence[column, :, None]).squeeze(2).clamp(0, 1)
    step = 1 / (2 * alpha * gram.abs().sum(2).max(1).values.clamp(min=1e-12))[:, None]
    threshold = step * (beta + 1 - prior)
    z = torch.zeros_like(target)
    for _ in range(iterations):
        moved = z - step * 2 * alpha * ((gram @ z[..., None]).squeeze(2) - target)
        z = torch.sign(moved) * (moved.abs() - threshold).clamp(min=0)
    return z * inside


def objective(
    features: Float[Tensor, "K d"],
    evidence: Float[Tensor, "K d"],
    z: Coefficients,
    alpha: float,
    beta: float,
) -> Float[Tensor, ""]:
    """Return the value of eq:self_expressive_sparse at Z, a scalar; O(K s d)."""
    index = z.support.clamp(min=0)
    rebuilt = (features[index] * z.values[..., None]).sum(1)
    prior = (evidence[index] * evidence[:, None]).sum(2).clamp(0, 1)
    return alpha * (features - rebuilt).square().sum() + ((beta + 1 - prior) * z.values.abs()).sum()


def synthesise_adjacency(z: Coefficients, most: int) -> Edges:
    """eq:adjacency: W = |Z| + |Z|^T, then T_k: the k largest entries of each row, symmetrised.

    An edge stays if either end keeps it, with its weight in W. Ties go to the lower column.

    Returns
    -------
    (rows, cols, weights), [E] each, symmetric, no self loops, sorted by row and column; E <= 2 K k
    """
    size = z.support.size(0)
    filled = (z.support >= 0) & (z.values != 0)
    col_of_z = torch.nonzero(filled)[:, 0]
    row_of_z, weight = z.support[filled], z.values[filled].abs()
    pairs = torch.stack([torch.cat([row_of_z, col_of_z]), torch.cat([col_of_z, row_of_z])])
    doubled = torch.cat([weight, weight])
    merged = torch.sparse_coo_tensor(
        pairs, doubled, (size, size), check_invariants=False
    ).coalesce()
    rows, cols, values = *merged.indices(), merged.values()
    keep = rank_in_row(values, ptr_of_rows(rows, size)) < most
    key, back = rows * size + cols, cols * size + rows
    keep = keep | torch.isin(key, back[keep])
    return rows[keep], cols[keep], values[keep]
