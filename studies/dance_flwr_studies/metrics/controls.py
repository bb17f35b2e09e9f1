"""Chunks that explain a prediction: the evidence pack, and controls from the same pool."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from dance_flwr.dance.passes import DanceClient, embed
from dance_flwr.dance.selection import HOPS
from dance_flwr.dance.text import anchor
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.pool import Pool
from dance_flwr.nn.ragged import (
    Ragged,
    heaviest,
    products,
    ptr_of_rows,
    rank_in_row,
    rows_at,
    softmax_rows,
    weighted_rows,
)

EVIDENCE = "evidence"
ATTENTION, RANDOM = "attention", "random"
CONTROLS = (f"{ATTENTION}-by-hop", ATTENTION, f"{RANDOM}-by-hop", RANDOM)


# A pool -> weights in [0, 1] of its chunks, [E].
WeighChunks = Callable[[Pool], Tensor]


def control_weights(
    explainer: Explainer,
    pool: Pool,
    draws: int,
    generator: torch.Generator,
    others: Mapping[str, WeighChunks] | None = None,
) -> dict[str, list[Tensor]]:
    """Return weights of the chunks of the pool by control, [E] float64 each.

    "attention" is `dense_attention`, `others` are as they are, and "random" has `draws` entries of
    uniform numbers.

    Parameters
    ----------
    generator : a CPU generator; the only source of randomness
    """
    weights = {ATTENTION: [dense_attention(explainer, pool).double()]}
    weights |= {name: [weigh(pool).double()] for name, weigh in (others or {}).items()}
    # Drawn on the CPU, so that every device draws the same; float64, so that draws do not tie.
    uniform = [
        torch.rand(pool.hop.numel(), generator=generator, dtype=torch.float64) for _ in range(draws)
    ]
    return weights | {RANDOM: [draw.to(pool.hop.device) for draw in uniform]}


def rankings(
    packs: Packs, pool: Pool, weights: Mapping[str, Sequence[Tensor]]
) -> dict[str, list[Ragged]]:
    """Return m rows of chunks, heaviest first, by source; each as many as the node's pack has.

    "evidence" is the pack. Each control NAME is ranked by its weights: NAME takes the heaviest
    chunks of the pool, and NAME-by-hop as many of each hop as the pack has, so that a node's own
    text does not decide the comparison.

    Parameters
    ----------
    pool : of the packs' nodes
    weights : by name of the control, [E] in [0, 1] of the pool's chunks for each of its draws
    """
    device, size = pool.nodes.device, pool.nodes.numel() * len(HOPS)
    chunks = Ragged(
        *(torch.as_tensor(part, device=device) for part in (packs.chunk_ptr, packs.chunks))
    )
    per_hop, counts = pool.row_and_hop(), chunks.ptr.diff()
    ptr = ptr_of_rows(per_hop, size)
    quota = torch.bincount(per_hop[pool.contains(chunks)], minlength=size)

    def by_hop(weight: Tensor) -> Ragged:
        # Weights are at most 1: those within the quota of their hop rank above all others.
        within = rank_in_row(weight, ptr) < quota[per_hop]
        return heaviest(pool.chunks, weight + 2 * within, counts)

    ranked = {EVIDENCE: [chunks]}
    for name, draws in weights.items():
        ranked[f"{name}-by-hop"] = [by_hop(weight) for weight in draws]
        ranked[name] = [heaviest(pool.chunks, weight, counts) for weight in draws]
    return ranked


@torch.no_grad()
def dense_attention(explainer: Explainer, pool: Pool) -> Tensor:
    """Return dense attention weights of the chunks of the pool, [E].

    gamma_l softmax_u(<W_q g_v, W_k t_u> / sqrt(d)) softmax_(u,r)(<W_s g_v, e_{u,r}> / sqrt(d)):
    eq:neighbor_gating and eq:chunk_similarity with softmax instead of entmax and without budgets:
    the first softmax runs over all nodes of a hop, the second over all chunks of the pool. Queries
    have the `anchor` of the pack, with c_v under these dense gates.
    These are attention weights of the same trained scores, used as an explanation (see Jain and
    Wallace 2019 on how little such weights may explain).
    """
    model, data, settings, nodes = explainer.model, explainer.data, explainer.settings, pool.nodes
    table, hops = data.table, data.graph.hops(settings.fan_out)
    hidden = embed(DanceClient(model, data, settings, data.graph), nodes)
    gamma = torch.softmax(model.hop_logits, dim=0)
    texts = rows_at(table.nodes, nodes).to(hidden.dtype)
    queries = model.neighbour_queries(hidden) + anchor(texts, settings)
    context, of_chunk = torch.zeros_like(texts), []
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
    queries = model.chunk_queries(hidden) + anchor(context, settings)
    chunk = products(queries, pool.chunks, table.chunks)
    return neighbour * softmax_rows(chunk, pool.chunks.ptr)
