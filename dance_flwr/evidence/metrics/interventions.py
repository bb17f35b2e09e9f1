"""Predictions after chunks were removed from the text bank, many cases in one pass.

A text that changes at u changes g within the backbone's reach of u, and nothing beyond. So each
case gets copies of the nodes there, and of its target; they point to one shared, unchanged client
for all other nodes. The result is what the whole client would predict with the changed bank; the
graph and its weights stay.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from dance_flwr.client_data.agreement import chunk_weights, last_context
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.text_table import TextTable, pool_chunks
from dance_flwr.config.sections import AGREEMENT
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import predict
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.passes import Reader
from dance_flwr.dance.text import chunks_of_neighbours
from dance_flwr.evidence.metrics.ego_copies import CopiedClient, CopiedGraph, Copies
from dance_flwr.nn.hops import Balls, most_around, nodes_around
from dance_flwr.nn.ragged import Ragged, concat_rows, stack_rows, weighted_rows

TEXT_HOPS = 2  # where the evidence of a node comes from
# Copies per pass; at least as many as the client has nodes, since every pass includes those too.
_NODES_PER_PASS = 8192
_NODES_AT_ONCE = 4_000_000  # copies that are listed before they are divided into passes


@torch.no_grad()
def repredict(
    model: DanceModel,
    data: ClientData,
    settings: DanceConfig,
    targets: Tensor,
    kept: Ragged,
    *,
    texts_elsewhere: bool = True,
) -> Tensor:
    """Return p(y | v_i) if only kept_i remain of the chunks within two hops of v_i; [I, C].

    All other chunks there are removed from the bank: t_u is pooled from the rest, and a node
    without chunks has t_u = 0 and offers no evidence. Then all of `predict` runs again: plain pass,
    gates, chunk selection, fusion, every view. The result is the deployed prediction. Under
    `text-pooling` agreement the rest is weighed around the c_u of the full texts: what the
    neighbours' texts said of a node stays, so that no text farther away changes.

    Parameters
    ----------
    targets : [I] int64 nodes, one per case; a node may occur often
    kept : I rows of chunk numbers, of nodes within two hops of the target
    texts_elsewhere : keep the texts beyond two hops; False = remove them too
    """
    rows, table = data.graph.rows, data.table
    changes = _all_but(kept, near_chunks(data, targets)) if texts_elsewhere else kept
    owners = Ragged(changes.ptr, table.node_of_chunk[changes.index])
    changed_radius, read_radius = _radii(model, settings)
    results = []
    for group in _passes(most_copied(model, data, settings, targets, owners), _NODES_AT_ONCE):
        read = Balls.of(rows, targets[group], read_radius).take(_every(group))
        changed = nodes_around(rows, owners.take(group), changed_radius)
        copied = nodes_around(rows, concat_rows([changed, read]), 0)
        for cases in _passes(copied.ptr.diff(), max(_NODES_PER_PASS, data.num_nodes)):
            copies, which = Copies.of(data.num_nodes, copied.take(cases)), group[cases]
            bank = _changed_table(data, copies, changes.take(which), texts_elsewhere)
            client = _client(data, settings, copies, bank, read.take(cases))
            asked = copies.place(_every(cases), targets[which])
            reader = Reader(model, client, settings, client.graph)
            results.append(predict(reader, asked)["deployed"])
    if not results:
        return torch.zeros(0, len(data.card.class_names), device=data.device)
    return torch.cat(results)


def most_copied(
    model: DanceModel, data: ClientData, settings: DanceConfig, targets: Tensor, owners: Ragged
) -> Tensor:
    """Return a number of nodes that no case has more copies of, [I] int64, without a search.

    Parameters
    ----------
    owners : I rows of nodes whose texts change
    """
    changed_radius, read_radius = _radii(model, settings)
    most = most_around(data.graph.rows, read_radius)[targets]
    around = most_around(data.graph.rows, changed_radius)[owners.index]
    return most.index_add(0, owners.rows(), around).clamp(max=data.num_nodes)


def near_chunks(data: ClientData, nodes: Tensor) -> Ragged:
    """Return every chunk within two hops of each node, beyond any fan-out too; one row per node."""
    near = Balls.of(data.graph.rows, nodes, TEXT_HOPS).take(_every(nodes))
    return chunks_of_neighbours(near, data.table.chunks_of)


def _radii(model: DanceModel, settings: DanceConfig) -> tuple[int, int]:
    """Return how far a changed text is felt, and how far a prediction reads others' evidence.

    If the plain view is not trained, difficulty follows from the evidence of everyone, so that a
    change is felt through evidence, too.
    """
    reach = model.backbone.reach
    felt = 2 * reach + TEXT_HOPS if _everyone_reads(settings) else reach
    return felt, reach if "core" in settings.views.split("+") else 0


def _everyone_reads(settings: DanceConfig) -> bool:
    return settings.plain_weight == 0


def _every(rows: Tensor) -> Tensor:
    return torch.arange(rows.numel(), device=rows.device)


def _client(
    data: ClientData, settings: DanceConfig, copies: Copies, bank: TextTable, read: Ragged
) -> CopiedClient:
    """Return the client and its copies; `read` names the nodes by case whose evidence is read."""
    total = copies.size + copies.origin.numel()
    if _everyone_reads(settings):
        where = torch.arange(total, device=data.device)
    else:
        where = copies.place(read.rows(), read.index)
    graph = CopiedGraph(data.graph, copies, where, settings.fan_out)
    labels = torch.cat([data.label_table, data.label_table[copies.origin]])
    return CopiedClient(total, data.device, bank, labels, graph)


def _all_but(left: Ragged, every: Ragged) -> Ragged:
    """Return the entries of `every` that are not in the same row of `left`."""
    size = 1 + max(int(part.max()) if part.numel() else 0 for part in (left.index, every.index))
    return every.keep(
        ~torch.isin(every.rows() * size + every.index, left.rows() * size + left.index)
    )


def _passes(sizes: Tensor, most: int) -> Iterator[Tensor]:
    """Yield ranges of case numbers with about `most` copies together, at least one case each."""
    number = (sizes.cumsum(0) - 1) // max(most, 1)
    counts = torch.unique_consecutive(number, return_counts=True)[1].tolist()
    if counts:
        yield from torch.split(torch.arange(sizes.numel(), device=sizes.device), counts)


def _blank(table: TextTable) -> TextTable:
    empty = Ragged(torch.zeros_like(table.chunks_of.ptr), table.chunks_of.index[:0])
    return TextTable(table.chunks, empty, torch.zeros_like(table.nodes))


def _changed_table(
    data: ClientData, copies: Copies, changes: Ragged, texts_elsewhere: bool
) -> TextTable:
    """Return the bank of the client and its copies, which share the chunk embeddings.

    Parameters
    ----------
    changes : chunks by case, which are removed; without texts elsewhere those that stay
    """
    table = data.table
    shared = table if texts_elsewhere else _blank(table)
    before = table.chunks_of.take(copies.origin)
    total = table.chunks.size(0)
    named = torch.isin(
        copies.case[before.rows()] * total + before.index, changes.rows() * total + changes.index
    )
    after = before.keep(~named if texts_elsewhere else named)
    changed = torch.nonzero(after.ptr.diff() != before.ptr.diff()).flatten()
    rest = after.take(changed)
    nodes = table.nodes[copies.origin]
    nodes[changed] = _pooled(data, copies.origin[changed], rest).to(nodes.dtype)
    return TextTable(
        table.chunks, stack_rows([shared.chunks_of, after]), torch.cat([shared.nodes, nodes])
    )


def _pooled(data: ClientData, nodes: Tensor, rest: Ragged) -> Tensor:
    """Return t_u of these nodes from what is left of their chunks, as the site reads texts."""
    chunks = data.table.chunks
    if data.reading.text_pooling != AGREEMENT:
        return pool_chunks(chunks[rest.index], rest.ptr)

    def compute() -> Tensor:
        own = data.table.chunks_of
        texts = pool_chunks(chunks[own.index], own.ptr)
        return last_context(chunks, own, data.compared_rows, texts, data.reading)

    around = data.cached("last context", data.reading, compute)[nodes]
    return weighted_rows(chunk_weights(chunks, rest, around, data.reading), rest, chunks)
