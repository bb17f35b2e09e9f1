"""Predictions after chunks were removed from the text bank, many cases in one pass.

Texts that change within two hops of v change g_u within two hops more than the backbone reaches,
and nothing beyond. So each case gets copies of the nodes within that distance of its target; they
point to one shared, unchanged client for all other nodes. The result is what the whole client would
predict with the changed bank; the graph and its weights stay.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dance_flwr.config.sections import AGREEMENT
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import predict
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.passes import GraphView
from dance_flwr.data.site import Site
from dance_flwr.data.text.agreement import chunk_weights, last_context
from dance_flwr.data.text.table import TextTable, pool_chunks
from dance_flwr.nn.hops import Balls, HopLists
from dance_flwr.nn.propagation import sparse_csr
from dance_flwr.nn.ragged import Ragged, ptr_of_sizes, row_of_entry, stack_rows, weighted_rows

TEXT_HOPS = 2  # where the evidence of a node comes from
# Copies per pass; at least as many as the client has nodes, since every pass includes those too.
_NODES_PER_PASS = 8192


@torch.no_grad()
def repredict(
    model: DanceModel,
    site: Site,
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
    reach = model.backbone.reach
    balls = [
        Balls.of(site.graph.rows, targets, radius)
        for radius in (TEXT_HOPS, reach, TEXT_HOPS + reach)
    ]
    shared = site.table if texts_elsewhere else _blank(site.table)
    results = []
    for cases in _passes(balls[2].sizes(), max(_NODES_PER_PASS, site.num_nodes)):
        copies = Copies.of(site.num_nodes, *(ball.take(cases) for ball in balls))
        table = _changed_table(site, shared, copies, kept.take(cases), texts_elsewhere)
        labels = torch.cat([site.label_table, site.label_table[copies.origin]])
        client = _CopiedClient(
            table.nodes.size(0),
            site.device,
            table,
            labels,
            _CopiedGraph(site.graph, copies, settings.fan_out),
        )
        probs = predict(model, client, settings)["deployed"]
        results.append(
            probs[copies.place(torch.arange(cases.numel(), device=site.device), targets[cases])]
        )
    return (
        torch.cat(results)
        if results
        else torch.zeros(0, len(site.card.class_names), device=site.device)
    )


@dataclass(frozen=True)
class Copies:
    """Copies of nodes by case: the client's n nodes come first, then the copies, case by case.

    Attributes
    ----------
    size : n
    case, origin : [N - n] int64, the case and the node of each copy; ascending
    changes : [N - n] bool, where texts may change
    read : [N - n] bool, whose evidence the prediction of the case's target reads
    """

    size: int
    case: Tensor
    origin: Tensor
    changes: Tensor
    read: Tensor

    @classmethod
    def of(cls, size: int, changes: Ragged, read: Ragged, copied: Ragged) -> "Copies":
        """Copy the nodes of `copied`; all have one row per case."""
        keys, row, node = copied.rows() * size + copied.index, copied.rows(), copied.index
        inside = [torch.isin(keys, nodes.rows() * size + nodes.index) for nodes in (changes, read)]
        return cls(size, row, node, *inside)

    @cached_property
    def _keys(self) -> Tensor:
        return self.case * self.size + self.origin

    def place(self, case: Tensor, node: Tensor) -> Tensor:
        """Return the number of a node in a case: of its copy, or of the node itself; [E] int64."""
        keys = case * self.size + node
        at = torch.searchsorted(self._keys, keys).clamp(max=max(self._keys.numel() - 1, 0))
        return torch.where(self._keys[at] == keys, self.size + at, node)


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
    site: Site, shared: TextTable, copies: Copies, kept: Ragged, texts_elsewhere: bool
) -> TextTable:
    """Return the bank of the client and its copies, which share the chunk embeddings."""
    table = site.table
    before = table.chunks_of.take(copies.origin)
    row, total = before.rows(), table.chunks.size(0)
    stays = torch.isin(copies.case[row] * total + before.index, kept.rows() * total + kept.index)
    if texts_elsewhere:
        stays |= ~copies.changes[row]
    after = before.keep(stays)
    changed = torch.nonzero(after.ptr.diff() != before.ptr.diff()).flatten()
    rest = after.take(changed)
    nodes = table.nodes[copies.origin]
    nodes[changed] = _pooled(site, copies.origin[changed], rest).to(nodes.dtype)
    return TextTable(
        table.chunks, stack_rows([shared.chunks_of, after]), torch.cat([shared.nodes, nodes])
    )


def _pooled(site: Site, nodes: Tensor, rest: Ragged) -> Tensor:
    """Return t_u of these nodes from what is left of their chunks, as the site reads texts."""
    chunks = site.table.chunks
    if site.reading.text_pooling != AGREEMENT:
        return pool_chunks(chunks[rest.index], rest.ptr)

    def compute() -> Tensor:
        own = site.table.chunks_of
        texts = pool_chunks(chunks[own.index], own.ptr)
        return last_context(chunks, own, site.compared_rows, texts, site.reading)

    around = site.remember("last context", site.reading, compute)[nodes]
    return weighted_rows(chunk_weights(chunks, rest, around, site.reading), rest, chunks)


@dataclass(frozen=True)
class _CopiedClient:
    """A `ClientView` of the client's nodes and their copies."""

    num_nodes: int
    device: torch.device
    table: TextTable
    label_table: Tensor
    graph: "_CopiedGraph"


class _CopiedGraph:
    """A `GraphView` of the client's nodes and their copies."""

    def __init__(self, graph: GraphView, copies: Copies, fan_out: int) -> None:
        self._graph, self._copies = graph, copies
        self._hops = _CopiedHops(graph.hops(fan_out), copies)

    def hops(self, fan_out: int = 0) -> HopLists:
        """Return the client's neighbourhoods under the fan-out that it was built with."""
        return self._hops

    def operator(self, kind: str) -> Tensor:
        """Return the client's operator with the rows of the copies appended, pointing to copies."""
        base, copies = self._graph.operator(kind), self._copies
        crow, col, value = base.crow_indices(), base.col_indices(), base.values()
        entries = Ragged(crow, torch.arange(col.numel(), device=col.device)).take(copies.origin)
        cols = copies.place(copies.case[entries.rows()], col[entries.index])
        rows = torch.cat([row_of_entry(crow), copies.size + entries.rows()])
        size = copies.size + copies.origin.numel()
        values = torch.cat([value, value[entries.index]])
        return sparse_csr(rows, torch.cat([col, cols]), values, size)


class _CopiedHops:
    """`HopLists` of the client's nodes and their copies; empty where no evidence is read."""

    def __init__(self, hops: HopLists, copies: Copies) -> None:
        self._copies = copies
        rows = torch.nonzero(copies.read).flatten()
        nodes = copies.origin[rows]
        zero, one, two = (
            self._place(lists, rows)
            for lists in (hops.zero(nodes), hops.one(nodes), hops.two(nodes))
        )
        self._zero, self._one, self._two = zero, one, two

    def _place(self, lists: Ragged, rows: Tensor) -> Ragged:
        copies = self._copies
        sizes = lists.ptr.new_zeros(copies.size + copies.origin.numel())
        sizes[copies.size + rows] = lists.ptr.diff()
        return Ragged(
            ptr_of_sizes(sizes), copies.place(copies.case[rows][lists.rows()], lists.index)
        )

    def zero(self, rows: Tensor) -> Ragged:
        """Return the node itself where evidence is needed."""
        return self._zero.take(rows)

    def one(self, rows: Tensor) -> Ragged:
        """Return the 1-hop neighbours where evidence is needed."""
        return self._one.take(rows)

    def two(self, rows: Tensor) -> Ragged:
        """Return the 2-hop neighbours where evidence is needed."""
        return self._two.take(rows)
