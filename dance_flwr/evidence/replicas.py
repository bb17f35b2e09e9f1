"""A client with replicas of some of its nodes, whose texts differ from case to case."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.selection import ThreeHops
from dance_flwr.nn.propagation import propagated, sparse_csr
from dance_flwr.nn.ragged import Ragged, ptr_of_rows, ptr_of_sizes, row_of_entry


@dataclass(frozen=True)
class Replicas:
    """Replicas of nodes, numbered after the client's n nodes, case by case.

    Attributes
    ----------
    size : n
    case, origin : [N - n] int64, the case and the node of each replica; ascending
    """

    size: int
    case: Tensor
    origin: Tensor

    @classmethod
    def of(cls, size: int, nodes: Ragged) -> "Replicas":
        """Replicate the nodes of row i, in ascending order, for case i."""
        return cls(size, nodes.rows(), nodes.index)

    @cached_property
    def origins(self) -> Tensor:
        """[N] int64, the node of each node and replica."""
        return torch.cat([torch.arange(self.size, device=self.origin.device), self.origin])

    @cached_property
    def _keys(self) -> Tensor:
        # Ascending, as replicas are, so that `place` can bisect.
        return self.case * self.size + self.origin

    def place(self, case: Tensor, node: Tensor) -> Tensor:
        """Return the number of a node in a case: of its replica, or of the node itself; [E] int64.

        Case -1 is the client without replicas.
        """
        if not self._keys.numel():
            return node
        keys = case * self.size + node
        # Keys after the last one are compared with the last one, which differs.
        at = torch.searchsorted(self._keys, keys).clamp(max=self._keys.numel() - 1)
        return torch.where(self._keys[at] == keys, self.size + at, node)


@dataclass(frozen=True)
class ReplicatedClient:
    """A `ClientView` of the client's nodes and their replicas."""

    num_nodes: int
    device: torch.device
    table: TextTable
    label_table: Tensor
    graph: "ReplicatedGraph"

    @classmethod
    def of(
        cls, data: ClientData, replicas: Replicas, table: TextTable, graph: "ReplicatedGraph"
    ) -> "ReplicatedClient":
        """Return the client whose replicas have these texts and this graph."""
        labels = data.label_table[replicas.origins]
        return cls(len(labels), data.device, table, labels, graph)


@dataclass(frozen=True)
class ReplicatedGraph:
    """A `GraphView` of the client's nodes and their replicas, under one fan-out and operator."""

    lists: "ReplicatedHops"
    propagation: Any

    def hops(self, fan_out: int = 0) -> "ReplicatedHops":
        """Return the neighbourhoods, under the fan-out that they were made with."""
        return self.lists

    def operator(self, kind: str) -> Any:
        """Return the operator, as `Halved.replicated` makes it."""
        return self.propagation


@dataclass(frozen=True)
class Halved:
    """The operator P of an undirected graph, each edge at the end of lower degree.

    A pair of replicas of one case is found from there, without a search of the neighbours of hubs.

    Attributes
    ----------
    kind : of the operator; whole : P, [n, n] sparse CSR
    rows : n rows of neighbours of no lower degree, and the node itself where P has the diagonal
    there, back : [E] P_ij and P_ji of neighbour j of node i
    """

    kind: str
    whole: Tensor
    rows: Ragged
    there: Tensor
    back: Tensor

    @classmethod
    def of(cls, kind: str, whole: Tensor) -> "Halved":
        """Divide an operator whose entries come in pairs (i, j), (j, i)."""
        ptr, col, value = whole.crow_indices(), whole.col_indices(), whole.values()
        row, size = row_of_entry(ptr), whole.size(0)
        rank = ptr.diff() * size + torch.arange(size, device=ptr.device)
        keys, order = torch.sort(row * size + col)
        back = value[order[torch.searchsorted(keys, col * size + row)]]
        half = rank[col] >= rank[row]
        rows = Ragged(ptr_of_rows(row[half], size), col[half])
        return cls(kind, whole, rows, value[half], back[half])

    def replicated(self, replicas: Replicas) -> Any:
        """Return what stands for P of the client's nodes and replicas, which point to replicas."""
        if self.kind == "loops":  # attention reads the entries
            return self._entries(replicas)
        every = torch.arange(self.rows.index.numel(), device=self.there.device)
        half = Ragged(self.rows.ptr, every).take(replicas.origin)
        row = half.rows()
        place = replicas.place(replicas.case[row], self.rows.index[half.index]) - replicas.size
        near = place >= 0
        row, place, entry = row[near], place[near], half.index[near]
        off = row != place
        among = sparse_csr(
            torch.cat([row, place[off]]),
            torch.cat([place, row[off]]),
            torch.cat([self.there[entry], self.back[entry[off]]]),
            replicas.origin.numel(),
        )
        return ReplicatedOperator(self.whole, replicas.origin, among)

    def _entries(self, replicas: Replicas) -> Tensor:
        base = self.whole
        crow, col, value = base.crow_indices(), base.col_indices(), base.values()
        # The values of the origin: texts differ between cases, degrees and edges do not.
        entries = Ragged(crow, torch.arange(col.numel(), device=col.device)).take(replicas.origin)
        cols = replicas.place(replicas.case[entries.rows()], col[entries.index])
        rows = torch.cat([row_of_entry(crow), replicas.size + entries.rows()])
        values = torch.cat([value, value[entries.index]])
        return sparse_csr(rows, torch.cat([col, cols]), values, replicas.origins.numel())


@dataclass(frozen=True)
class ReplicatedOperator:
    """P over the client's nodes and replicas, by what differs between a replica and its origin.

    Attributes
    ----------
    whole : P, [n, n] sparse CSR
    origin : [R] int64, the node of each replica
    among : [R, R] sparse CSR, P between replicas of one case
    """

    whole: Tensor
    origin: Tensor
    among: Tensor

    def __matmul__(self, features: Tensor) -> Tensor:
        """Return P X; [n + R, d] -> [n + R, d]."""
        size = len(features) - len(self.origin)
        base, replicas = features[:size], features[size:]
        own = propagated(self.whole, base)
        added = propagated(self.among, replicas - base[self.origin])
        return torch.cat([own, own[self.origin] + added])


class ReplicatedHops:
    """`HopLists` of the client's nodes and their replicas; empty where no evidence is read.

    Parameters
    ----------
    lists : candidates at hops 0, 1 and 2, as nodes of the client, of each of `read`
    read : [k] int64 numbers of nodes and replicas whose evidence is read
    """

    def __init__(self, lists: ThreeHops, replicas: Replicas, read: Tensor) -> None:
        # Case -1 has no replicas, so nodes of the client read the client.
        case = torch.cat([replicas.case.new_full((replicas.size,), -1), replicas.case])[read]

        def placed(rows: Ragged) -> Ragged:
            sizes = rows.ptr.new_zeros(replicas.origins.numel())
            sizes[read] = rows.ptr.diff()
            return Ragged(ptr_of_sizes(sizes), replicas.place(case[rows.rows()], rows.index))

        self._zero, self._one, self._two = map(placed, lists)

    def zero(self, rows: Tensor) -> Ragged:
        """Return the node itself where evidence is needed."""
        return self._zero.take(rows)

    def one(self, rows: Tensor) -> Ragged:
        """Return the 1-hop neighbours where evidence is needed."""
        return self._one.take(rows)

    def two(self, rows: Tensor) -> Ragged:
        """Return the 2-hop neighbours where evidence is needed."""
        return self._two.take(rows)
