"""Second half of Alg. 3 in training: weights of evidence as dense rows, with gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from entmax import entmax15
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Chosen, anchor, budgets, freeze
from dance_flwr.dance.model import DanceModel
from dance_flwr.nn.ragged import Ragged, rows_at

CHUNKS = 3  # number of the part after hops 0, 1 and 2


def padded(rows: Ragged) -> tuple[Int64[Tensor, "K L"], Bool[Tensor, "K L"]]:
    """Return the rows padded to the longest with 0, and where they are filled."""
    sizes = rows.ptr.diff()
    width = int(sizes.max()) if sizes.numel() else 0
    inside = torch.arange(width, device=sizes.device) < sizes[:, None]
    return sizes.new_zeros(inside.shape).masked_scatter(inside, rows.index), inside


@dataclass(frozen=True)
class Layout:
    """Two arrangements of the candidates of K nodes, in parts: hops 0, 1 and 2, and chunks.

    Side by side, L columns a node, they are scored and summed in one product each; apart, 4 K rows
    as wide as the widest part, all weights come from one call of entmax.

    Attributes
    ----------
    widths : columns of each part; they sum to L
    inside : [K, L] bool, False where padded
    part : [L] int64, part of each column
    outside : [4 K, W] bool, True where padded
    apart : [4 K * W] int64, place in flat [K, 2, L] scores, of neighbours and of chunks
    beside : [K * L] int64, place in flat [4 K, W] weights
    """

    widths: tuple[int, ...]
    inside: Bool[Tensor, "K L"]
    part: Int64[Tensor, "L"]
    outside: Bool[Tensor, "K4 W"]
    apart: Int64[Tensor, "K4W"]
    beside: Int64[Tensor, "KL"]

    @classmethod
    def of(cls, parts: Sequence[Bool[Tensor, "K _"]]) -> "Layout":
        """Lay out the parts, which are filled where these masks are True."""
        nodes = torch.arange(parts[0].size(0), device=parts[0].device)
        widths = tuple(mask.size(1) for mask in parts)
        columns = torch.arange(max(widths), device=nodes.device)
        there = columns < torch.tensor(widths, device=nodes.device)[:, None]
        part, column = torch.nonzero(there).T
        beside = (part * len(nodes) + nodes[:, None]) * len(columns) + column
        place = torch.zeros_like(there, dtype=torch.int64)
        place[there] = torch.arange(len(part), device=nodes.device) + len(part) * (part == CHUNKS)
        apart = place[:, None] + 2 * len(part) * nodes[:, None]
        inside = torch.cat(list(parts), dim=1)
        outside = there.new_ones(len(parts) * len(nodes), len(columns))
        outside.view(-1)[beside[inside]] = False
        return cls(widths, inside, part, outside, apart.flatten(), beside.flatten())

    def shares(
        self, mix: float, dtype: torch.dtype
    ) -> tuple[Float[Tensor, "L2 1"], Float[Tensor, "L2 3"]]:
        """Return s and S: s + S gamma is the share of each column in `fused_text`, then in `text`.

        A neighbour at hop l has (1 - mix) gamma_l and 0, a chunk mix and 1.
        """
        hot = functional.one_hot(self.part, CHUNKS + 1).to(dtype)
        chunks = hot[:, CHUNKS:]
        hops = torch.cat([(1 - mix) * hot[:, :CHUNKS], torch.zeros_like(hot[:, :CHUNKS])])
        return torch.cat([mix * chunks, chunks]), hops

    def weights(self, scores: Float[Tensor, "K 2 L"], most: Sequence[int]) -> Float[Tensor, "K L"]:
        """Pi_B(entmax(scores)) of every part, which sums to 1 in each row, or is 0 if empty.

        A straight-through estimator where a row has more than B entries (see
        `ragged.project_budget`); otherwise Pi_B changes nothing.

        Parameters
        ----------
        most : B of every part
        """
        if not self.inside.numel():
            return scores[:, 0]
        # A finite floor: entmax would turn a row of -inf (an empty row) into NaN.
        floor = torch.finfo(scores.dtype).min / 4
        rows = scores.flatten().index_select(0, self.apart).view_as(self.outside)
        rows = rows.masked_fill(self.outside, floor)
        found = entmax15(rows, dim=1)
        if any(width > budget for width, budget in zip(self.widths, most, strict=True)):
            found = _within_budgets(found, rows, most)
        return found.flatten().index_select(0, self.beside).view_as(self.inside) * self.inside  # type: ignore[no-any-return]


def _within_budgets(
    probs: Float[Tensor, "K4 W"], scores: Float[Tensor, "K4 W"], most: Sequence[int]
) -> Float[Tensor, "K4 W"]:
    given = probs.detach()
    # Entries of probability 0, padded ones among them, may be ranked anywhere behind the others.
    ranked = scores.detach().masked_fill(given == 0, float("-inf"))
    best = torch.sort(ranked, dim=1, descending=True, stable=True).indices
    budget = torch.tensor(most, device=given.device).repeat_interleave(len(given) // len(most))
    first = torch.arange(given.size(1), device=given.device) < budget[:, None]
    hard = given * torch.zeros_like(first).scatter_(1, best, first)
    hard = hard / hard.sum(1, keepdim=True).clamp(min=torch.finfo(hard.dtype).tiny)
    return hard + (probs - given)


@dataclass(frozen=True)
class TrainedEvidence:
    """What the K nodes of a core are trained on in a round, as dense rows.

    The columns are the node, candidates of hop 1, then of hop 2, then candidate chunks.

    Attributes
    ----------
    own : [K, d] t_v
    anchors : [K, 2, d] what is added to the queries: t_v for neighbours, c_v as it was selected for
        chunks, both as `evidence.anchor`
    vectors : [K, L, d] texts, gathered once a round: training does not change them
    layout : of the columns
    shares : as `Layout.shares`
    labels : [K, L12, 2 C] one-hot training labels of hops 1 and 2, in the first C places at hop 1,
        in the others at hop 2
    """

    own: Float[Tensor, "K d"]
    anchors: Float[Tensor, "K 2 d"]
    vectors: Float[Tensor, "K L d"]
    layout: Layout
    shares: tuple[Float[Tensor, "L2 1"], Float[Tensor, "L2 3"]]
    labels: Float[Tensor, "K L12 C2"]

    @classmethod
    def of(
        cls,
        candidates: Candidates,
        evidence: Chosen,
        table: TextTable,
        label_table: Float[Tensor, "n C"],
        config: DanceConfig,
    ) -> "TrainedEvidence":
        """Gather the texts of the selected evidence, or of all candidates, as the rule says."""
        if config.trained_evidence == "selected":
            candidates = freeze(candidates, evidence)
        parts = [padded(rows) for rows in (*candidates.hops, candidates.chunks)]
        near = torch.cat([index for index, _ in parts[:CHUNKS]], dim=1)
        first, split = parts[0][0].size(1), parts[1][0].size(1)
        hot = _texts(label_table, near[:, first:])  # a padded place has no weight
        labels = hot.new_zeros(*hot.shape[:2], 2, hot.size(2))
        labels[:, :split, 0], labels[:, split:, 1] = hot[:, :split], hot[:, split:]
        texts = [_texts(table.nodes, near), _texts(table.chunks, parts[CHUNKS][0])]
        own = rows_at(table.nodes, candidates.nodes)
        anchors = [anchor(towards, config) for towards in (own, evidence.context)]
        layout = Layout.of([mask for _, mask in parts])
        vectors, shares = torch.cat(texts, dim=1), layout.shares(config.mix, own.dtype)
        return cls(own, torch.stack(anchors, dim=1), vectors, layout, shares, labels.flatten(2))


def _texts(table: Tensor, index: Int64[Tensor, "K L"]) -> Float[Tensor, "K L d"]:
    return rows_at(table, index.flatten()).view(*index.shape, table.size(1))


@dataclass(frozen=True)
class Weighed:
    """Weighted texts of K nodes, with gradients.

    Attributes
    ----------
    texts : [K, 2, d] `fused_text` and `text`
    labels : [K, 2 C] label evidence, [y_1 || y_2]
    """

    texts: Float[Tensor, "K 2 d"]
    labels: Float[Tensor, "K C2"]

    @property
    def fused_text(self) -> Float[Tensor, "K d"]:
        """[K, d] mix * t~_v + (1 - mix) * c_v."""
        return self.texts[:, 0]

    @property
    def text(self) -> Float[Tensor, "K d"]:
        """[K, d] t~_v (eq:agg_text)."""
        return self.texts[:, 1]


def weigh(
    model: DanceModel, hidden: Float[Tensor, "K h"], given: TrainedEvidence, config: DanceConfig
) -> Weighed:
    """Gates, c_v (eq:hier_context), chunk weights and t~_v (eq:agg_text) over fixed candidates.

    The dense counterpart of `evidence.condense_text`, without a loop over nodes and without copies
    of queries: scores and sums are batched products.

    Parameters
    ----------
    hidden : [K, h] g_v
    """
    if config.text_rule == "own":
        return Weighed(given.own[:, None].expand(-1, 2, -1), given.labels.sum(1))
    layout, queries = given.layout, model.queries(hidden) + given.anchors
    scores = torch.bmm(queries, given.vectors.mT)
    weights = layout.weights(scores, (*budgets(config), config.chunk_budget))[:, None]
    near = weights[..., layout.widths[0] : sum(layout.widths[:CHUNKS])]
    labels = torch.bmm(near, given.labels).squeeze(1)
    gamma = torch.softmax(model.hop_logits, dim=0)
    mixed = weights * torch.addmm(*given.shares, gamma[:, None]).view(2, -1)
    return Weighed(torch.bmm(mixed, given.vectors), labels)
