"""Faithfulness of evidence packs: predictions without their evidence, and with nothing else.

The pool of a node v is every chunk within two hops of v, from which its evidence comes. Chunks are
removed from the pool, or all others are, and the deployed predictor runs again
(`interventions.repredict`). Graph, edges and weights of the backbone stay; so do texts beyond two
hops unless a measure says otherwise. The predictor may then choose other evidence, so that a
redundant text makes the evidence look less necessary than it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import predict
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.passes import DanceClient, Reader, embed
from dance_flwr.dance.selection import HOPS
from dance_flwr.dance.text import anchored, chunks_of_neighbours
from dance_flwr.evidence.explain import explain
from dance_flwr.evidence.metrics.interventions import repredict
from dance_flwr.evidence.pack import Packs
from dance_flwr.nn.hops import HopLists
from dance_flwr.nn.ragged import (
    Ragged,
    concat_rows,
    heaviest,
    prefix,
    products,
    ptr_of_rows,
    rank_in_row,
    rows_at,
    softmax_rows,
    weighted_rows,
)

EVIDENCE = "evidence"
CONTROLS = ("attention-by-hop", "attention", "random-by-hop", "random")


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


# (nodes [m], their pools) -> weights in [0, 1] of the chunks of the pools, [E].
Weigh = Callable[[Tensor, Pool], Tensor]


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
    tokens, owners : by source, [m] float64 tokens of its chunks, and number of nodes they are of;
        means over draws
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
    tokens: Mapping[str, NDArray[np.float64]]
    owners: Mapping[str, NDArray[np.float64]]
    gap: float


@torch.no_grad()
def outcomes(
    model: DanceModel,
    data: ClientData,
    settings: DanceConfig,
    nodes: Tensor,
    draws: int,
    generator: torch.Generator,
    others: Mapping[str, Weigh] | None = None,
) -> Outcomes:
    """Intervene on texts by evidence and by every control, with equally many chunks each.

    Parameters
    ----------
    nodes : [m] int64
    draws : repetitions of the random controls
    generator : a CPU generator; the only source of randomness here
    others : further sources by name
    """
    packs = explain(model, data, nodes, settings, 0, "")
    pool = Pool.of(data.graph.hops(settings.fan_out), data.table, nodes)
    ranked = rankings(model, data, settings, nodes, pool, packs, draws, generator, others)
    budgets = curve_budgets(settings.chunk_budget)
    none = Ragged(torch.zeros_like(pool.chunks.ptr), pool.chunks.index[:0])

    def again(kept: Ragged, texts_elsewhere: bool = True) -> Tensor:
        return repredict(model, data, settings, nodes, kept, texts_elsewhere=texts_elsewhere)

    def each(rows: list[Ragged], remove: bool) -> Tensor:
        return torch.stack(
            [torch.stack([again(_change(pool, row, k, remove)) for k in budgets]) for row in rows]
        )

    full = predict(Reader(model, data, settings, data.graph))["deployed"][nodes]
    tokens = torch.as_tensor(np.asarray(data.bank.tokens, np.int64), device=data.device)
    read = {name: [_read(data.table, tokens, row) for row in rows] for name, rows in ranked.items()}
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
        pool_tokens=_read(data.table, tokens, pool.chunks)[0].cpu().numpy(),
        tokens={name: _mean([found[0] for found in draws]) for name, draws in read.items()},
        owners={name: _mean([found[1] for found in draws]) for name, draws in read.items()},
        gap=float((again(pool.chunks) - full).abs().max()) if nodes.numel() else 0.0,
    )


def _read(table: TextTable, tokens: Tensor, chunks: Ragged) -> tuple[Tensor, Tensor]:
    """Return [m] tokens of the chunks of each row, and [m] number of nodes that they belong to."""
    rows, empty = chunks.rows(), torch.zeros_like(chunks.ptr[1:])
    size = table.chunks_of.ptr.numel()
    owners = torch.unique(rows * size + table.node_of_chunk[chunks.index]) // size
    total = empty.index_add(0, rows, tokens[chunks.index])
    return total, torch.bincount(owners, minlength=empty.numel())


def _mean(draws: list[Tensor]) -> NDArray[np.float64]:
    return torch.stack(draws).double().mean(0).cpu().numpy()


def _change(pool: Pool, ranked: Ragged, most: int, remove: bool) -> Ragged:
    """Return each pool without, or only with, the `most` heaviest chunks of `ranked`."""
    inside = pool.contains(prefix(ranked, torch.full_like(ranked.ptr[1:], most)))
    return pool.chunks.keep(~inside if remove else inside)


def curve_budgets(most: int) -> tuple[int, ...]:
    """Return the powers of two below `most`, then `most`."""
    return (*(2**i for i in range((most - 1).bit_length())), most)


def rankings(
    model: DanceModel,
    data: ClientData,
    settings: DanceConfig,
    nodes: Tensor,
    pool: Pool,
    packs: Packs,
    draws: int,
    generator: torch.Generator,
    others: Mapping[str, Weigh] | None = None,
) -> dict[str, list[Ragged]]:
    """Return m rows of chunks, heaviest first, by source; each as many as the node's pack has.

    "evidence" is the pack; "attention" the heaviest chunks of `dense_attention`; "random" are
    chunks of the pool, each equally likely; `others` are the heaviest by their own weights.
    "-by-hop" takes as many of each hop as are in the pack. The random ones are lists of `draws`.
    """
    chunks = Ragged(
        *(torch.as_tensor(part, device=data.device) for part in (packs.chunk_ptr, packs.chunks))
    )
    sizes, in_pack = chunks.ptr.diff(), pool.contains(chunks)
    per_hop = pool.chunks.rows() * len(HOPS) + pool.hop  # ascending, as pools run hop by hop
    ptr = ptr_of_rows(per_hop, nodes.numel() * len(HOPS))
    quota = torch.bincount(per_hop[in_pack], minlength=nodes.numel() * len(HOPS))
    ranked: dict[str, list[Ragged]] = {EVIDENCE: [chunks]} | {name: [] for name in CONTROLS}
    ranked |= {f"{name}{ending}": [] for name in others or {} for ending in ("-by-hop", "")}

    def add(name: str, weights: Tensor) -> None:
        """Add the heaviest chunks by weights in [0, 1], of any hop and by hop."""
        ranked[name].append(heaviest(pool.chunks, weights, sizes))
        within = rank_in_row(weights, ptr) < quota[per_hop]
        ranked[f"{name}-by-hop"].append(heaviest(pool.chunks, weights + 2 * within, sizes))

    add("attention", dense_attention(model, data, settings, nodes, pool).double())
    for name, weigh in (others or {}).items():
        add(name, weigh(nodes, pool).double())
    for _ in range(draws):
        chance = torch.rand(per_hop.numel(), generator=generator, dtype=torch.float64)
        add("random", chance.to(data.device))
    return ranked


@torch.no_grad()
def dense_attention(
    model: DanceModel, data: ClientData, settings: DanceConfig, nodes: Tensor, pool: Pool
) -> Tensor:
    """Return dense attention weights of the chunks of the pool, [E].

    gamma_l softmax_u(<W_q g_v, W_k t_u> / sqrt(d)) softmax_(u,r)(<W_s g_v, e_{u,r}> / sqrt(d)):
    eq:neighbor_gating and eq:chunk_similarity with softmax instead of entmax and without budgets:
    the first softmax runs over all nodes of a hop, the second over all chunks of the pool. Queries
    are `anchored` as those of the pack, with c_v under these dense gates.
    These are attention weights of the same trained scores, used as an explanation (see Jain and
    Wallace 2019 on how little such weights may explain).
    """
    table, hops = data.table, data.graph.hops(settings.fan_out)
    hidden = embed(DanceClient(model, data, settings, data.graph), nodes)
    gamma = torch.softmax(model.hop_logits, dim=0)
    own = rows_at(table.nodes, nodes).to(hidden.dtype)
    queries = anchored(model.neighbour_queries(hidden), own, settings)
    context, of_chunk = torch.zeros_like(own), []
    for hop, ragged in zip(HOPS, (hops.zero(nodes), hops.one(nodes), hops.two(nodes)), strict=True):
        score = products(queries, ragged, table.nodes)
        counts = table.chunks_of.ptr.diff()[ragged.index]
        gate = gamma[hop] * softmax_rows(score, ragged.ptr)
        context += weighted_rows(gate, ragged, table.nodes)
        weight = torch.repeat_interleave(gate, counts)
        of_chunk.append((torch.repeat_interleave(ragged.rows(), counts), weight))
    # Concatenated hop by hop, then sorted by row: the order of the pool.
    order = torch.sort(torch.cat([rows for rows, _ in of_chunk]), stable=True).indices
    neighbour = torch.cat([weight for _, weight in of_chunk])[order]
    queries = anchored(model.chunk_queries(hidden), context, settings)
    chunk = products(queries, pool.chunks, table.chunks)
    return neighbour * softmax_rows(chunk, pool.chunks.ptr)
