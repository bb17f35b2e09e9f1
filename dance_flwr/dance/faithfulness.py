"""Faithfulness of evidence packs: a prediction without its evidence, and with nothing but its
evidence.

The pool of a node v is every chunk within two hops of v, all that its evidence can come from.
Chunks are removed from the pool or kept alone in it, and the deployed predictor runs again
(`interventions.repredict`): graph, edges and weights of the backbone stay, texts beyond two hops
stay unless a measure says otherwise. The predictor may then choose other evidence, so a redundant
text makes the evidence look less necessary than it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.dance.algorithm import explain, plain_pass, predict
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import HOPS, chunks_of_neighbours
from dance_flwr.dance.interventions import repredict
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.packs import Packs
from dance_flwr.data.site import Site
from dance_flwr.data.text.table import TextTable
from dance_flwr.nn.hops import Hops
from dance_flwr.nn.ragged import (
    Ragged,
    bilinear_rows,
    concat_rows,
    ptr_of_rows,
    rank_in_row,
    row_of_entry,
)

EVIDENCE = "evidence"
CONTROLS = ("attention", "random-by-hop", "random")


@dataclass(frozen=True)
class Pool:
    """Every chunk within two hops of m nodes.

    Attributes
    ----------
    chunks : m rows of chunk numbers, those of hop 0 first, then hop 1, then hop 2
    hop : [E] int64, distance of each chunk's owner
    """

    chunks: Ragged
    hop: Tensor

    @classmethod
    def of(cls, hops: Hops, table: TextTable, nodes: Tensor) -> "Pool":
        """Gather the pools of these nodes ([m] int64)."""
        around = (hops.zero(nodes), hops.one(nodes), hops.two(nodes))
        parts = [chunks_of_neighbours(ragged, table.chunks_of) for ragged in around]
        marks = [
            Ragged(part.ptr, torch.full_like(part.index, hop))
            for hop, part in zip(HOPS, parts, strict=True)
        ]
        return cls(concat_rows(parts), concat_rows(marks).index)

    def holds(self, chosen: Ragged) -> Tensor:
        """Whether each chunk of the pool is among its row's `chosen` ones; [E] bool."""
        size = (
            int(torch.cat([self.chunks.index, chosen.index]).max()) + 1
            if self.chunks.index.numel()
            else 1
        )
        return torch.isin(
            self.chunks.rows() * size + self.chunks.index, chosen.rows() * size + chosen.index
        )


@dataclass(frozen=True)
class Outcomes:
    """Class probabilities of m nodes under every intervention, as the deployed predictor gives
    them.

    Attributes
    ----------
    nodes : [m] local node numbers; packs : their evidence
    budgets : [S] ascending numbers of chunks k, the last one B_tok; at most the pack's own number
        is taken
    full : [m, C] nothing changed; bare : [m, C] pool empty; textless : [m, C] no text at all
    removed, kept : by source of the chunks, [draws, S, m, C] without, or of the pool only, its k
        heaviest chunks
    alone : by source, [draws, m, C] all its chunks kept and every other text of the client taken
        out
    pool_chunks, pool_tokens : [m] size of the pool
    gap : largest difference between `full` and re-prediction with the whole pool kept; the copies'
        own error
    """

    nodes: NDArray[np.int64]
    packs: Packs
    budgets: tuple[int, ...]
    full: Tensor
    bare: Tensor
    textless: Tensor
    removed: Mapping[str, Tensor]
    kept: Mapping[str, Tensor]
    alone: Mapping[str, Tensor]
    pool_chunks: NDArray[np.int64]
    pool_tokens: NDArray[np.int64]
    gap: float


@torch.no_grad()
def outcomes(
    model: DanceModel,
    site: Site,
    settings: DanceConfig,
    nodes: Tensor,
    draws: int,
    generator: torch.Generator,
) -> Outcomes:
    """Intervene on the texts of `nodes` ([m] int64) by evidence and by every control, with equally
    many chunks each.

    Parameters
    ----------
    draws : repetitions of the random controls
    generator : a CPU generator; the only source of randomness
    """
    packs = explain(model, site, nodes, settings, 0, "")
    pool = Pool.of(site.graph.hops, site.table, nodes)
    ranked = rankings(model, site, nodes, pool, packs, draws, generator)
    budgets = curve_budgets(settings.chunk_budget)
    none = Ragged(torch.zeros_like(pool.chunks.ptr), pool.chunks.index[:0])

    def again(kept: Ragged, texts_elsewhere: bool = True) -> Tensor:
        return repredict(model, site, settings, nodes, kept, texts_elsewhere=texts_elsewhere)

    def each(rows: list[Ragged], remove: bool) -> Tensor:
        return torch.stack(
            [torch.stack([again(_left(pool, row, k, remove)) for k in budgets]) for row in rows]
        )

    full = predict(model, site, settings)["deployed"][nodes]
    tokens = torch.as_tensor(np.asarray(site.bank.tokens, np.int64), device=site.device)[
        pool.chunks.index
    ]
    return Outcomes(
        nodes=nodes.cpu().numpy(),
        packs=packs,
        budgets=budgets,
        full=full,
        bare=again(none),
        textless=again(none, texts_elsewhere=False),
        removed={name: each(rows, True) for name, rows in ranked.items()},
        kept={name: each(rows, False) for name, rows in ranked.items()},
        alone={
            name: torch.stack([again(row, texts_elsewhere=False) for row in rows])
            for name, rows in ranked.items()
        },
        pool_chunks=pool.chunks.ptr.diff().cpu().numpy(),
        pool_tokens=torch.zeros_like(nodes).index_add_(0, pool.chunks.rows(), tokens).cpu().numpy(),
        gap=float((again(pool.chunks) - full).abs().max()) if nodes.numel() else 0.0,
    )


def _left(pool: Pool, ranked: Ragged, most: int, remove: bool) -> Ragged:
    """Return what is left of each pool without, or with nothing but, the `most` heaviest chunks of
    `ranked`.
    """
    held = pool.holds(prefix(ranked, torch.full_like(ranked.ptr[1:], most)))
    return pool.chunks.keep(~held if remove else held)


def curve_budgets(most: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... below `most`, and `most`."""
    return (*(2**i for i in range((most - 1).bit_length())), most)


def rankings(
    model: DanceModel,
    site: Site,
    nodes: Tensor,
    pool: Pool,
    packs: Packs,
    draws: int,
    generator: torch.Generator,
) -> dict[str, list[Ragged]]:
    """Return m rows of chunks, heaviest first, by source; every source gives a node as many as its
    pack holds.

    "evidence" is the pack; "attention" the heaviest chunks of `dense_attention`; "random" are
    chunks of the pool, each equally likely; "random-by-hop" likewise, but as many of each hop as in
    the pack. Random ones are lists of `draws`.
    """
    chunks = Ragged(
        *(torch.as_tensor(part, device=site.device) for part in (packs.chunk_ptr, packs.chunks))
    )
    sizes, held = chunks.ptr.diff(), pool.holds(chunks)
    per_hop = pool.chunks.rows() * len(HOPS) + pool.hop  # ascending, as pools run hop by hop
    ptr = ptr_of_rows(per_hop, nodes.numel() * len(HOPS))
    quota = torch.bincount(per_hop[held], minlength=nodes.numel() * len(HOPS))
    found: dict[str, list[Ragged]] = {
        EVIDENCE: [chunks],
        "attention": [],
        "random-by-hop": [],
        "random": [],
    }
    found["attention"].append(
        heaviest(pool.chunks, dense_attention(model, site, nodes, pool), sizes)
    )
    for _ in range(draws):
        luck = torch.rand(per_hop.numel(), generator=generator, dtype=torch.float64).to(site.device)
        found["random"].append(heaviest(pool.chunks, luck, sizes))
        wanted = rank_in_row(luck, ptr) < quota[per_hop]
        found["random-by-hop"].append(heaviest(pool.chunks, luck + wanted, sizes))
    return found


@torch.no_grad()
def dense_attention(model: DanceModel, site: Site, nodes: Tensor, pool: Pool) -> Tensor:
    """gamma_l softmax_u(<W_q g_v, W_k t_u> / sqrt(d)) softmax_(u,r)(<W_s g_v, e_{u,r}> / sqrt(d));
    [E] over the pool.

    eq:neighbor_gating and eq:chunk_similarity with softmax instead of entmax and without budgets:
    the first softmax runs over all nodes of a hop, the second over all chunks of the pool.
    Attention weights as an explanation, of the same trained scores (Jain and Wallace 2019 on how
    little such weights need to explain).
    """
    table, hops = site.table, site.graph.hops
    hidden = plain_pass(model, site, site.graph).hidden[nodes]
    gamma = torch.softmax(model.hop_logits, dim=0)
    matrix = model.key.weight.T @ model.query.weight
    scale = sqrt(model.key.in_features)
    of_chunk = []
    for hop, ragged in zip(HOPS, (hops.zero(nodes), hops.one(nodes), hops.two(nodes)), strict=True):
        score = bilinear_rows(hidden, matrix, ragged, table.nodes) / scale
        counts = table.chunks_of.ptr.diff()[ragged.index]
        weight = torch.repeat_interleave(gamma[hop] * _softmax_rows(score, ragged.ptr), counts)
        of_chunk.append((torch.repeat_interleave(ragged.rows(), counts), weight))
    # Joined hop by hop, then by row: the order of the pool.
    order = torch.sort(torch.cat([rows for rows, _ in of_chunk]), stable=True).indices
    neighbour = torch.cat([weight for _, weight in of_chunk])[order]
    chunk = bilinear_rows(hidden, model.chunk_query.weight, pool.chunks, table.chunks) / sqrt(
        table.chunks.size(1)
    )
    return neighbour * _softmax_rows(chunk, pool.chunks.ptr)


def _softmax_rows(scores: Tensor, ptr: Tensor) -> Tensor:
    rows, size = row_of_entry(ptr), ptr.numel() - 1
    peak = scores.new_full((size,), float("-inf")).scatter_reduce_(0, rows, scores, "amax")
    weight = torch.exp(scores - peak[rows])
    return weight / scores.new_zeros(size).index_add_(0, rows, weight)[rows]


def heaviest(rows: Ragged, weights: Tensor, sizes: Tensor) -> Ragged:
    """Return the `sizes` ([m]) entries of each row with the largest weights ([E]), heaviest first,
    ties in order.
    """
    place = rows.ptr[:-1][rows.rows()] + rank_in_row(weights, rows.ptr)
    index = torch.empty_like(rows.index)
    index[place] = rows.index
    return prefix(Ragged(rows.ptr, index), sizes)


def prefix(rows: Ragged, sizes: Tensor) -> Ragged:
    """Return the first `sizes` ([m]) entries of each row, or all where there are fewer."""
    column = torch.arange(rows.index.numel(), device=rows.ptr.device) - rows.ptr[:-1][rows.rows()]
    return rows.keep(column < sizes[rows.rows()])


def drops(full: Tensor, changed: Tensor) -> Tensor:
    """p(y^ | full) - p(y^ | changed) with y^ = argmax full, mean over draws; [m, C], [draws, ...,
    m, C] -> [..., m].

    Without the evidence this is comprehensiveness (large = the evidence was needed), with nothing
    but the evidence sufficiency (small = the evidence is enough). DeYoung et al. 2020, "ERASER",
    eqs. 1 and 2.
    """
    chosen = full.argmax(dim=1)
    after = changed.gather(-1, chosen[:, None].expand(*changed.shape[:-1], 1)).squeeze(-1)
    return (full.gather(1, chosen[:, None]).squeeze(1) - after).mean(0)


def flips(full: Tensor, changed: Tensor) -> Tensor:
    """Share of the draws in which the predicted class changes; [m, C], [draws, ..., m, C] -> [...,
    m].
    """
    return (changed.argmax(dim=-1) != full.argmax(dim=1)).float().mean(0)


def aopc(start: Tensor, curve: Tensor) -> Tensor:
    """Mean of a curve over its steps, the start among them; [m], [S, m] -> [m].

    The area over the perturbation curve as ERASER defines it (eq. 3), over k = 0 and the S budgets.
    """
    return torch.cat([start[None], curve]).mean(0)
