"""Sec. 3.3 and Alg. 3: hierarchical text condensation, i.e. which neighbours and chunks count as
evidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.data.text.table import TextTable, pooling_weights
from dance_flwr.nn.hops import Hops
from dance_flwr.nn.ragged import (
    Ragged,
    bilinear_rows,
    concat_rows,
    entmax_rows,
    project_budget,
    rank_in_row,
    stack_rows,
    weighted_rows,
)

HOPS = (0, 1, 2)


@dataclass(frozen=True)
class Candidates:
    """Where evidence may come from; made at a refresh and held until the next one.

    Attributes
    ----------
    nodes : [m] the nodes whose evidence is gathered
    hops : per hop l in 0, 1, 2: m rows of candidate nodes
    chunks : m rows of candidate chunks, E_v
    gates : per hop [E_l] the gates that chose the chunks; None where the candidates were cut or
        read back
    """

    nodes: Tensor
    hops: tuple[Ragged, Ragged, Ragged]
    chunks: Ragged
    gates: tuple[Tensor, Tensor, Tensor] | None = None

    def take(self, rows: Tensor) -> "Candidates":
        """Return the candidates of these rows ([j] int64)."""
        zero, one, two = (ragged.take(rows) for ragged in self.hops)
        return Candidates(self.nodes[rows], (zero, one, two), self.chunks.take(rows))

    @classmethod
    def stack(cls, blocks: Sequence["Candidates"]) -> "Candidates":
        """Return the candidates of all blocks' nodes, one block after the other."""
        zero, one, two = (stack_rows([block.hops[hop] for block in blocks]) for hop in HOPS)
        nodes = torch.cat([block.nodes for block in blocks])
        return cls(nodes, (zero, one, two), stack_rows([block.chunks for block in blocks]))


@dataclass(frozen=True)
class Evidence:
    """Gates and chunk weights of m nodes, and what they add up to.

    Attributes
    ----------
    gates : per hop, [E_l] alpha^(l), at most B_l non-zero per row, each non-empty row sums to 1
    chunk_weights : [E] pi, at most B_tok non-zero per row
    context : [m, d] c_v (eq:hier_context)
    text : [m, d] t~_v (eq:agg_text)
    fused_text : [m, d] mix * t~_v + (1 - mix) * c_v, what fusion reads
    """

    gates: tuple[Tensor, Tensor, Tensor]
    chunk_weights: Tensor
    context: Tensor
    text: Tensor
    fused_text: Tensor


def hop_candidates(
    nodes: Tensor, hops: Hops, difficulty: Tensor, pool: int
) -> tuple[Ragged, Ragged, Ragged]:
    """{v}, N_v^(1), and eq:hard_2hop: the `pool` hardest of N_v^(2) by u_w, ties to the lower
    index.

    The paper's pool is B_2, which leaves the gate nothing to choose; the key `dance.hop2-pool`
    widens it.
    """
    far = hops.two(nodes)
    return (
        hops.zero(nodes),
        hops.one(nodes),
        far.keep(rank_in_row(difficulty[far.index], far.ptr) < pool),
    )


def gate_neighbours(
    model: DanceModel,
    hidden: Tensor,
    hops: tuple[Ragged, Ragged, Ragged],
    table: TextTable,
    config: DanceConfig,
    vectors: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """eq:neighbor_score, eq:neighbor_gating: alpha^(l) = Pi_{B_l}(entmax(<W_q g_v, W_k t_u> /
    sqrt(d))); per hop [E_l].

    The node itself is the only candidate of hop 0, so alpha^(0) = 1. Hops 1 and 2 are gated
    together, as 2 m rows.

    Parameters
    ----------
    hidden : [m, h] g_v of the rows
    vectors : [E_1 + E_2, d] t_u of the candidates of hops 1 and 2, where the caller has them
        already
    """
    around = stack_rows(hops[1:])
    queries = torch.cat([hidden, hidden])
    matrix = model.key.weight.T @ model.query.weight
    scores = bilinear_rows(queries, matrix, around, table.nodes, vectors) / sqrt(
        model.key.in_features
    )
    most = torch.tensor(budgets(config)[1:], device=hidden.device).repeat_interleave(hidden.size(0))
    gates = project_budget(entmax_rows(scores, around.ptr), scores, around.ptr, most)
    first = hops[1].index.numel()
    return torch.ones_like(hops[0].index, dtype=hidden.dtype), gates[:first], gates[first:]


def weigh_chunks(
    model: DanceModel,
    hidden: Tensor,
    candidates: Ragged,
    table: TextTable,
    budget: int,
    vectors: Tensor | None = None,
) -> Tensor:
    """eq:chunk_similarity: pi = Pi_{B_tok}(entmax(<W_s g_v, e_{u,r}> / sqrt(d))); [E].

    Parameters
    ----------
    vectors : [E, d] e_{u,r} of the candidates, where the caller has them already
    """
    scores = bilinear_rows(hidden, model.chunk_query.weight, candidates, table.chunks, vectors)
    scores = scores / sqrt(table.chunks.size(1))
    return project_budget(entmax_rows(scores, candidates.ptr), scores, candidates.ptr, budget)


def budgets(config: DanceConfig) -> tuple[int, int, int]:
    """(B_0, B_1, B_2)."""
    return config.hop0_budget, config.hop1_budget, config.hop2_budget


@torch.no_grad()
def select_candidates(
    model: DanceModel,
    nodes: Tensor,
    hidden: Tensor,
    difficulty: Tensor,
    hops: Hops,
    table: TextTable,
    config: DanceConfig,
) -> Candidates:
    """First half of Alg. 3: hop candidates, their gates, and the chunks of the gated neighbours.

    Under `text_rule` "own" a node has no candidates but its own chunks.

    Parameters
    ----------
    nodes : [m] int64; hidden : [n, h] g; difficulty : [n] u
    """
    if config.text_rule == "own":
        nobody = Ragged(nodes.new_zeros(nodes.numel() + 1), nodes.new_empty(0))
        return Candidates(nodes, (hops.zero(nodes), nobody, nobody), table.chunks_of.take(nodes))
    around = hop_candidates(nodes, hops, difficulty, config.hop2_pool)
    gates = gate_neighbours(model, hidden[nodes], around, table, config)
    chosen = concat_rows(
        [ragged.keep(gate > 0) for ragged, gate in zip(around, gates, strict=True)]
    )
    return Candidates(nodes, around, chunks_of_neighbours(chosen, table.chunks_of), gates)


def chunks_of_neighbours(neighbours: Ragged, chunks_of: Ragged) -> Ragged:
    """E_v: every chunk of every selected neighbour, in the neighbours' order; m rows."""
    per_neighbour = chunks_of.take(neighbours.index)
    return Ragged(per_neighbour.ptr[neighbours.ptr], per_neighbour.index)


@dataclass(frozen=True)
class Gathered:
    """Text vectors of candidates: they do not change while the candidates are held, so training
    gathers them once.

    Attributes
    ----------
    neighbours : [E_1 + E_2, d] t_u of the candidates of hops 1 and 2
    chunks : [E, d] e_{u,r} of the candidate chunks
    """

    neighbours: Tensor
    chunks: Tensor

    @classmethod
    def of(cls, candidates: Candidates, table: TextTable) -> "Gathered":
        """Gather from the table, in its own types."""
        around = torch.cat([candidates.hops[1].index, candidates.hops[2].index])
        return cls(table.nodes[around], table.chunks[candidates.chunks.index])


def condense_text(
    model: DanceModel,
    hidden: Tensor,
    candidates: Candidates,
    table: TextTable,
    config: DanceConfig,
    gathered: Gathered | None = None,
) -> Evidence:
    """Second half of Alg. 3: gates, c_v, chunk weights and t~_v over fixed candidates, with
    gradient.

    eq:hier_context: c_v = sum_l gamma_l sum_u alpha_{v,u} t_u with gamma = softmax(hop_logits) over
    all three hops. eq:agg_text: t~_v = sum pi_{v,(u,r)} e_{u,r}. Under `text_rule` "own" both are
    t_v, the pooled text of the node.

    Parameters
    ----------
    hidden : [m, h] g_v of `candidates.nodes`
    gathered : the candidates' vectors where the caller has them already
    """
    if config.text_rule == "own":
        return own_text(candidates, table, hidden.dtype)
    near, chunk_vectors = (gathered.neighbours, gathered.chunks) if gathered else (None, None)
    fresh = torch.is_grad_enabled() or candidates.gates is None
    gates = (
        gate_neighbours(model, hidden, candidates.hops, table, config, near)
        if fresh
        else candidates.gates
    )
    assert gates is not None
    gamma = torch.softmax(model.hop_logits, dim=0)
    own = gamma[0] * table.nodes[candidates.nodes].to(hidden.dtype)
    around = stack_rows(candidates.hops[1:])
    by_hop = weighted_rows(torch.cat(gates[1:]), around, table.nodes).view(
        2, -1, table.nodes.size(1)
    )
    context = own + gamma[1] * by_hop[0] + gamma[2] * by_hop[1]
    weights = weigh_chunks(
        model, hidden, candidates.chunks, table, config.chunk_budget, chunk_vectors
    )
    text = weighted_rows(weights, candidates.chunks, table.chunks)
    return Evidence(gates, weights, context, text, config.mix * text + (1 - config.mix) * context)


def own_text(candidates: Candidates, table: TextTable, dtype: torch.dtype) -> Evidence:
    """Return the evidence of the ablation without text condensation: every own chunk with its
    pooling weight.
    """
    text = table.nodes[candidates.nodes].to(dtype)
    chunks = candidates.chunks
    weights = pooling_weights(table.chunks[chunks.index].to(dtype), chunks.ptr)
    one, none = torch.ones_like(candidates.nodes, dtype=dtype), text.new_empty(0)
    return Evidence((one, none, none), weights, text, text, text)


def freeze(candidates: Candidates, evidence: Evidence) -> Candidates:
    """Shrink the candidates to what was selected, for rounds between two evidence refreshes.

    Weights go on adapting, but only within the selected neighbours and chunks.
    """
    kept = [
        ragged.keep(gate > 0) for ragged, gate in zip(candidates.hops, evidence.gates, strict=True)
    ]
    return Candidates(
        candidates.nodes,
        (kept[0], kept[1], kept[2]),
        candidates.chunks.keep(evidence.chunk_weights > 0),
    )
