"""Predictions after chunks were removed from the text bank, many cases in one pass.

A changed text at u changes g within the backbone's reach of u only. So each case gets replicas of
these nodes and of its target, which read all other nodes from the unchanged client. The result is
the prediction of the whole client with the changed bank; the graph and its weights stay.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from dance_flwr.client_data.agreement import chunk_weights, last_context
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.text_table import TextTable, pool_chunks
from dance_flwr.config.sections import AGREEMENT
from dance_flwr.dance.inference import DEPLOYED, predict
from dance_flwr.dance.passes import Reader
from dance_flwr.dance.text import chunks_of_neighbours
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.replicas import Replicas, ReplicatedClient, ReplicatedGraph
from dance_flwr.nn.hops import Balls, max_around, nodes_around
from dance_flwr.nn.ragged import Ragged, concat_rows, stack_rows, weighted_rows

TEXT_HOPS = 2  # where the evidence of a node comes from
# Replicas per pass. A pass also includes every node of the client, so a pass of a large client has
# at least as many replicas as the client has nodes.
_NODES_PER_PASS = 8192
_NODES_AT_ONCE = 4_000_000  # replicas to search for before they are divided into passes


@torch.no_grad()
def repredict(
    explainer: Explainer, targets: Tensor, remaining: Ragged, *, texts_elsewhere: bool = True
) -> Tensor:
    """Return p(y | v_i) with only the chunks remaining_i within two hops of v_i; [I, C].

    All other chunks there are removed from the bank: t_u is pooled from the rest, and a node
    without chunks has t_u = 0 and offers no evidence. Then all of `predict` runs again: plain pass,
    gates, chunk selection, fusion, every view. The result is the deployed prediction, before any
    smoothing.

    Parameters
    ----------
    targets : [I] int64 nodes, one per case, which may repeat
    remaining : I rows of chunk numbers, of nodes within two hops of the target
    texts_elsewhere : whether texts beyond two hops stay
    """
    data, table = explainer.data, explainer.data.table
    rows = data.graph.rows
    changes = remaining
    if texts_elsewhere:
        changes = difference(near_chunks(data, targets), remaining)
    owners = Ragged(changes.ptr, table.node_of_chunk[changes.index])
    changed_radius, read_radius = _radii(explainer)
    results = []
    # By an upper bound, as the search for replicas itself needs memory.
    for group in _passes(max_replicas(explainer, targets, owners), _NODES_AT_ONCE):
        read = Balls.of(rows, targets[group], read_radius).take(_every(group))
        changed = nodes_around(rows, owners.take(group), changed_radius)
        replicated = nodes_around(rows, concat_rows([changed, read]), 0)
        for cases in _passes(replicated.ptr.diff(), max(_NODES_PER_PASS, data.num_nodes)):
            replicas, which = Replicas.of(data.num_nodes, replicated.take(cases)), group[cases]
            bank = _changed_table(data, replicas, changes.take(which), texts_elsewhere)
            client = _client(explainer, replicas, bank, read.take(cases))
            nodes = replicas.place(_every(cases), targets[which])
            reader = Reader(explainer.model, client, explainer.settings, client.graph)
            results.append(predict(reader, nodes)[DEPLOYED])
    if not results:
        return torch.zeros(0, len(data.card.class_names), device=data.device)
    return torch.cat(results)


def max_replicas(explainer: Explainer, targets: Tensor, owners: Ragged) -> Tensor:
    """Return an upper bound of the number of replicas of each case, [I] int64, without a search.

    Parameters
    ----------
    owners : I rows of nodes whose texts change
    """
    rows = explainer.data.graph.rows
    changed_radius, read_radius = _radii(explainer)
    bound = max_around(rows, read_radius)[targets]
    around = max_around(rows, changed_radius)[owners.index]
    return bound.index_add(0, owners.rows(), around).clamp(max=explainer.data.num_nodes)


def near_chunks(data: ClientData, nodes: Tensor) -> Ragged:
    """Return every chunk within two hops of each node, whatever the fan-out; one row per node."""
    near = Balls.of(data.graph.rows, nodes, TEXT_HOPS).take(_every(nodes))
    return chunks_of_neighbours(near, data.table.chunks_of)


def _radii(explainer: Explainer) -> tuple[int, int]:
    """Return the radius of a changed text, and the radius in which evidence is read."""
    reach = explainer.model.backbone.reach
    # Without a trained plain view, difficulty depends on the evidence of every node, so changes
    # also spread through evidence.
    felt = 2 * reach + TEXT_HOPS if _everyone_reads(explainer) else reach
    return felt, reach if "core" in explainer.settings.views.split("+") else 0


def _everyone_reads(explainer: Explainer) -> bool:
    return explainer.settings.plain_weight == 0


def _every(rows: Tensor) -> Tensor:
    return torch.arange(rows.numel(), device=rows.device)


def _client(
    explainer: Explainer, replicas: Replicas, bank: TextTable, read: Ragged
) -> ReplicatedClient:
    """Return the client and its replicas; evidence is read for the nodes in `read`, by case."""
    data, total = explainer.data, replicas.size + replicas.origin.numel()
    if _everyone_reads(explainer):
        # Difficulty depends on the evidence of every node.
        nodes = torch.arange(total, device=data.device)
    else:
        nodes = replicas.place(read.rows(), read.index)
    graph = ReplicatedGraph(data.graph, replicas, nodes, explainer.settings.fan_out)
    labels = torch.cat([data.label_table, data.label_table[replicas.origin]])
    return ReplicatedClient(total, data.device, bank, labels, graph)


def difference(entries: Ragged, others: Ragged) -> Ragged:
    """Return the entries that are not in the same row of `others`."""
    size = 1 + max(int(part.max()) if part.numel() else 0 for part in (others.index, entries.index))
    return entries.keep(
        ~torch.isin(entries.rows() * size + entries.index, others.rows() * size + others.index)
    )


def _passes(sizes: Tensor, max_size: int) -> Iterator[Tensor]:
    number = (sizes.cumsum(0) - 1) // max(max_size, 1)
    counts = torch.unique_consecutive(number, return_counts=True)[1].tolist()
    if counts:
        yield from torch.split(torch.arange(sizes.numel(), device=sizes.device), counts)


def _blank(table: TextTable) -> TextTable:
    empty = Ragged(torch.zeros_like(table.chunks_of.ptr), table.chunks_of.index[:0])
    return TextTable(table.chunks, empty, torch.zeros_like(table.nodes))


def _changed_table(
    data: ClientData, replicas: Replicas, changes: Ragged, texts_elsewhere: bool
) -> TextTable:
    """Return the bank of the client and its replicas, which share the chunk embeddings.

    Parameters
    ----------
    changes : chunks to remove by case; without texts elsewhere, chunks to keep
    """
    table = data.table
    # Without texts elsewhere, only replicas have text.
    shared = table if texts_elsewhere else _blank(table)
    # Replicas share the chunk embeddings and differ in the chunks that they have.
    before = table.chunks_of.take(replicas.origin)
    total = table.chunks.size(0)
    named = torch.isin(
        replicas.case[before.rows()] * total + before.index, changes.rows() * total + changes.index
    )
    after = before.keep(~named if texts_elsewhere else named)
    changed = torch.nonzero(after.ptr.diff() != before.ptr.diff()).flatten()
    rest = after.take(changed)
    nodes = table.nodes[replicas.origin]
    nodes[changed] = _pooled(data, replicas.origin[changed], rest).to(nodes.dtype)
    return TextTable(
        table.chunks, stack_rows([shared.chunks_of, after]), torch.cat([shared.nodes, nodes])
    )


def _pooled(data: ClientData, nodes: Tensor, rest: Ragged) -> Tensor:
    """Return t_u of these nodes, pooled from the rest of their chunks as the client pools texts."""
    chunks = data.table.chunks
    if data.reading.text_pooling != AGREEMENT:
        return pool_chunks(chunks[rest.index], rest.ptr)

    # Why (decision 18): under pooling by agreement, the rest is weighted around the c_u of the full
    # texts, so that no text farther away changes.
    def compute() -> Tensor:
        rows = data.table.chunks_of
        texts = pool_chunks(chunks[rows.index], rows.ptr)
        return last_context(chunks, rows, data.compared_rows, texts, data.reading)

    around = data.cached("last context", data.reading, compute)[nodes]
    return weighted_rows(chunk_weights(chunks, rest, around, data.reading), rest, chunks)
