"""Faithfulness of evidence packs: predictions without their evidence, and with nothing else.

The pool of a node v is every chunk within two hops of v, from which its evidence comes. Chunks are
removed from the pool, or all others are, and the deployed predictor runs again
(`interventions.repredict`). Graph, edges and weights of the backbone stay; so do texts beyond two
hops unless a measure says otherwise. The predictor may then choose other evidence, so that a
redundant text makes the evidence look less necessary than it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import HOPS, chunks_of_neighbours
from dance_flwr.dance.inference import explain, predict
from dance_flwr.dance.interventions import repredict
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.packs import Packs
from dance_flwr.dance.passes import embed
from dance_flwr.data.site import Site
from dance_flwr.data.text.table import TextTable
from dance_flwr.nn.hops import HopLists
from dance_flwr.nn.ragged import (
    Ragged,
    concat_rows,
    heaviest,
    prefix,
    products,
    ptr_of_rows,
    rank_in_row,
    softmax_rows,
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
    def of(cls, hops: HopLists, table: TextTable, nodes: Tensor) -> "Pool":
        """Gather the pools of these nodes ([m] int64)."""
        around = (hops.zero(nodes), hops.one(nodes), hops.two(nodes))
        parts = [chunks_of_neighbours(ragged, table.chunks_of) for ragged in around]
        marks = [
            Ragged(part.ptr, torch.full_like(part.index, hop))
            for hop, part in zip(HOPS, parts, strict=True)
        ]
        return cls(concat_rows(parts), concat_rows(marks).index)

    def contains(self, chosen: Ragged) -> Tensor:
        """Whether each chunk of the pool is among the `chosen` ones of its row; [E] bool."""
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
    """Deployed class probabilities of m nodes under every intervention.

    Attributes
    ----------
    nodes : [m] local node numbers; packs : their evidence
    budgets : [S] ascending numbers of chunks k, the last one B_tok; capped at the number in the
        pack
    full : [m, C] nothing changed; bare : [m, C] empty pool; textless : [m, C] no text at all
    removed, kept : by source of the chunks, [draws, S, m, C] the pool without, or only with, its k
        heaviest chunks
    alone : by source, [draws, m, C] all its chunks, without any other text of the client
    pool_chunks, pool_tokens : [m] size of the pool
    gap : largest difference between `full` and re-prediction with the whole pool: the error of
        the copies
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
    """Intervene on texts by evidence and by every control, with equally many chunks each.

    Parameters
    ----------
    nodes : [m] int64
    draws : repetitions of the random controls
    generator : a CPU generator; the only source of randomness
    """
    packs = explain(model, site, nodes, settings, 0, "")
    pool = Pool.of(site.graph.hops(settings.fan_out), site.table, nodes)
    ranked = rankings(model, site, settings, nodes, pool, packs, draws, generator)
    budgets = curve_budgets(settings.chunk_budget)
    none = Ragged(torch.zeros_like(pool.chunks.ptr), pool.chunks.index[:0])

    def again(kept: Ragged, texts_elsewhere: bool = True) -> Tensor:
        return repredict(model, site, settings, nodes, kept, texts_elsewhere=texts_elsewhere)

    def each(rows: list[Ragged], remove: bool) -> Tensor:
        return torch.stack(
            [torch.stack([again(_change(pool, row, k, remove)) for k in budgets]) for row in rows]
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


def _change(pool: Pool, ranked: Ragged, most: int, remove: bool) -> Ragged:
    """Return each pool without, or only with, the `most` heaviest chunks of `ranked`."""
    inside = pool.contains(prefix(ranked, torch.full_like(ranked.ptr[1:], most)))
    return pool.chunks.keep(~inside if remove else inside)


def curve_budgets(most: int) -> tuple[int, ...]:
    """Return the powers of two below `most`, then `most`."""
    return (*(2**i for i in range((most - 1).bit_length())), most)


def rankings(
    model: DanceModel,
    site: Site,
    settings: DanceConfig,
    nodes: Tensor,
    pool: Pool,
    packs: Packs,
    draws: int,
    generator: torch.Generator,
) -> dict[str, list[Ragged]]:
    """Return m rows of chunks, heaviest first, by source; each as many as the node's pack has.

    "evidence" is the pack; "attention" the heaviest chunks of `dense_attention`; "random" are
    chunks of the pool, each equally likely; "random-by-hop" too, but as many of each hop as in the
    pack. The random ones are lists of `draws`.
    """
    chunks = Ragged(
        *(torch.as_tensor(part, device=site.device) for part in (packs.chunk_ptr, packs.chunks))
    )
    sizes, in_pack = chunks.ptr.diff(), pool.contains(chunks)
    per_hop = pool.chunks.rows() * len(HOPS) + pool.hop  # ascending, as pools run hop by hop
    ptr = ptr_of_rows(per_hop, nodes.numel() * len(HOPS))
    quota = torch.bincount(per_hop[in_pack], minlength=nodes.numel() * len(HOPS))
    ranked: dict[str, list[Ragged]] = {
        EVIDENCE: [chunks],
        "attention": [],
        "random-by-hop": [],
        "random": [],
    }
    ranked["attention"].append(
        heaviest(pool.chunks, dense_attention(model, site, settings, nodes, pool), sizes)
    )
    for _ in range(draws):
        chance = torch.rand(per_hop.numel(), generator=generator, dtype=torch.float64).to(
            site.device
        )
        ranked["random"].append(heaviest(pool.chunks, chance, sizes))
        within = rank_in_row(chance, ptr) < quota[per_hop]
        ranked["random-by-hop"].append(heaviest(pool.chunks, chance + within, sizes))
    return ranked


@torch.no_grad()
def dense_attention(
    model: DanceModel, site: Site, settings: DanceConfig, nodes: Tensor, pool: Pool
) -> Tensor:
    """Return dense attention weights of the chunks of the pool, [E].

    gamma_l softmax_u(<W_q g_v, W_k t_u> / sqrt(d)) softmax_(u,r)(<W_s g_v, e_{u,r}> / sqrt(d)):
    eq:neighbor_gating and eq:chunk_similarity with softmax instead of entmax and without budgets:
    the first softmax runs over all nodes of a hop, the second over all chunks of the pool.
    These are attention weights of the same trained scores, used as an explanation (see Jain and
    Wallace 2019 on how little such weights may explain).
    """
    table, hops = site.table, site.graph.hops(settings.fan_out)
    hidden = embed(model, site, site.graph, nodes)
    gamma = torch.softmax(model.hop_logits, dim=0)
    queries = model.neighbour_queries(hidden)
    of_chunk = []
    for hop, ragged in zip(HOPS, (hops.zero(nodes), hops.one(nodes), hops.two(nodes)), strict=True):
        score = products(queries, ragged, table.nodes)
        counts = table.chunks_of.ptr.diff()[ragged.index]
        weight = torch.repeat_interleave(gamma[hop] * softmax_rows(score, ragged.ptr), counts)
        of_chunk.append((torch.repeat_interleave(ragged.rows(), counts), weight))
    # Concatenated hop by hop, then sorted by row: the order of the pool.
    order = torch.sort(torch.cat([rows for rows, _ in of_chunk]), stable=True).indices
    neighbour = torch.cat([weight for _, weight in of_chunk])[order]
    chunk = products(model.chunk_queries(hidden), pool.chunks, table.chunks)
    return neighbour * softmax_rows(chunk, pool.chunks.ptr)


def drops(full: Tensor, changed: Tensor) -> Tensor:
    """Return p(y^ | full) - p(y^ | changed) with y^ = argmax full, mean over draws.

    [m, C], [draws, ..., m, C] -> [..., m]. Without the evidence this is comprehensiveness (large =
    the evidence was needed), with nothing but the evidence it is sufficiency (small = the evidence
    is enough). DeYoung et al. 2020, "ERASER", eqs. 1 and 2.
    """
    chosen = full.argmax(dim=1)
    after = changed.gather(-1, chosen[:, None].expand(*changed.shape[:-1], 1)).squeeze(-1)
    return (full.gather(1, chosen[:, None]).squeeze(1) - after).mean(0)


def flips(full: Tensor, changed: Tensor) -> Tensor:
    """Return the share of draws that change the predicted class.

    [m, C], [draws, ..., m, C] -> [..., m].
    """
    return (changed.argmax(dim=-1) != full.argmax(dim=1)).float().mean(0)


def aopc(start: Tensor, curve: Tensor) -> Tensor:
    """Return the mean of a curve over its steps, including the start; [m], [S, m] -> [m].

    The area over the perturbation curve as ERASER defines it (eq. 3), over k = 0 and the S budgets.
    """
    return torch.cat([start[None], curve]).mean(0)
