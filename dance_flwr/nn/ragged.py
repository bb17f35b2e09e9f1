"""Rows of unequal length as (ptr, index) pairs, and operations on them without loops over rows.

In annotations of shapes, p = m + 1 is the length of `ptr` over m rows, and E the number of entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int64, Real
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.nn.entmax import entmax15
from dance_flwr.nn.propagation import csr
from dance_flwr.nn.sums import HOST, sums_of_rows

# Rows up to this width are padded to one matrix, longer ones are not.
_WIDEST_SINGLE_BUCKET = 128

# How scores become weights: (scores [m, W], inside [m, W]) -> weights [m, W] >= 0 of the same type,
# with gradients. Rows sum to 1. `inside` is False for padding, which scores far below all others
# and has no weight; a row of padding alone is not read, and may be NaN.
Rule = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Ragged:
    """m rows of entries: row i owns `index[ptr[i]:ptr[i + 1]]`.

    Attributes
    ----------
    ptr : [m + 1] int64
    index : [E] int64, what the entries point to (nodes or chunks)
    """

    ptr: Int64[Tensor, "p"]
    index: Int64[Tensor, "E"]

    @property
    def num_rows(self) -> int:
        """Number of rows m."""
        return self.ptr.numel() - 1

    @cached_property
    def _rows(self) -> Int64[Tensor, "E"]:
        return row_of_entry(self.ptr)

    def rows(self) -> Int64[Tensor, "E"]:
        """Return the row of every entry, [E] int64."""
        return self._rows

    def keep(self, mask: Bool[Tensor, "E"]) -> "Ragged":
        """Return the entries where `mask` is true, in the same order."""
        places = torch.nonzero(mask).flatten()
        return Ragged(ptr_of_rows(self.rows()[places], self.num_rows), self.index[places])

    def take(self, rows: Int64[Tensor, "j"]) -> "Ragged":
        """Return these rows as a new `Ragged` of j rows."""
        sizes = (self.ptr[1:] - self.ptr[:-1])[rows]
        ptr = ptr_of_sizes(sizes)
        shift = torch.repeat_interleave(self.ptr[:-1][rows] - ptr[:-1], sizes)
        return Ragged(ptr, self.index[shift + torch.arange(shift.numel(), device=ptr.device)])


def ptr_of_sizes(sizes: Int64[Tensor, "m"]) -> Int64[Tensor, "m+1"]:
    """Return ptr from row sizes."""
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def ptr_of_rows(rows: Int64[Tensor, "E"], num_rows: int) -> Int64[Tensor, "p"]:
    """Return ptr from the sorted row of every entry."""
    return ptr_of_sizes(torch.bincount(rows, minlength=num_rows))


def row_of_entry(ptr: Int64[Tensor, "p"]) -> Int64[Tensor, "E"]:
    """Return the row of every entry."""
    return torch.repeat_interleave(ptr[1:] - ptr[:-1])


def concat_rows(parts: list[Ragged]) -> Ragged:
    """Join row by row: row i is that of parts[0], then that of parts[1], ...

    All parts have the same number of rows.
    """
    rows = torch.cat([part.rows() for part in parts])
    # Stable, so that entries of one row stay in the order of the parts.
    order = torch.sort(rows, stable=True).indices
    ptr = torch.stack([part.ptr for part in parts]).sum(0)
    return Ragged(ptr, torch.cat([part.index for part in parts])[order])


def stack_rows(parts: Sequence[Ragged]) -> Ragged:
    """Stack the rows of parts[0], then those of parts[1], ..."""
    ptr = ptr_of_sizes(torch.cat([part.ptr.diff() for part in parts]))
    return Ragged(ptr, torch.cat([part.index for part in parts]))


def padded(
    values: Real[Tensor, "E"], sizes: Int64[Tensor, "m"], fill: float
) -> tuple[Real[Tensor, "m W"], Bool[Tensor, "m W"]]:
    """Return rows of these sizes, padded to the widest, and where they are filled.

    Examples
    --------
    >>> padded(torch.tensor([4, 6, 9]), torch.tensor([2, 1]), 0.0)[0]
    tensor([[4, 6],
            [9, 0]])
    """
    widest = int(sizes.max()) if sizes.numel() else 0
    inside = torch.arange(widest, device=sizes.device) < sizes[:, None]
    return values.new_full(inside.shape, fill).masked_scatter(inside, values), inside


def rank_in_row(scores: Real[Tensor, "E"], ptr: Int64[Tensor, "p"]) -> Int64[Tensor, "E"]:
    """Return each entry's rank in its row by descending score, from 0.

    Ties go to the earlier entry. Short rows are sorted side by side, padded; otherwise all entries
    at once.
    """
    sizes = ptr.diff()
    # Only floats have a -inf to pad with.
    if _are_short(sizes) and scores.is_floating_point():
        rows, inside = padded(scores, sizes, float("-inf"))
        return _rank_in_row(rows)[inside]
    owner = row_of_entry(ptr)
    # Two stable sorts, the row last: ties stay in the order of their entries.
    by_score = torch.sort(scores, descending=True, stable=True).indices
    order = by_score[torch.sort(owner[by_score], stable=True).indices]
    rank = torch.empty_like(owner)
    rank[order] = torch.arange(owner.numel(), device=owner.device) - ptr[:-1][owner]
    return rank


def _are_short(sizes: Int64[Tensor, "m"]) -> bool:
    return not sizes.numel() or int(sizes.max()) <= _WIDEST_SINGLE_BUCKET


def _rank_in_row(scores: Float[Tensor, "m W"]) -> Int64[Tensor, "m W"]:
    order = torch.sort(scores, dim=1, descending=True, stable=True).indices
    column = torch.arange(scores.size(1), device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, column)


def _floor(scores: Tensor) -> float:
    """Return what padding scores: entmax would turn a row of -inf (an empty row) into NaN."""
    return torch.finfo(scores.dtype).min / 4


def entmax_rows(
    scores: Float[Tensor, "E"], ptr: Int64[Tensor, "p"], rule: Rule = entmax15
) -> Float[Tensor, "E"]:
    """1.5-entmax of every row: argmax_p <s, p> + H_1.5(p) over the simplex; [E] -> [E].

    Each row sums to 1. Rows are padded to the widest of their bucket; buckets double in width, so
    padding at most doubles the work for any distribution of degrees. Source: Peters et al. 2019.

    Parameters
    ----------
    rule : takes the place of entmax
    """
    if not scores.numel():
        return scores
    sizes, places = ptr.diff(), Ragged(ptr, torch.arange(scores.numel(), device=ptr.device))
    level = torch.ceil(torch.log2(sizes.clamp(min=_WIDEST_SINGLE_BUCKET).double())).long()
    values, entries = [], []
    for step in torch.unique(level[sizes > 0]).tolist():
        rows = torch.nonzero(level == step).flatten()
        entries.append(places.take(rows).index)
        table, inside = padded(scores[entries[-1]], sizes[rows], _floor(scores))
        values.append(rule(table, inside)[inside])
    return torch.zeros_like(scores).index_copy(0, torch.cat(entries), torch.cat(values))


def project_budget(
    probs: Float[Tensor, "*E"],
    scores: Float[Tensor, "*E"],
    ptr: Int64[Tensor, "p"] | None,
    budget: int | Int64[Tensor, "m"],
) -> Float[Tensor, "*E"]:
    """Pi_B: keep the B entries of each row with the highest scores and renormalise; [E] -> [E].

    A straight-through estimator. The forward value has at most B non-zero entries per row and sums
    to 1 per row; the backward pass is the identity, so gradients reach every entry of entmax's
    support. Ties go to the earlier entry.

    Parameters
    ----------
    probs, scores : [E] entries of ragged rows, or [m, W] rows of one width
    ptr : of ragged rows; None = rows of one width
    budget : B, one number or one per row ([m] int64)

    Examples
    --------
    >>> probs = torch.tensor([[0.5, 0.2, 0.3]])
    >>> project_budget(probs, probs, None, 2)
    tensor([[0.6250, 0.0000, 0.3750]])
    """
    weights = probs.detach()
    # Why ranks of scores and not of weights (decision 4): entmax maps several scores to zero, and
    # the scores still decide among those, so that the selection is stable under small drift.
    if ptr is None:
        rank = _rank_in_row(scores.detach())
        hard = weights * (rank < (budget[:, None] if isinstance(budget, Tensor) else budget))
        total = hard.sum(1, keepdim=True)
    else:
        rows, rank = row_of_entry(ptr), rank_in_row(scores.detach(), ptr)
        hard = weights * (rank < (budget[rows] if isinstance(budget, Tensor) else budget))
        total = sums_of_rows(hard, ptr)[rows]
    # Clamped: a row without entries stays 0.
    hard = hard / total.clamp(min=torch.finfo(probs.dtype).tiny)
    # Its value is `hard`, its gradient that of `probs`.
    return hard + (probs - weights)


def budgeted_rows(
    scores: Float[Tensor, "E"],
    ptr: Int64[Tensor, "p"],
    budget: int | Int64[Tensor, "p-1"],
    rule: Rule = entmax15,
) -> Float[Tensor, "E"]:
    """Pi_B(rule(scores)) of every row, `project_budget` after `entmax_rows`; [E].

    Short rows are padded once for both.
    """
    sizes = ptr.diff()
    if not scores.numel() or not _are_short(sizes):
        return project_budget(entmax_rows(scores, ptr, rule), scores, ptr, budget)
    rows, inside = padded(scores, sizes, _floor(scores))
    return project_budget(rule(rows, inside), rows, None, budget)[inside]


def rows_at(table: Real[Tensor, "R d"], index: Int64[Tensor, "E"]) -> Real[Tensor, "E d"]:
    """Return `table[index]` where `index` lives, half precision as float32; [E, d].

    `table` may be memory-mapped: only the rows asked for are read. `index_select` copies whole
    rows, where `table[index]` copies entry by entry, which takes up to five times as long.
    """
    rows = table.index_select(0, index.to(table.device)).to(index.device)
    return rows.float() if rows.dtype == torch.float16 else rows


def products(
    queries: Float[Tensor, "m d"], ragged: Ragged, table: Float[Tensor, "R d"]
) -> Float[Tensor, "E"]:
    """Return <query_i, table[u]> of every entry u of every row i; [E]. No gradients.

    A dense product sampled at the entries: O(E d), without copies of queries or of vectors. From a
    table of another type or on another device each distinct entry is read once.

    Parameters
    ----------
    table : [R, d], of any float type
    """
    entry = ragged.index
    if table.dtype != queries.dtype or table.device != queries.device:
        distinct, entry = torch.unique(entry, return_inverse=True)
        table = rows_at(table, distinct).to(queries.dtype)
    places = csr(ragged.ptr, entry, queries.new_zeros(entry.numel()), (len(queries), len(table)))
    return torch.sparse.sampled_addmm(places, queries, table.T, beta=0).values()  # type: ignore[no-any-return]


def weighted_rows(
    weights: Float[Tensor, "E"], ragged: Ragged, table: Float[Tensor, "R d"]
) -> Float[Tensor, "m d"]:
    """Return the sum over each row's entries of weight * table[index]; [m, d]. No gradients.

    On the host, entries of weight zero are skipped.
    """
    # Why on the host alone (decision 31): how many they are is a number that it asks of a GPU, and
    # adding zeros changes nothing.
    if weights.device == HOST:
        ragged, weights = ragged.keep(weights != 0), weights[weights != 0]
    if table.dtype != weights.dtype or table.device != weights.device:
        vectors = rows_at(table, ragged.index).to(weights.dtype)
        return sums_of_rows(weights[:, None] * vectors, ragged.ptr)
    # One pass over memory; allocates nothing of size [E, d].
    return F.embedding_bag(
        ragged.index,
        table,
        ragged.ptr,
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )


def softmax_rows(scores: Float[Tensor, "E"], ptr: Int64[Tensor, "p"]) -> Float[Tensor, "E"]:
    """Return the softmax of every row; [E] -> [E], each row sums to 1."""
    rows, size = row_of_entry(ptr), ptr.numel() - 1
    # Minus the largest score of the row, so that exp cannot overflow.
    peak = scores.new_full((size,), float("-inf")).scatter_reduce_(0, rows, scores, "amax")
    weight = torch.exp(scores - peak[rows])
    return weight / sums_of_rows(weight, ptr)[rows]


def heaviest(rows: Ragged, weights: Float[Tensor, "E"], sizes: Int64[Tensor, "m"]) -> Ragged:
    """Return the `sizes` entries of each row with the largest weights, heaviest first.

    Ties keep their order.
    """
    place = rows.ptr[:-1][rows.rows()] + rank_in_row(weights, rows.ptr)
    index = torch.empty_like(rows.index)
    index[place] = rows.index
    return prefix(Ragged(rows.ptr, index), sizes)


def prefix(rows: Ragged, sizes: Int64[Tensor, "m"]) -> Ragged:
    """Return the first `sizes` entries of each row, or all if there are fewer."""
    column = torch.arange(rows.index.numel(), device=rows.ptr.device) - rows.ptr[:-1][rows.rows()]
    return rows.keep(column < sizes[rows.rows()])
