"""Second half of Alg. 3 in training: weights of evidence as dense rows, with gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from entmax import entmax15
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Evidence, anchored, budgets, freeze
from dance_flwr.dance.model import DanceModel
from dance_flwr.data.text.table import TextTable
from dance_flwr.nn.ragged import Ragged, rows_at


def padded(rows: Ragged) -> tuple[Int64[Tensor, "K L"], Bool[Tensor, "K L"]]:
    """Return the rows padded to the longest with 0, and where they are filled."""
    sizes = rows.ptr.diff()
    width = int(sizes.max()) if sizes.numel() else 0
    inside = torch.arange(width, device=sizes.device) < sizes[:, None]
    return sizes.new_zeros(inside.shape).masked_scatter(inside, rows.index), inside


def gates(
    parts: Sequence[tuple[Float[Tensor, "K _"], Bool[Tensor, "K _"], int]],
) -> list[Float[Tensor, "K _"]]:
    """Pi_B(entmax(scores)) of every part (scores, inside, B); rows sum to 1, or are 0 if empty.

    All parts in one call of entmax. A straight-through estimator where a row has more than B
    entries (see `ragged.project_budget`); otherwise Pi_B changes nothing.
    """
    widths = [inside.size(1) for _, inside, _ in parts]
    if not max(widths):
        return [scores for scores, _, _ in parts]
    # A finite floor: entmax would turn a row of -inf (an empty row) into NaN.
    floor = torch.finfo(parts[0][0].dtype).min / 4
    stacked = torch.cat(
        [
            F.pad(scores.masked_fill(~inside, floor), (0, max(widths) - width), value=floor)
            for (scores, inside, _), width in zip(parts, widths, strict=True)
        ]
    )
    found = entmax15(stacked, dim=1).chunk(len(parts))
    return [
        _within_budget(probs[:, :width] * inside, scores, budget)
        for probs, width, (scores, inside, budget) in zip(found, widths, parts, strict=True)
    ]


def _within_budget(probs: Tensor, scores: Tensor, budget: int) -> Tensor:
    if probs.size(1) <= budget:
        return probs
    # Padded entries have probability 0, so that they may be ranked anywhere.
    best = torch.sort(
        scores.detach().masked_fill(probs.detach() == 0, float("-inf")),
        dim=1,
        descending=True,
        stable=True,
    ).indices
    keep = torch.zeros_like(probs, dtype=torch.bool).scatter_(1, best[:, :budget], True)
    hard = probs.detach() * keep
    hard = hard / hard.sum(1, keepdim=True).clamp(min=torch.finfo(hard.dtype).tiny)
    return hard + (probs - probs.detach())


@dataclass(frozen=True)
class TrainedEvidence:
    """What the K nodes of a core are trained on in a round, as dense rows.

    The columns are candidates of hop 1, then of hop 2, then candidate chunks.

    Attributes
    ----------
    own : [K, d] t_v, the anchor of the neighbour queries
    context : [K, d] c_v as it was selected, the anchor of the chunk queries
    vectors : [K, L, d] texts, gathered once a round: training does not change them
    inside : [K, L] bool, False where padded
    widths : columns of hop 1, of hop 2 and of chunks; they sum to L
    labels : [K, L12, 2 C] one-hot training labels of hops 1 and 2, in the first C places at hop 1,
        in the others at hop 2
    """

    own: Float[Tensor, "K d"]
    context: Float[Tensor, "K d"]
    vectors: Float[Tensor, "K L d"]
    inside: Bool[Tensor, "K L"]
    widths: tuple[int, int, int]
    labels: Float[Tensor, "K L12 C2"]

    @classmethod
    def of(
        cls,
        candidates: Candidates,
        evidence: Evidence,
        table: TextTable,
        label_table: Float[Tensor, "n C"],
        config: DanceConfig,
    ) -> "TrainedEvidence":
        """Gather the texts of the selected evidence, or of all candidates, as the rule says."""
        if config.trained_evidence == "selected":
            candidates = freeze(candidates, evidence)
        parts = [padded(rows) for rows in (*candidates.hops[1:], candidates.chunks)]
        one, two, chunks = (index for index, _ in parts)
        near, inside = torch.cat([one, two], dim=1), torch.cat([mask for _, mask in parts], dim=1)
        hot = label_table[near] * inside[:, : near.size(1), None]
        none = torch.zeros_like(hot)
        at_one = torch.arange(near.size(1), device=near.device)[:, None] < one.size(1)
        labels = torch.cat([torch.where(at_one, hot, none), torch.where(at_one, none, hot)], dim=2)
        vectors = torch.cat([_texts(table.nodes, near), _texts(table.chunks, chunks)], dim=1)
        widths = one.size(1), two.size(1), chunks.size(1)
        own = rows_at(table.nodes, candidates.nodes)
        return cls(own, evidence.context, vectors, inside, widths, labels)


def _texts(table: Tensor, index: Int64[Tensor, "K L"]) -> Float[Tensor, "K L d"]:
    return rows_at(table, index.flatten()).view(*index.shape, table.size(1))


@dataclass(frozen=True)
class Weighed:
    """Weighted texts of K nodes, with gradients.

    Attributes
    ----------
    text : [K, d] t~_v (eq:agg_text)
    fused_text : [K, d] mix * t~_v + (1 - mix) * c_v
    labels : [K, 2 C] label evidence, [y_1 || y_2]
    """

    text: Float[Tensor, "K d"]
    fused_text: Float[Tensor, "K d"]
    labels: Float[Tensor, "K C2"]


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
        return Weighed(given.own, given.own, given.labels.sum(1))
    near_queries = anchored(model.neighbour_queries(hidden), given.own, config)
    chunk_queries = anchored(model.chunk_queries(hidden), given.context, config)
    scores = torch.bmm(given.vectors, torch.stack([near_queries, chunk_queries], dim=2))
    near = given.widths[0] + given.widths[1]
    asked = torch.cat([scores[:, :near, 0], scores[:, near:, 1]], dim=1)
    parts = zip(
        *(torch.split(part, list(given.widths), dim=1) for part in (asked, given.inside)),
        (*budgets(config)[1:], config.chunk_budget),
        strict=True,
    )
    one, two, weights = gates(list(parts))
    gamma = torch.softmax(model.hop_logits, dim=0)
    shares = torch.cat([gamma[1] * one, gamma[2] * two], dim=1)
    columns = [F.pad(shares, (0, given.widths[2])), F.pad(weights, (near, 0))]
    around, text = torch.bmm(torch.stack(columns, dim=1), given.vectors).unbind(1)
    context = gamma[0] * given.own + around
    labels = torch.bmm(torch.cat([one, two], dim=1)[:, None], given.labels).squeeze(1)
    return Weighed(text, config.mix * text + (1 - config.mix) * context, labels)
