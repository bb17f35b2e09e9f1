"""Rows of unequal length as (ptr, index) pairs, and what DANCE needs of them, without loops over
rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from entmax import entmax15
from torch import Tensor
from torch.nn import functional as F

_WIDEST_SINGLE_BUCKET = 64


@dataclass(frozen=True)
class Ragged:
    """m rows of entries: row i owns `index[ptr[i]:ptr[i + 1]]`.

    Attributes
    ----------
    ptr : [m + 1] int64
    index : [E] int64, what the entries point to (nodes or chunks)
    """

    ptr: Tensor
    index: Tensor

    @property
    def num_rows(self) -> int:
        """Number of rows m."""
        return self.ptr.numel() - 1

    @cached_property
    def _rows(self) -> Tensor:
        return row_of_entry(self.ptr)

    def rows(self) -> Tensor:
        """Return the row of every entry, [E] int64."""
        return self._rows

    def keep(self, mask: Tensor) -> "Ragged":
        """Return the entries where `mask` ([E] bool) holds, in the same order."""
        return Ragged(ptr_of_rows(self.rows()[mask], self.num_rows), self.index[mask])

    def take(self, rows: Tensor) -> "Ragged":
        """Return these rows ([j] int64) as a new `Ragged` of j rows."""
        sizes = (self.ptr[1:] - self.ptr[:-1])[rows]
        ptr = ptr_of_sizes(sizes)
        offset = torch.arange(int(ptr[-1]), device=ptr.device) - torch.repeat_interleave(
            ptr[:-1], sizes
        )
        return Ragged(ptr, self.index[torch.repeat_interleave(self.ptr[:-1][rows], sizes) + offset])


def ptr_of_sizes(sizes: Tensor) -> Tensor:
    """Return ptr ([m + 1] int64) from row sizes ([m])."""
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def ptr_of_rows(rows: Tensor, num_rows: int) -> Tensor:
    """Return ptr from the sorted row of every entry."""
    return ptr_of_sizes(torch.bincount(rows, minlength=num_rows))


def row_of_entry(ptr: Tensor) -> Tensor:
    """Return the row of every entry, [E] int64."""
    return torch.repeat_interleave(
        torch.arange(ptr.numel() - 1, device=ptr.device), ptr[1:] - ptr[:-1]
    )


def concat_rows(parts: list[Ragged]) -> Ragged:
    """Return row i = parts[0] row i, then parts[1] row i, ...; all parts have the same number of
    rows.
    """
    rows = torch.cat([part.rows() for part in parts])
    order = torch.sort(rows, stable=True).indices
    ptr = torch.stack([part.ptr for part in parts]).sum(0)
    return Ragged(ptr, torch.cat([part.index for part in parts])[order])


def stack_rows(parts: Sequence[Ragged]) -> Ragged:
    """Return the rows of parts[0], then those of parts[1], ..."""
    ptr = ptr_of_sizes(torch.cat([part.ptr.diff() for part in parts]))
    return Ragged(ptr, torch.cat([part.index for part in parts]))


def rank_in_row(scores: Tensor, ptr: Tensor) -> Tensor:
    """Return each entry's rank in its row by descending score, ties to the earlier entry; [E] int64
    from 0.
    """
    rows = row_of_entry(ptr)
    by_score = torch.sort(scores, descending=True, stable=True).indices
    order = by_score[torch.sort(rows[by_score], stable=True).indices]
    rank = torch.empty_like(rows)
    rank[order] = torch.arange(rows.numel(), device=rows.device) - ptr[:-1][rows]
    return rank


def entmax_rows(scores: Tensor, ptr: Tensor) -> Tensor:
    """1.5-entmax of every row, max_p <s, p> + H_1.5(p) over the simplex; [E] -> [E], each row sums
    to 1.

    Rows are padded to the widest of their bucket; buckets double in width, so padding at most
    doubles the work whatever the degree distribution. Source: Peters et al. 2019, through the
    `entmax` package.
    """
    if scores.numel() == 0:
        return scores
    sizes = ptr[1:] - ptr[:-1]
    widest = int(sizes.max())
    if widest <= _WIDEST_SINGLE_BUCKET:
        return _entmax_padded(scores, ptr, torch.arange(sizes.numel(), device=ptr.device), widest)[
            0
        ]
    level = torch.ceil(torch.log2(sizes.clamp(min=_WIDEST_SINGLE_BUCKET).double())).long()
    values, entries = [], []
    for step in torch.unique(level[sizes > 0]).tolist():
        rows = torch.nonzero(level == step).flatten()
        probs, entry = _entmax_padded(scores, ptr, rows, int(sizes[rows].max()))
        values.append(probs)
        entries.append(entry)
    return torch.zeros_like(scores).index_copy(0, torch.cat(entries), torch.cat(values))


def _entmax_padded(scores: Tensor, ptr: Tensor, rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return (probabilities, entry numbers) of these rows, entries in order."""
    column = torch.arange(width, device=ptr.device)
    inside = column < (ptr[1:] - ptr[:-1])[rows, None]
    entry = (ptr[:-1][rows, None] + column)[inside]
    # A finite floor: entmax would turn a row of -inf (an empty row) into NaN.
    padded = scores.new_full((rows.numel(), width), torch.finfo(scores.dtype).min / 4)
    padded = padded.masked_scatter(inside, scores[entry])
    return entmax15(padded, dim=1)[inside], entry


def project_budget(probs: Tensor, scores: Tensor, ptr: Tensor, budget: int | Tensor) -> Tensor:
    """Pi_B: keep the B entries of each row that rank highest and renormalise; [E] -> [E],
    straight-through.

    `budget` is one number, or one per row ([m] int64).

    The forward value has at most B non-zero entries per row and sums to 1 per row; the backward
    pass is the identity, so gradients reach every entry of entmax's support. Entries are ranked by
    their scores: entmax keeps that order, and where it maps several scores to zero the scores still
    decide, which is what makes the selection stable under small drift (Thm. selection stability).
    Equal scores go to the earlier entry.
    """
    rows = row_of_entry(ptr)
    most = budget[rows] if isinstance(budget, Tensor) else budget
    hard = probs.detach() * (rank_in_row(scores.detach(), ptr) < most)
    total = torch.zeros(ptr.numel() - 1, dtype=probs.dtype, device=probs.device)
    total.index_add_(0, rows, hard)
    hard = hard / total.clamp(min=torch.finfo(probs.dtype).tiny)[rows]
    return hard + (probs - probs.detach())


def bilinear_rows(
    left: Tensor, matrix: Tensor, ragged: Ragged, table: Tensor, vectors: Tensor | None = None
) -> Tensor:
    """Return <matrix left_i, table[u]> of every entry u of every row i; [E].

    With gradient the rows are projected to the table's width. Without, each distinct entry is
    projected once to the rows' width, h << d, and what is gathered per entry is h wide: memory
    traffic falls by d / h.

    Parameters
    ----------
    left : [m, h]; matrix : [d, h]; table : [R, d], of any float type
    vectors : [E, d], `table[ragged.index]` where the caller has it already
    """
    if torch.is_grad_enabled():
        vectors = table[ragged.index] if vectors is None else vectors
        return ((left @ matrix.T)[ragged.rows()] * vectors.to(left.dtype)).sum(1)
    distinct, entry = torch.unique(ragged.index, return_inverse=True)
    projected = table[distinct].to(left.dtype) @ matrix
    return (left[ragged.rows()] * projected[entry]).sum(1)


def weighted_rows(weights: Tensor, ragged: Ragged, table: Tensor) -> Tensor:
    """Return sum over each row's entries of weight * table[index]; [m, d].

    Entries of weight zero do not change the value, but with straight-through weights they have a
    gradient, <dL/dout, table[index]>; without gradient they are skipped. `table` gets no gradient.
    """
    if not weights.requires_grad:
        ragged, weights = ragged.keep(weights != 0), weights[weights != 0]
    if table.dtype != weights.dtype:
        return sum_rows(weights, ragged, table[ragged.index].to(weights.dtype))
    # One pass over memory; nothing of size [E, d] is made.
    return F.embedding_bag(
        ragged.index,
        table,
        ragged.ptr,
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )


def sum_rows(weights: Tensor, ragged: Ragged, vectors: Tensor) -> Tensor:
    """Return sum over each row's entries of weight * vector; weights [E], vectors [E, d] -> [m, d]."""
    out = vectors.new_zeros(ragged.num_rows, vectors.size(1))
    return out.index_add(0, ragged.rows(), weights[:, None] * vectors)
