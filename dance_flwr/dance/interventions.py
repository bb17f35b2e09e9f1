"""What the deployed predictor says of a node after chunks were taken out of the text bank, many
cases in one pass.

Texts that change within two hops of v change g_u within two hops more than the backbone reaches,
and nothing beyond. So each case gets copies of the nodes within that distance of its target, which
point to one shared, unchanged client for all others. The result is what the whole client would
predict with the changed bank; graph, edges and weights stay.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dance_flwr.dance.algorithm import predict
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.data.site import LocalGraph, Site
from dance_flwr.data.text.table import TextTable, pool_chunks
from dance_flwr.nn.hops import Hops
from dance_flwr.nn.ragged import Ragged, ptr_of_sizes, row_of_entry, stack_rows

TEXT_HOPS = 2  # where the evidence of a node comes from
_NODES_PER_PASS = 8192  # copies; at least as many as the client has nodes, which every pass goes through once more


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
    """p(y | v_i) of the deployed prediction where, of the chunks within two hops of v_i, only
    kept_i are left; [I, C].

    A chunk that is not kept is out of the bank: t_u is pooled from what is left, a node without
    chunks has t_u = 0 and offers no evidence. Then all of `predict` runs again: plain pass, gates,
    chunk selection, fusion, every view.

    Parameters
    ----------
    targets : [I] int64 nodes, one per case; a node may occur often
    kept : I rows of chunk numbers, of nodes within two hops of the target
    texts_elsewhere : texts beyond two hops stay as they are; False = they are taken out too
    """
    reach = model.backbone.reach
    balls = [
        Balls.of(site.graph.hops, targets, radius)
        for radius in (TEXT_HOPS, reach, TEXT_HOPS + reach)
    ]
    shared = site.table if texts_elsewhere else _blank(site.table)
    found = []
    for cases in _passes(balls[2].sizes(), max(_NODES_PER_PASS, site.num_nodes)):
        copies = Copies.of(site.num_nodes, *(ball.take(cases) for ball in balls))
        table = _changed_table(site.table, shared, copies, kept.take(cases), texts_elsewhere)
        labels = torch.cat([site.label_table, site.label_table[copies.origin]])
        client = _CopiedClient(
            table.nodes.size(0), site.device, table, labels, _CopiedGraph(site.graph, copies)
        )
        probs = predict(model, cast(Site, client), settings)["deployed"]
        found.append(
            probs[copies.place(torch.arange(cases.numel(), device=site.device), targets[cases])]
        )
    return (
        torch.cat(found)
        if found
        else torch.zeros(0, len(site.card.class_names), device=site.device)
    )


@dataclass(frozen=True)
class Balls:
    """The nodes within some hops of each of I targets, themselves included.

    Attributes
    ----------
    distinct : one row per distinct target, nodes in ascending order
    row : [I] int64, the row of each target
    """

    distinct: Ragged
    row: Tensor

    @classmethod
    def of(cls, hops: Hops, targets: Tensor, radius: int) -> "Balls":
        """Grow the balls edge by edge."""
        nodes, row = torch.unique(targets, return_inverse=True)
        n = hops.num_nodes
        edges = hops.one(torch.arange(n, device=targets.device))
        indptr, indices = edges.ptr.cpu().numpy(), edges.index.cpu().numpy()
        adjacency = sp.csr_matrix(
            (np.ones(len(indices), np.float32), indices, indptr), shape=(n, n)
        )
        reached = sp.eye(n, format="csr", dtype=np.float32)[nodes.cpu().numpy()]
        for _ in range(radius):
            reached = reached + reached @ adjacency
            reached.data[:] = 1  # only whether there is a path, so that counts cannot overflow
        reached.sort_indices()
        ptr, index = (
            torch.as_tensor(part.astype(np.int64)) for part in (reached.indptr, reached.indices)
        )
        return cls(Ragged(ptr.to(targets.device), index.to(targets.device)), row)

    def sizes(self) -> Tensor:
        """Return the number of nodes around each target, [I] int64."""
        return self.distinct.ptr.diff()[self.row]

    def take(self, cases: Tensor) -> Ragged:
        """Return the nodes around the targets of these cases ([j] int64) as j rows."""
        return self.distinct.take(self.row[cases])


@dataclass(frozen=True)
class Copies:
    """Which nodes are copied for which case. The client's n nodes come first, then the copies, case
    by case.

    Attributes
    ----------
    size : n
    case, origin : [N - n] int64, whose copy, and of which node; ascending
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
        """Return the number under which a case sees a node: its copy, or the client's own where
        there is none; [E].
        """
        wanted = case * self.size + node
        at = torch.searchsorted(self._keys, wanted).clamp(max=max(self._keys.numel() - 1, 0))
        return torch.where(self._keys[at] == wanted, self.size + at, node)


def _passes(sizes: Tensor, most: int) -> Iterator[Tensor]:
    """Yield runs of case numbers whose copies are about `most` nodes together, at least one case
    each.
    """
    number = (sizes.cumsum(0) - 1) // max(most, 1)
    counts = torch.unique_consecutive(number, return_counts=True)[1].tolist()
    if counts:
        yield from torch.split(torch.arange(sizes.numel(), device=sizes.device), counts)


def _blank(table: TextTable) -> TextTable:
    empty = Ragged(torch.zeros_like(table.chunks_of.ptr), table.chunks_of.index[:0])
    return TextTable(table.chunks, empty, torch.zeros_like(table.nodes))


def _changed_table(
    table: TextTable, shared: TextTable, copies: Copies, kept: Ragged, texts_elsewhere: bool
) -> TextTable:
    """Return the bank of the client and its copies. Copies share the chunk embeddings and only list
    fewer of them.
    """
    before = table.chunks_of.take(copies.origin)
    row, total = before.rows(), table.chunks.size(0)
    stays = torch.isin(copies.case[row] * total + before.index, kept.rows() * total + kept.index)
    if texts_elsewhere:
        stays |= ~copies.changes[row]
    after = before.keep(stays)
    changed = torch.nonzero(after.ptr.diff() != before.ptr.diff()).flatten()
    left = after.take(changed)
    nodes = table.nodes[copies.origin]
    nodes[changed] = pool_chunks(table.chunks[left.index], left.ptr).to(nodes.dtype)
    return TextTable(
        table.chunks, stack_rows([shared.chunks_of, after]), torch.cat([shared.nodes, nodes])
    )


@dataclass(frozen=True)
class _CopiedClient:
    """What `predict` reads of a `Site`."""

    num_nodes: int
    device: torch.device
    table: TextTable
    label_table: Tensor
    graph: "_CopiedGraph"


class _CopiedGraph:
    """What `predict` reads of a `LocalGraph`, over the client's nodes and the copies."""

    def __init__(self, graph: LocalGraph, copies: Copies) -> None:
        self._graph, self._copies = graph, copies
        self.hops = _CopiedHops(graph.hops, copies)

    def operator(self, kind: str) -> Tensor:
        """Return the client's operator with the rows of copies below: the same weights, pointing to
        copies.
        """
        base, copies = self._graph.operator(kind), self._copies
        crow, col, value = base.crow_indices(), base.col_indices(), base.values()
        entries = Ragged(crow, torch.arange(col.numel(), device=col.device)).take(copies.origin)
        cols = copies.place(copies.case[entries.rows()], col[entries.index])
        rows = torch.cat([row_of_entry(crow), copies.size + entries.rows()])
        size = copies.size + copies.origin.numel()
        at = torch.stack([rows, torch.cat([col, cols])])
        coo = torch.sparse_coo_tensor(
            at, torch.cat([value, value[entries.index]]), (size, size), check_invariants=False
        )
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="Sparse (CSR tensor support is in beta|invariant checks)"
            )
            return coo.to_sparse_csr()


class _CopiedHops:
    """What `predict` reads of `Hops`. Only nodes whose evidence is read have themselves or anybody
    as a candidate.
    """

    def __init__(self, hops: Hops, copies: Copies) -> None:
        self._copies = copies
        rows = torch.nonzero(copies.read).flatten()
        nodes = copies.origin[rows]
        zero, one, two = (
            self._placed(found, rows)
            for found in (hops.zero(nodes), hops.one(nodes), hops.two(nodes))
        )
        self._zero, self._one, self._two = zero, one, two

    def _placed(self, found: Ragged, rows: Tensor) -> Ragged:
        copies = self._copies
        sizes = found.ptr.new_zeros(copies.size + copies.origin.numel())
        sizes[copies.size + rows] = found.ptr.diff()
        return Ragged(
            ptr_of_sizes(sizes), copies.place(copies.case[rows][found.rows()], found.index)
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
