"""Sec. 3.3 and Alg. 3: hierarchical text condensation, the choice of neighbours and chunks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.nn.hops import HopLists
from dance_flwr.nn.ragged import (
    Ragged,
    budgeted_entmax,
    concat_rows,
    products,
    rank_in_row,
    rows_at,
    stack_rows,
    weighted_rows,
)

HOPS = (0, 1, 2)
ThreeHops = tuple[Ragged, Ragged, Ragged]
Gates = tuple[Float[Tensor, "E0"], Float[Tensor, "E1"], Float[Tensor, "E2"]]


@dataclass(frozen=True)
class Candidates:
    """Where evidence may come from; selected at a refresh and kept until the next one.

    Attributes
    ----------
    nodes : [m] int64, the nodes whose evidence is selected
    hops : per hop l in 0, 1, 2: m rows of candidate nodes
    chunks : m rows of candidate chunks, E_v
    gates : per hop [E_l] the gates that selected the chunks; None if the candidates were cut or
        loaded
    """

    nodes: Int64[Tensor, "m"]
    hops: ThreeHops
    chunks: Ragged
    gates: Gates | None = None

    def take(self, rows: Int64[Tensor, "j"]) -> "Candidates":
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
class Chosen:
    """Gates and chunk weights of the candidates of m nodes.

    Attributes
    ----------
    gates : per hop, [E_l] alpha^(l), at most B_l non-zero per row, each non-empty row sums to 1
    chunk_weights : [E] pi, at most B_tok non-zero per row
    context : [m, d] c_v (eq:hier_context)
    """

    gates: Gates
    chunk_weights: Float[Tensor, "E"]
    context: Float[Tensor, "m d"]

    def take(self, candidates: Candidates, rows: Int64[Tensor, "j"]) -> tuple[Candidates, "Chosen"]:
        """Return these rows of the candidates, and what was chosen of them."""
        parts = []
        weights = (*self.gates, self.chunk_weights)
        for ragged, weight in zip((*candidates.hops, candidates.chunks), weights, strict=True):
            entries = torch.arange(ragged.index.numel(), device=rows.device)
            places = Ragged(ragged.ptr, entries).take(rows)
            parts.append((Ragged(places.ptr, ragged.index[places.index]), weight[places.index]))
        (zero, a), (one, b), (two, c), (chunks, pi) = parts
        taken = Candidates(candidates.nodes[rows], (zero, one, two), chunks)
        return taken, Chosen((a, b, c), pi, rows_at(self.context, rows))


@dataclass(frozen=True)
class Evidence(Chosen):
    """What was chosen, and the weighted sums of texts.

    Attributes
    ----------
    text : [m, d] t~_v (eq:agg_text)
    fused_text : [m, d] mix * t~_v + (1 - mix) * c_v, the text input of fusion
    """

    text: Float[Tensor, "m d"]
    fused_text: Float[Tensor, "m d"]


def hop_candidates(
    nodes: Int64[Tensor, "m"], hops: HopLists, difficulty: Float[Tensor, "n"], pool: int
) -> ThreeHops:
    """{v}, N_v^(1), and eq:hard_2hop: the `pool` hardest nodes of N_v^(2) by u_w.

    Ties go to the lower index. The paper's pool is B_2, which leaves the gate no choice; the key
    `dance.hop2-pool` makes it larger.
    """
    far = hops.two(nodes)
    return (
        hops.zero(nodes),
        hops.one(nodes),
        far.keep(rank_in_row(difficulty[far.index], far.ptr) < pool),
    )


def gate_neighbours(
    model: DanceModel,
    hidden: Float[Tensor, "m h"],
    hops: ThreeHops,
    table: TextTable,
    config: DanceConfig,
) -> Gates:
    """alpha^(l) = Pi_{B_l}(entmax(<W_q g_v, W_k t_u> / sqrt(d))); per hop [E_l].

    eq:neighbor_score and eq:neighbor_gating. The node itself is the only candidate of hop 0, so
    alpha^(0) = 1. Hops 1 and 2 are gated together, as 2 m rows. The query is `anchored` to t_v.

    Parameters
    ----------
    hidden : [m, h] g_v of the rows
    """
    around = stack_rows(hops[1:])
    itself = torch.ones_like(hops[0].index, dtype=hidden.dtype)
    own = weighted_rows(itself, hops[0], table.nodes)  # 0 where a row has no candidate at all
    queries = anchored(model.neighbour_queries(hidden), own, config).repeat(2, 1)
    scores = products(queries, around, table.nodes)
    most = torch.tensor(budgets(config)[1:], device=hidden.device).repeat_interleave(hidden.size(0))
    gates = budgeted_entmax(scores, around.ptr, most)
    first = hops[1].index.numel()
    return itself, gates[:first], gates[first:]


def weigh_chunks(
    model: DanceModel,
    hidden: Float[Tensor, "m h"],
    context: Float[Tensor, "m d"],
    candidates: Ragged,
    table: TextTable,
    config: DanceConfig,
) -> Float[Tensor, "E"]:
    """eq:chunk_similarity: pi = Pi_{B_tok}(entmax(<W_s g_v, e_{u,r}> / sqrt(d))); [E].

    The query is `anchored` to c_v, the context.
    """
    queries = anchored(model.chunk_queries(hidden), context, config)
    scores = products(queries, candidates, table.chunks)
    return budgeted_entmax(scores, candidates.ptr, config.chunk_budget)


def anchored(
    queries: Float[Tensor, "m d"], towards: Float[Tensor, "m d"], config: DanceConfig
) -> Float[Tensor, "m d"]:
    """Add `anchor` to q: a query that asks for texts like x before anything is learnt; [m, d].

    An extension of the paper, whose queries start at random; T = 0 leaves them as they are.
    """
    return queries + anchor(towards, config) if config.anchor_temperature else queries


def anchor(towards: Float[Tensor, "m d"], config: DanceConfig) -> Float[Tensor, "m d"]:
    """The vector x / (|x| T), or 0 where T = 0; [m, d] -> [m, d]."""
    if not config.anchor_temperature:
        return torch.zeros_like(towards)
    return F.normalize(towards, dim=1) / config.anchor_temperature


def budgets(config: DanceConfig) -> tuple[int, int, int]:
    """Return (B_0, B_1, B_2)."""
    return config.hop0_budget, config.hop1_budget, config.hop2_budget


@torch.no_grad()
def select_candidates(
    model: DanceModel,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
    hops: HopLists,
    table: TextTable,
    config: DanceConfig,
) -> Candidates:
    """First half of Alg. 3: hop candidates, their gates, and the chunks of the gated neighbours.

    Under `text_rule` "own" the only candidates of a node are its own chunks.

    Parameters
    ----------
    nodes : [m] int64; hidden : [m, h] their g; difficulty : [n] u of all nodes
    """
    if config.text_rule == "own":
        empty = Ragged(nodes.new_zeros(nodes.numel() + 1), nodes.new_empty(0))
        return Candidates(nodes, (hops.zero(nodes), empty, empty), table.chunks_of.take(nodes))
    around = hop_candidates(nodes, hops, difficulty, config.hop2_pool)
    gates = gate_neighbours(model, hidden, around, table, config)
    chosen = concat_rows(
        [ragged.keep(gate > 0) for ragged, gate in zip(around, gates, strict=True)]
    )
    return Candidates(nodes, around, chunks_of_neighbours(chosen, table.chunks_of), gates)


def chunks_of_neighbours(neighbours: Ragged, chunks_of: Ragged) -> Ragged:
    """E_v: every chunk of every selected neighbour, in the neighbours' order; m rows."""
    per_neighbour = chunks_of.take(neighbours.index)
    return Ragged(per_neighbour.ptr[neighbours.ptr], per_neighbour.index)


@torch.no_grad()
def condense_text(
    model: DanceModel,
    hidden: Float[Tensor, "m h"],
    candidates: Candidates,
    table: TextTable,
    config: DanceConfig,
) -> Evidence:
    """Second half of Alg. 3: gates, c_v, chunk weights and t~_v over fixed candidates.

    Without gradients; `weighing.weigh` is the form that is trained. eq:hier_context: c_v = sum_l
    gamma_l sum_u alpha_{v,u} t_u with gamma = softmax(hop_logits) over all three hops. eq:agg_text:
    t~_v = sum pi_{v,(u,r)} e_{u,r}. Under `text_rule` "own" both are t_v, the pooled text of the
    node.

    Parameters
    ----------
    hidden : [m, h] g_v of `candidates.nodes`
    """
    if config.text_rule == "own":
        return own_text(candidates, table, hidden.dtype)
    gates = candidates.gates
    if gates is None:
        gates = gate_neighbours(model, hidden, candidates.hops, table, config)
    gamma = torch.softmax(model.hop_logits, dim=0)
    center = gamma[0] * rows_at(table.nodes, candidates.nodes).to(hidden.dtype)
    around = stack_rows(candidates.hops[1:])
    by_hop = weighted_rows(torch.cat(gates[1:]), around, table.nodes).view(
        2, -1, table.nodes.size(1)
    )
    context = center + gamma[1] * by_hop[0] + gamma[2] * by_hop[1]
    weights = weigh_chunks(model, hidden, context, candidates.chunks, table, config)
    text = weighted_rows(weights, candidates.chunks, table.chunks)
    return Evidence(gates, weights, context, text, config.mix * text + (1 - config.mix) * context)


def own_text(candidates: Candidates, table: TextTable, dtype: torch.dtype) -> Evidence:
    """Return the evidence of the ablation without text condensation.

    It is the chunks of the node itself with their weights in t_v, as the client reads texts.
    """
    text = rows_at(table.nodes, candidates.nodes).to(dtype)
    weights = table.weights_in_texts(candidates.chunks, dtype)
    one, none = torch.ones_like(candidates.nodes, dtype=dtype), text.new_empty(0)
    return Evidence((one, none, none), weights, text, text, text)


def freeze(candidates: Candidates, evidence: Chosen) -> Candidates:
    """Shrink the candidates to what was selected, for rounds between two evidence refreshes.

    Weights continue to adapt, but only within the selected neighbours and chunks.
    """
    zero, one, two = (
        ragged.keep(gate > 0) for ragged, gate in zip(candidates.hops, evidence.gates, strict=True)
    )
    return Candidates(
        candidates.nodes,
        (zero, one, two),
        candidates.chunks.keep(evidence.chunk_weights > 0),
    )
