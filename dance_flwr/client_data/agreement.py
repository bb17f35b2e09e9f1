"""Text condensation and gated edges by agreement: what a node's neighbourhood confirms.

An extension of the paper without parameters, computed once per client and offered to every method
(`text-pooling`, `edge-gates`). A chunk counts if it agrees with the texts of the node's neighbours,
an edge if its two ends agree. Foreign text in a document and wrong edges agree with nothing around
them.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.sections import ReadingConfig
from dance_flwr.nn.ragged import Ragged, budgeted_rows, products, rows_at, weighted_rows

# Why (decision 18): a text is compared with texts that are themselves read by agreement; the
# weights hardly change after the third pass.
PASSES = 3
_NODES_PER_BLOCK = 2048


def agreeing_texts(
    table: TextTable,
    neighbours: Ragged,
    config: ReadingConfig,
    new: Callable[[], Float[Tensor, "n d"]],
    passes: int = PASSES,
) -> Float[Tensor, "n d"]:
    """t_u = sum_r Pi_B(entmax(<e_{u,r}, c_u> / T)) e_{u,r}; [n, d].

    c_u is the normalised sum of t_w / |t_w| over the neighbours w of u, or of u itself if it has
    none. The first pass starts from the t of the table, of eq:text_pool.

    Parameters
    ----------
    table : may be memory-mapped
    neighbours : n rows of the nodes whose texts are compared with u's
    new : returns an empty [n, d] tensor, in memory or in a file
    """
    # All texts of a pass follow from those of the pass before: the order of nodes does not matter.
    for _ in range(passes):
        after = new()
        for block, rows, weights in _pass(table, neighbours, config):
            after[block.to(after.device)] = weighted_rows(weights, rows, table.chunks).to(after)
        table = replace(table, nodes=after)
    return table.nodes


def _pass(
    table: TextTable,
    neighbours: Ragged,
    config: ReadingConfig,
) -> Iterator[tuple[Int64[Tensor, "b"], Ragged, Float[Tensor, "E"]]]:
    """Yield blocks of nodes, their rows of chunks and their weights; see `agreeing_texts`."""
    lengths = _lengths(table.nodes)
    every = torch.arange(neighbours.num_rows, device=neighbours.ptr.device)
    for block in torch.split(every, _NODES_PER_BLOCK):
        context = context_of(table.nodes, lengths, neighbours, block)
        rows = table.chunks_of.take(block)
        yield block, rows, chunk_weights(table.chunks, rows, context, config)


def agreeing_weights(
    table: TextTable,
    neighbours: Ragged,
    config: ReadingConfig,
    new: Callable[[], Float[Tensor, "n d"]],
) -> Float[Tensor, "R"]:
    """The weight of every chunk in the t_u of `agreeing_texts`, those of its last pass; [R].

    Parameters are those of `agreeing_texts`.
    """
    # The weights of the last pass follow from the texts before it.
    before = replace(table, nodes=agreeing_texts(table, neighbours, config, new, PASSES - 1))
    parts = [weights for *_, weights in _pass(before, neighbours, config)]
    return torch.cat(parts) if parts else before.nodes.new_empty(0)


def last_context(
    chunks: Float[Tensor, "R d"],
    chunks_of: Ragged,
    neighbours: Ragged,
    texts: Float[Tensor, "n d"],
    config: ReadingConfig,
) -> Float[Tensor, "n d"]:
    """c_u of the last pass of `agreeing_texts`, from which its t_u follow; [n, d]."""
    table = TextTable(chunks, chunks_of, texts)
    before = agreeing_texts(table, neighbours, config, lambda: torch.empty_like(texts), PASSES - 1)
    every = torch.arange(neighbours.num_rows, device=neighbours.ptr.device)
    return context_of(before, _lengths(before), neighbours, every)


def chunk_weights(
    chunks: Float[Tensor, "R d"],
    chunks_of: Ragged,
    context: Float[Tensor, "m d"],
    config: ReadingConfig,
) -> Float[Tensor, "E"]:
    """Pi_B(entmax(<e_{u,r}, c_u> / T)) of every chunk of m nodes, B = `pooled_chunks`; [E].

    Parameters
    ----------
    chunks_of : m rows of chunk numbers
    context : [m, d] c_u
    """
    # Why entmax and a limit (decision 18): chunks that disagree get no weight at all.
    scores = products(context / config.text_temperature, chunks_of, chunks)
    return budgeted_rows(scores, chunks_of.ptr, config.pooled_chunks)


def context_of(
    texts: Float[Tensor, "n d"],
    lengths: Float[Tensor, "n"],
    neighbours: Ragged,
    nodes: Int64[Tensor, "m"],
) -> Float[Tensor, "m d"]:
    """c_u of these nodes, of norm 1; [m, d]."""
    near = neighbours.take(nodes)
    total = weighted_rows(1 / lengths[near.index], near, texts)
    # A node without neighbours, or with empty ones alone, agrees with itself.
    lone = total.norm(dim=1, keepdim=True) == 0
    return F.normalize(torch.where(lone, rows_at(texts, nodes), total), dim=1)


def agreeing_edges(
    texts: Float[Tensor, "n d"], neighbours: Ragged, temperature: float
) -> Float[Tensor, "E"]:
    """exp((cos(t_u, t_w) - 1) / T) of every edge, in (0, 1]; [E], in the order of `neighbours`.

    Symmetric. An isolated node has no entry; one whose text is empty has cosine 0 with every other.
    """
    every = torch.arange(neighbours.num_rows, device=neighbours.ptr.device)
    lengths, parts = _lengths(texts), [texts.new_empty(0, dtype=torch.float32)]
    for block in torch.split(every, _NODES_PER_BLOCK):
        near = neighbours.take(block)
        centre = rows_at(texts, block) / lengths[block, None]
        # Divided after the product: the texts may be memory-mapped, and are not copied.
        cosine = products(centre, near, texts) / lengths[near.index]
        parts.append(torch.exp((cosine - 1) / temperature))
    return torch.cat(parts)


def _lengths(texts: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
    """|t_u|, at least a tiny number, so that an empty text may be divided by it; [n] float32."""
    parts = []
    for block in torch.split(texts, 16 * _NODES_PER_BLOCK):
        # Squares of float16 lose digits.
        exact = block.float() if block.dtype == torch.float16 else block
        parts.append(exact.norm(dim=1))
    return torch.cat(parts).clamp(min=1e-12)
