"""Second half of Alg. 3 in training: weights of evidence as dense rows, with gradients."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.passes import Reader
from dance_flwr.dance.selection import Padded
from dance_flwr.dance.text import anchor, budgets, chunk_rule
from dance_flwr.nn.entmax import entmax15
from dance_flwr.nn.moving import moved
from dance_flwr.nn.ragged import Rule, project_budget, rows_at

_MAX_KEPT = 8192  # entries of the widest part in a layout that is kept, of at most 1 MB
CHUNKS = 3  # number of the part after hops 0, 1 and 2


@dataclass(frozen=True)
class Layout:
    """Two arrangements of the candidates of K nodes, in parts: hops 0, 1 and 2, and chunks.

    Side by side, L columns a node, they are scored and summed in one product each; apart, 4 K rows
    as wide as the widest part, all weights come from one call of entmax.

    Attributes
    ----------
    widths : columns of each part; they sum to L
    inside : [K, L] bool, False where padded
    outside : [4 K, W] bool, True where padded
    apart : [4 K * W] int64, place in flat [K, 2, L] scores, of neighbours and of chunks
    beside : [K * L] int64, place in flat [4 K, W] weights
    back : [4 K * W] int64, place in flat [K, L] weights
    read : [2, L] bool, whether a column reads the scores of neighbours, and of chunks
    filled : [4, 1, W] bool, which columns of a part there are
    """

    widths: tuple[int, ...]
    inside: Bool[Tensor, "K L"]
    outside: Bool[Tensor, "K4 W"]
    apart: Int64[Tensor, "K4W"]
    beside: Int64[Tensor, "KL"]
    back: Int64[Tensor, "K4W"]
    read: Bool[Tensor, "2 L"]
    filled: Bool[Tensor, "4 1 W"]

    @classmethod
    def of(cls, inside: Bool[Tensor, "K L"], widths: tuple[int, ...]) -> "Layout":
        """Lay out parts of these widths, which are filled where the mask is True."""
        count, widest = len(inside), max(widths)
        # Everything but the masks follows from the sizes, which hardly change.
        of_size = _kept_layout if count * widest <= _MAX_KEPT else _empty_layout
        empty = of_size(count, widths, inside.device)
        there = inside.flatten()[empty.back].view(len(widths), count, widest) & empty.filled
        return replace(empty, inside=inside, outside=~there.flatten(0, 1))

    def weights(
        self, scores: Float[Tensor, "K 2 L"], limits: Sequence[int], rule: Rule
    ) -> Float[Tensor, "K L"]:
        """Pi_B(entmax(scores)) of every part, which sums to 1 in each row, or is 0 if empty.

        A straight-through estimator where a row has more than B entries, see `project_budget`.

        Parameters
        ----------
        limits : B of every part; rule : takes the place of entmax for chunks
        """
        # entmax has no maximum over no columns.
        if not self.inside.numel():
            return scores[:, 0]
        # A finite floor: entmax would turn a row of -inf (an empty row) into NaN.
        floor = torch.finfo(scores.dtype).min / 4
        rows: Tensor = _Reorder.apply(scores, self.apart, self.beside, self.read)  # type: ignore[no-untyped-call]
        rows = rows.view_as(self.outside)
        rows = rows.masked_fill(self.outside, floor)
        if rule is entmax15:
            probs = entmax15(rows)
        else:
            first = CHUNKS * len(self.inside)
            of_chunks = rule(rows[first:], ~self.outside[first:])
            probs = torch.cat([entmax15(rows[:first]), of_chunks])
        # Pi_B changes nothing in rows within their budgets, which training reads by default.
        if any(width > limit for width, limit in zip(self.widths, limits, strict=True)):
            budget = torch.tensor(limits, device=rows.device)
            budget = budget.repeat_interleave(len(rows) // len(limits))
            probs = project_budget(probs, rows, None, budget)
        # An empty row is all padding, where entmax is uniform and other rules may be NaN.
        parts = probs.view(len(self.filled), -1, probs.size(1))
        beside: Tensor = _Reorder.apply(parts, self.beside, self.back, self.filled)  # type: ignore[no-untyped-call]
        return beside.view_as(self.inside).where(self.inside, 0)


def _empty_layout(count: int, widths: tuple[int, ...], device: torch.device) -> Layout:
    nodes, columns = torch.arange(count), torch.arange(max(widths))
    filled = columns < torch.tensor(widths)[:, None]
    part, column = torch.nonzero(filled).T
    beside = (part * len(nodes) + nodes[:, None]) * len(columns) + column
    place = torch.zeros_like(filled, dtype=torch.int64)
    place[filled] = torch.arange(len(part))
    # A node has two rows of scores, of its neighbour query and of its chunk query; chunks take
    # the second.
    source = place.clone()
    source[CHUNKS] += len(part) * filled[CHUNKS]
    apart = source[:, None] + 2 * len(part) * nodes[:, None]
    back = place[:, None] + len(part) * nodes[:, None]
    read = torch.stack([part != CHUNKS, part == CHUNKS])
    inside = filled.new_zeros(len(nodes), len(part))
    outside = filled.new_ones(len(widths) * len(nodes), len(columns))
    places = apart.flatten(), beside.flatten(), back.flatten()
    empty = Layout(widths, inside, outside, *places, read, filled[:, None])
    return moved(empty, device)


_kept_layout = lru_cache(maxsize=16)(_empty_layout)


@lru_cache(maxsize=16)
def _shares(
    widths: tuple[int, ...], mix: float, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "L2 1"], Float[Tensor, "L2 3"]]:
    """Return s and S: s + S gamma is the share of each column in `fused_text`, then in `text`.

    A neighbour at hop l has (1 - mix) gamma_l and 0, a chunk mix and 1.
    """
    hot = torch.eye(CHUNKS + 1, dtype=dtype).repeat_interleave(torch.tensor(widths), dim=0)
    hops, chunks = hot[:, :CHUNKS], hot[:, CHUNKS:]
    shares = torch.cat([mix * chunks, chunks]), torch.cat([(1 - mix) * hops, 0 * hops])
    return moved(shares, device)


class _Reorder(torch.autograd.Function):
    """Entries of a tensor in another order, each at most once where `keep` is True.

    The gradient of `index_select` adds up in an order that is not fixed on CUDA, and slowly
    elsewhere; here it is read from one place.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Tensor, back: Tensor, keep: Tensor) -> Tensor:
        # `back` has the place of each entry in the result.
        ctx.save_for_backward(back, keep)
        ctx.shape = values.shape
        return values.flatten().index_select(0, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        back, keep = ctx.saved_tensors
        one = grad.index_select(0, back)
        # Scores are read by one of two queries: both rows have the gradient of their column.
        one = one.view(-1, 1, keep.size(-1)) if keep.dim() == 2 else one.view(ctx.shape)
        return one * keep, None, None, None


@dataclass(frozen=True)
class DenseSelection:
    """The selection that a round trains on, of the K nodes of its core, as dense rows.

    The columns are the node, candidates of hop 1, then of hop 2, then candidate chunks.

    Attributes
    ----------
    texts : [K, d] t_v
    anchors : [K, 2, d] what is added to the queries: t_v for neighbours, c_v as it was selected for
        chunks, both as `text.anchor`
    vectors : [K, L, d] texts, gathered once a round: training does not change them
    layout : of the columns
    shares : as `_shares`
    labels : [K, L12, 2 C] one-hot training labels of hops 1 and 2, in the first C columns at hop 1,
        in the others at hop 2
    """

    texts: Float[Tensor, "K d"]
    anchors: Float[Tensor, "K 2 d"]
    vectors: Float[Tensor, "K L d"]
    layout: Layout
    shares: tuple[Float[Tensor, "L2 1"], Float[Tensor, "L2 3"]]
    labels: Float[Tensor, "K L12 C2"]

    @classmethod
    def of(cls, reader: Reader, evidence: Padded) -> "DenseSelection":
        """Gather the texts of candidates, on their device."""
        table, settings, context = reader.data.table, reader.settings, evidence.context
        first, split, *_ = evidence.widths
        near, chunks = evidence.index.tensor_split([sum(evidence.widths[:CHUNKS])], dim=1)
        # Hop 0 is left out of the labels: that of the node itself is never read (decision 7).
        hot = _rows_of(reader.data.label_table, near[:, first:])  # padding has no weight
        classes = hot.size(2)
        labels = F.pad(hot[:, :split], (0, classes)), F.pad(hot[:, split:], (classes, 0))
        vectors = [_rows_of(table.nodes, near), _rows_of(table.chunks, chunks)]
        texts = rows_at(table.nodes, evidence.nodes)
        towards = torch.stack([texts, context], dim=1)
        return cls(
            texts=texts,
            anchors=anchor(towards.flatten(0, 1), settings).view_as(towards),
            vectors=torch.cat(vectors, dim=1),
            layout=Layout.of(evidence.inside, evidence.widths),
            shares=_shares(evidence.widths, settings.mix, context.dtype, context.device),
            labels=torch.cat(labels, dim=1),
        )


def _rows_of(table: Tensor, index: Int64[Tensor, "K L"]) -> Float[Tensor, "K L d"]:
    return rows_at(table, index.flatten()).view(*index.shape, table.size(1))


def weigh(
    reader: Reader, hidden: Float[Tensor, "K h"], dense: DenseSelection
) -> tuple[Float[Tensor, "K 2 d"], Float[Tensor, "K C2"]]:
    """Gates, c_v (eq:hier_context), chunk weights and t~_v (eq:agg_text) over fixed candidates.

    The dense counterpart of `text.condense_text`, with gradients: scores and sums are batched
    products.

    Parameters
    ----------
    hidden : [K, h] g_v

    Returns
    -------
    texts : [K, 2, d] mix * t~_v + (1 - mix) * c_v, and t~_v
    labels : [K, 2 C] label evidence, [y_1 || y_2]
    """
    model, settings, layout = reader.model, reader.settings, dense.layout
    if settings.text_rule == "own":
        return dense.texts[:, None].expand(-1, 2, -1), dense.labels.sum(1)
    # Why fixed candidates and anchors (decision 19): between refreshes only weights follow the
    # model.
    queries = model.queries(hidden) + dense.anchors
    scores = torch.bmm(queries, dense.vectors.mT)
    limits = *budgets(settings), settings.chunk_budget
    weights = layout.weights(scores, limits, chunk_rule(settings))[:, None]
    near = weights[..., layout.widths[0] : sum(layout.widths[:CHUNKS])]
    labels = torch.bmm(near, dense.labels).squeeze(1)
    # eq:hier_context and eq:agg_text in one product: both sum over the same columns.
    gamma = torch.softmax(model.hop_logits, dim=0)
    mixed = weights * torch.addmm(*dense.shares, gamma[:, None]).view(2, -1)
    return torch.bmm(mixed, dense.vectors), labels
