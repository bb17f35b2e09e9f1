"""Predictions after chunks were removed from the text bank, many cases in one pass.

A changed text at u changes g within the backbone's reach of u only. So each case gets replicas of
these nodes and of its target, which read all other nodes from the unchanged client. The result is
the prediction of the whole client with the changed bank; the graph and its weights stay.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from dance_flwr.client_data.agreement import chunk_weights, last_context
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.text_table import TextTable, pool_chunks
from dance_flwr.config.sections import AGREEMENT
from dance_flwr.dance.inference import DEPLOYED, predict, views_of
from dance_flwr.dance.nodes import Prediction
from dance_flwr.dance.passes import Reader, pass_of_texts, projected_texts
from dance_flwr.dance.text import chunks_of_neighbours
from dance_flwr.evidence.balls import among, max_around, nodes_around
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.replicas import (
    Halved,
    Replicas,
    ReplicatedClient,
    ReplicatedGraph,
    ReplicatedHops,
)
from dance_flwr.nn.ragged import Ragged, concat_rows, rank_in_row, stack_rows, weighted_rows

TEXT_HOPS = 2  # where the evidence of a node comes from
# Replicas per pass. A pass also includes every node of the client, so a pass of a large client has
# at least as many replicas as the client has nodes.
_NODES_PER_PASS = 65_536
_NODES_AT_ONCE = 4_000_000  # replicas to search for before they are divided into passes


class _Read(NamedTuple):
    """Nodes that need replicas for each of I targets: `distinct` by distinct target, and its row.

    One target may occur in many cases: its nodes are found once.
    """

    distinct: Ragged
    row: Tensor

    def take(self, cases: Tensor) -> Ragged:
        return self.distinct.take(self.row[cases])


def repredict(explainer: Explainer, targets: Tensor, remaining: Ragged) -> Tensor:
    """Return p(y | v_i) with only the chunks remaining_i within two hops of v_i; [I, C].

    All other chunks there are removed from the bank: t_u is pooled from the rest, and a node
    without chunks has t_u = 0 and offers no evidence. Then all of `predict` runs again: plain pass,
    gates, chunk selection, fusion, every view. The result is the deployed prediction, before any
    smoothing.

    Parameters
    ----------
    targets : [I] int64 nodes, one per case, which may repeat
    remaining : I rows of chunk numbers, of nodes within two hops of the target
    """
    near = near_chunks(explainer.data, targets)
    gone = near.keep(~among(near.rows(), near.index, remaining))
    return predict_changed(explainer, targets, gone)


@torch.no_grad()
def predict_changed(explainer: Explainer, targets: Tensor, changes: Ragged) -> Tensor:
    """Return what `repredict` returns, by the chunks to remove instead of those that remain.

    Parameters
    ----------
    changes : I rows of chunk numbers to remove
    """
    data, backbone = explainer.data, explainer.model.backbone
    rows, size = data.graph.rows, data.num_nodes
    hops = data.graph.hops(explainer.settings.fan_out)
    owners = Ragged(changes.ptr, data.table.node_of_chunk[changes.index])
    halved = Halved.of(backbone.operator, data.graph.operator(backbone.operator))
    projected = projected_texts(backbone, data.table.nodes)
    results = []
    # By an upper bound, as the search for replicas itself needs memory.
    for group in _passes(max_replicas(explainer, targets, owners), _NODES_AT_ONCE):
        read = _read(explainer, targets[group])
        changed = [owners.take(group), _changed(explainer, owners.take(group), read)]
        replicated = nodes_around(rows, concat_rows([*changed, read.take(_every(group))]), 0)
        for cases in _passes(replicated.ptr.diff(), max(_NODES_PER_PASS, size)):
            replicas, which = Replicas.of(size, replicated.take(cases)), group[cases]
            nodes, removed = targets[which], changes.take(which)
            if not _lean(explainer):
                bank = _changed_table(data, replicas, removed)
                client = _client(explainer, replicas, bank, halved, read.take(cases))
                reader = Reader(explainer.model, client, explainer.settings, client.graph)
                results.append(predict(reader, replicas.place(_every(nodes), nodes))[DEPLOYED])
                continue
            # A changed text changes g of many nodes: only a few of them need a text of their own.
            own = nodes_around(rows, concat_rows([owners.take(which), hops.zero(nodes)]), 0)
            texts = Replicas.of(size, own)
            bank = _changed_table(data, texts, removed)
            read_texts = torch.cat([projected, projected_texts(backbone, bank.nodes[size:])])
            place = torch.cat([_every(rows.ptr[1:]), texts.place(replicas.case, replicas.origin)])
            plain = pass_of_texts(explainer.model, read_texts[place], halved.replicated(replicas))
            results.append(_from_targets(explainer, nodes, plain, replicas, texts, bank))
    if not results:
        return torch.zeros(0, len(data.card.class_names), device=data.device)
    return torch.cat(results)


def _from_targets(
    explainer: Explainer,
    targets: Tensor,
    plain: Prediction,
    replicas: Replicas,
    texts: Replicas,
    bank: TextTable,
) -> Tensor:
    """Return p(y | v) of each case where no evidence is read but that of the targets; [J, C].

    Parameters
    ----------
    plain : of the client's nodes and `replicas`
    texts, bank : the targets and the nodes whose texts change, and the texts of client and these
    """
    data, settings, case = explainer.data, explainer.settings, _every(targets)
    hops = data.graph.hops(settings.fan_out)
    far = hops.two(targets)
    # Hop 2 is preselected here, as difficulties are those of replicas.
    difficulty = plain.difficulty[replicas.place(far.rows(), far.index)]
    far = far.keep(rank_in_row(difficulty, far.ptr) < settings.hop2_pool)
    nodes = texts.place(case, targets)
    lists = ReplicatedHops((hops.zero(targets), hops.one(targets), far), texts, nodes)
    hidden = plain.hidden[replicas.place(case, targets)]
    client = ReplicatedClient.of(data, texts, bank, ReplicatedGraph(lists, None))
    reader = Reader(explainer.model, client, settings, client.graph)
    nothing = hidden.new_zeros(client.num_nodes)
    return views_of(reader, nodes, hidden, nothing)[DEPLOYED]


def max_replicas(explainer: Explainer, targets: Tensor, owners: Ragged) -> Tensor:
    """Return an upper bound of the number of replicas of each case, [I] int64, without a search.

    Parameters
    ----------
    owners : I rows of nodes whose texts change
    """
    rows, fan_out = explainer.data.graph.rows, explainer.settings.fan_out
    around = max_around(rows, _changed_radius(explainer))[owners.index]
    if not _lean(explainer):
        bound = max_around(rows, _read_radius(explainer))[targets]
    else:
        # The target and its 2-hop neighbours.
        bound = torch.full_like(targets, 1 + fan_out**2 if fan_out else explainer.data.num_nodes)
    return bound.index_add(0, owners.rows(), around).clamp(max=explainer.data.num_nodes)


def near_chunks(data: ClientData, nodes: Tensor) -> Ragged:
    """Return every chunk within two hops of each node, whatever the fan-out; one row per node."""
    distinct, row = torch.unique(nodes, return_inverse=True)
    near = nodes_around(data.graph.rows, data.graph.hops().zero(distinct), TEXT_HOPS)
    return chunks_of_neighbours(near.take(row), data.table.chunks_of)


def _lean(explainer: Explainer) -> bool:
    """Return whether a prediction reads the evidence of its target alone."""
    # Without a trained plain view, difficulty depends on the evidence of every node.
    return not _everyone_reads(explainer) and not _read_radius(explainer)


def _everyone_reads(explainer: Explainer) -> bool:
    return explainer.settings.plain_weight == 0


def _read_radius(explainer: Explainer) -> int:
    """Return the radius around a target in which evidence is read."""
    views = explainer.settings.views.split("+")
    reach: int = explainer.model.backbone.reach
    return reach if "core" in views else 0


def _changed_radius(explainer: Explainer) -> int:
    """Return the radius around a changed text in which nodes need replicas."""
    reach: int = explainer.model.backbone.reach
    if _lean(explainer):
        # Farther nodes change in the last layer alone: those whose g is read are in `_read`.
        return reach - 1
    # Changes also spread through evidence.
    return 2 * reach + TEXT_HOPS if _everyone_reads(explainer) else reach


def _changed(explainer: Explainer, owners: Ragged, read: _Read) -> Ragged:
    """Return the nodes that change where texts of `owners` do, as far as they are read; rows."""
    rows, radius = explainer.data.graph.rows, _changed_radius(explainer)
    changed = nodes_around(rows, owners, radius)
    if not _lean(explainer):
        return changed
    around = Replicas.of(rows.num_rows, nodes_around(rows, read.distinct, radius))
    return changed.keep(around.place(read.row[changed.rows()], changed.index) >= rows.num_rows)


def _read(explainer: Explainer, targets: Tensor) -> _Read:
    """Return the nodes around each target that need replicas wherever texts change."""
    rows, hops = explainer.data.graph.rows, explainer.data.graph.hops(explainer.settings.fan_out)
    nodes, row = torch.unique(targets, return_inverse=True)
    if not _lean(explainer):
        return _Read(nodes_around(rows, hops.zero(nodes), _read_radius(explainer)), row)
    # Of those at hop 2, the difficulty is read.
    return _Read(concat_rows([hops.zero(nodes), hops.two(nodes)]), row)


def _every(rows: Tensor) -> Tensor:
    return torch.arange(rows.numel(), device=rows.device)


def _client(
    explainer: Explainer, replicas: Replicas, bank: TextTable, halved: Halved, read: Ragged
) -> ReplicatedClient:
    """Return the client and its replicas; evidence is read for the nodes in `read`, by case."""
    data = explainer.data
    if _everyone_reads(explainer):
        # Difficulty depends on the evidence of every node.
        nodes = torch.arange(replicas.origins.numel(), device=data.device)
    else:
        nodes = replicas.place(read.rows(), read.index)
    hops, origin = data.graph.hops(explainer.settings.fan_out), replicas.origins[nodes]
    lists = ReplicatedHops((hops.zero(origin), hops.one(origin), hops.two(origin)), replicas, nodes)
    graph = ReplicatedGraph(lists, halved.replicated(replicas))
    return ReplicatedClient.of(data, replicas, bank, graph)


def _passes(sizes: Tensor, max_size: int) -> Iterator[Tensor]:
    number = (sizes.cumsum(0) - 1) // max(max_size, 1)
    counts = torch.unique_consecutive(number, return_counts=True)[1].tolist()
    if counts:
        yield from torch.split(torch.arange(sizes.numel(), device=sizes.device), counts)


def _changed_table(data: ClientData, replicas: Replicas, changes: Ragged) -> TextTable:
    """Return the bank of the client and its replicas, which share the chunk embeddings.

    Parameters
    ----------
    changes : chunks to remove by case
    """
    table = data.table
    # Replicas share the chunk embeddings and differ in the chunks that they have.
    before = table.chunks_of.take(replicas.origin)
    named = among(replicas.case[before.rows()], before.index, changes)
    after = before.keep(~named)
    changed = torch.nonzero(after.ptr.diff() != before.ptr.diff()).flatten()
    rest = after.take(changed)
    nodes = table.nodes[replicas.origin]
    nodes[changed] = _pooled(data, replicas.origin[changed], rest).to(nodes.dtype)
    return TextTable(
        table.chunks, stack_rows([table.chunks_of, after]), torch.cat([table.nodes, nodes])
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
