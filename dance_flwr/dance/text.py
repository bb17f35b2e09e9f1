"""Section 4.3 and Alg. 3: hierarchical text condensation, the choice of neighbours and chunks."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.plugins import CHUNK_RULES
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.passes import Reader
from dance_flwr.dance.selection import Gates, Selection, ThreeHops
from dance_flwr.nn.hops import HopLists
from dance_flwr.nn.ragged import (
    Ragged,
    Rule,
    budgeted_rows,
    concat_rows,
    products,
    rank_in_row,
    rows_at,
    stack_rows,
    weighted_rows,
)


@torch.no_grad()
def condense_text(
    reader: Reader,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
) -> Selection:
    """Alg. 3: select the neighbours of these nodes, then chunks of the selected neighbours.

    Without gradients; `weighing.weigh` is the form that is trained. Under `text_rule` "own" the
    evidence of a node is its own text.

    Parameters
    ----------
    nodes : [m] int64; hidden : [m, h] their g; difficulty : [n] u of all nodes
    """
    table, settings = reader.data.table, reader.settings
    hops = reader.graph.hops(settings.fan_out)
    if settings.text_rule == "own":
        return uncondensed_text(table, nodes, table.chunks_of.take(nodes), hidden.dtype)
    # Alg. 3: the candidates of each hop, and the gates that select among them.
    around = hop_candidates(nodes, hops, difficulty, settings.hop2_pool)
    gates = gate_neighbours(reader, hidden, around)
    selected = concat_rows([rows.keep(gate > 0) for rows, gate in zip(around, gates, strict=True)])
    # Alg. 3: E_v, c_v and pi. Why c_v before pi (decision 18): chunk queries are anchored to it.
    chunks = chunks_of_neighbours(selected, table.chunks_of)
    context = hierarchical_context(reader, nodes, around, gates)
    weights = weigh_chunks(reader, hidden, context, chunks)
    return Selection(nodes, around, gates, chunks, weights, context)


@torch.no_grad()
def reweigh(reader: Reader, hidden: Float[Tensor, "m h"], selection: Selection) -> Selection:
    """Return the selection with this model's gates, chunk weights and c_v of the same candidates.

    Parameters
    ----------
    hidden : [m, h] g_v of `selection.nodes`
    """
    nodes, hops, chunks = selection.nodes, selection.hops, selection.chunks
    if reader.settings.text_rule == "own":
        return uncondensed_text(reader.data.table, nodes, chunks, hidden.dtype)
    # Candidates, hop by hop and chunk by chunk, stay those that were selected.
    gates = gate_neighbours(reader, hidden, hops)
    context = hierarchical_context(reader, nodes, hops, gates)
    weights = weigh_chunks(reader, hidden, context, chunks)
    return Selection(nodes, hops, gates, chunks, weights, context)


def condensed_text(
    reader: Reader, selection: Selection
) -> tuple[Float[Tensor, "m d"], Float[Tensor, "m d"]]:
    """t~_v (eq:agg_text) and mix * t~_v + (1 - mix) * c_v, the text input of fusion; [m, d] each.

    eq:agg_text: t~_v = sum pi_{v,(u,r)} e_{u,r}. Under `text_rule` "own" both are t_v, the pooled
    text of the node.
    """
    context, mix = selection.context, reader.settings.mix
    if reader.settings.text_rule == "own":
        return context, context
    # Why t~_v and c_v (decision 4): the paper computes c_v and lists `mix`, and prints no formula
    # with either.
    text = weighted_rows(selection.chunk_weights, selection.chunks, reader.data.table.chunks)
    return text, mix * text + (1 - mix) * context


def hop_candidates(
    nodes: Int64[Tensor, "m"], hops: HopLists, difficulty: Float[Tensor, "n"], pool: int
) -> ThreeHops:
    """{v}, N_v^(1), and eq:hard_2hop: the `pool` hardest nodes of N_v^(2) by u_w.

    Ties go to the lower index.
    """
    # eq:hard_2hop. In a round, u_w is that of the last node condensation (decision 16).
    far = hops.two(nodes)
    # Why a pool (decision 7): the paper's has B_2 nodes, which leaves the gate no choice.
    hardest = far.keep(rank_in_row(difficulty[far.index], far.ptr) < pool)
    return hops.zero(nodes), hops.one(nodes), hardest


def gate_neighbours(reader: Reader, hidden: Float[Tensor, "m h"], hops: ThreeHops) -> Gates:
    """alpha^(l) = Pi_{B_l}(entmax(<W_q g_v, W_k t_u> / sqrt(d))); per hop [E_l].

    eq:neighbor_score and eq:neighbor_gating. The node itself is the only candidate of hop 0, so
    alpha^(0) = 1. The `anchor` of the query is t_v.

    Parameters
    ----------
    hidden : [m, h] g_v of the rows
    """
    table, settings = reader.data.table, reader.settings
    # Why hops 1 and 2 together, as 2 m rows (decision 16): one product and one entmax, not two.
    # Rows are independent, so that the gates are those of each hop by itself.
    around = stack_rows(hops[1:])
    itself = torch.ones_like(hops[0].index, dtype=hidden.dtype)
    texts = weighted_rows(itself, hops[0], table.nodes)  # 0 where a row has no candidate at all
    queries = reader.model.neighbour_queries(hidden) + anchor(texts, settings)
    scores = products(queries.repeat(2, 1), around, table.nodes)
    limits = torch.tensor(budgets(settings)[1:], device=hidden.device)
    gates = budgeted_rows(scores, around.ptr, limits.repeat_interleave(hidden.size(0)))
    first = hops[1].index.numel()
    return itself, gates[:first], gates[first:]


def hierarchical_context(
    reader: Reader, nodes: Int64[Tensor, "m"], hops: ThreeHops, gates: Gates
) -> Float[Tensor, "m d"]:
    """eq:hier_context: c_v = sum_l gamma_l sum_u alpha_{v,u} t_u; [m, d].

    gamma = softmax(hop_logits) over all three hops.
    """
    table = reader.data.table
    gamma = torch.softmax(reader.model.hop_logits, dim=0)
    # alpha^(0) = 1 for v itself, the only candidate of hop 0.
    center = gamma[0] * rows_at(table.nodes, nodes).to(gates[0].dtype)
    by_hop = weighted_rows(torch.cat(gates[1:]), stack_rows(hops[1:]), table.nodes)
    near, far = by_hop.view(2, -1, table.nodes.size(1))
    context: Tensor = center + gamma[1] * near + gamma[2] * far
    return context


def weigh_chunks(
    reader: Reader, hidden: Float[Tensor, "m h"], context: Float[Tensor, "m d"], chunks: Ragged
) -> Float[Tensor, "E"]:
    """eq:chunk_similarity: pi = Pi_{B_tok}(entmax(<W_s g_v, e_{u,r}> / sqrt(d))); [E].

    The `anchor` of the query is c_v, the context; `chunk_rule` may take the place of entmax.
    """
    queries = reader.model.chunk_queries(hidden) + anchor(context, reader.settings)
    scores = products(queries, chunks, reader.data.table.chunks)
    settings = reader.settings
    return budgeted_rows(scores, chunks.ptr, settings.chunk_budget, chunk_rule(settings))


def chunk_rule(config: DanceConfig) -> Rule:
    """Return the rule that turns scores of chunks into weights, here and in training."""
    return CHUNK_RULES.get(config.chunk_rule)  # type: ignore[no-any-return]


def chunks_of_neighbours(neighbours: Ragged, chunks_of: Ragged) -> Ragged:
    """E_v: every chunk of every selected neighbour, in the neighbours' order; m rows.

    Examples
    --------
    >>> chunks_of = Ragged(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 2]))  # of two nodes
    >>> chunks_of_neighbours(Ragged(torch.tensor([0, 2]), torch.tensor([1, 0])), chunks_of).index
    tensor([2, 0, 1])
    """
    per_neighbour = chunks_of.take(neighbours.index)
    return Ragged(per_neighbour.ptr[neighbours.ptr], per_neighbour.index)


def uncondensed_text(
    table: TextTable, nodes: Int64[Tensor, "m"], chunks: Ragged, dtype: torch.dtype
) -> Selection:
    """Return the evidence of the ablation without text condensation (TC).

    The chunks are those of the node itself, each with its weight in t_v.
    """
    text, one = rows_at(table.nodes, nodes).to(dtype), torch.ones_like(nodes, dtype=dtype)
    itself = Ragged(torch.arange(len(nodes) + 1, device=nodes.device), nodes)
    no_rows = Ragged(nodes.new_zeros(len(nodes) + 1), nodes.new_empty(0))
    gates = one, text.new_empty(0), text.new_empty(0)
    weights = table.weights_in_texts(chunks, dtype)
    return Selection(nodes, (itself, no_rows, no_rows), gates, chunks, weights, text)


def anchor(towards: Float[Tensor, "m d"], config: DanceConfig) -> Float[Tensor, "m d"]:
    """The vector x / (|x| T), by which queries prefer texts like x before anything is learnt.

    0 where T = 0, as in the paper; [m, d] -> [m, d].

    Examples
    --------
    >>> anchor(torch.tensor([[3.0, 4.0]]), DanceConfig(anchor_temperature=0.1))
    tensor([[6., 8.]])
    """
    if not config.anchor_temperature:
        return torch.zeros_like(towards)
    # Why (decision 18): untrained maps make random queries, and with them random evidence.
    # Normalised, so that T alone sets the scale; an empty text, of norm 0, anchors nothing.
    return F.normalize(towards, dim=1) / config.anchor_temperature


def budgets(config: DanceConfig) -> tuple[int, int, int]:
    """Return (B_0, B_1, B_2).

    Examples
    --------
    >>> budgets(DanceConfig(hop1_budget=4))
    (1, 4, 2)
    """
    return config.hop0_budget, config.hop1_budget, config.hop2_budget
