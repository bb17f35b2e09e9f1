"""A client with replicas of some of its nodes, whose texts differ from case to case."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.passes import GraphView
from dance_flwr.nn.hops import HopLists
from dance_flwr.nn.propagation import sparse_csr
from dance_flwr.nn.ragged import Ragged, ptr_of_sizes, row_of_entry


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


class ReplicatedGraph:
    """A `GraphView` of the client's nodes and their replicas.

    Parameters
    ----------
    read : [k] int64 numbers of nodes and replicas whose evidence is read; others have none
    """

    def __init__(self, graph: GraphView, replicas: Replicas, read: Tensor, fan_out: int) -> None:
        self._graph, self._replicas = graph, replicas
        self._hops = _ReplicatedHops(graph.hops(fan_out), replicas, read)

    def hops(self, fan_out: int = 0) -> HopLists:
        """Return the client's neighbourhoods under the fan-out that it was built with."""
        return self._hops

    def operator(self, kind: str) -> Tensor:
        """Return the client's operator, then the rows of the replicas, which point to replicas."""
        base, replicas = self._graph.operator(kind), self._replicas
        crow, col, value = base.crow_indices(), base.col_indices(), base.values()
        # The values of the origin: texts differ between cases, degrees and edges do not.
        entries = Ragged(crow, torch.arange(col.numel(), device=col.device)).take(replicas.origin)
        cols = replicas.place(replicas.case[entries.rows()], col[entries.index])
        rows = torch.cat([row_of_entry(crow), replicas.size + entries.rows()])
        size = replicas.size + replicas.origin.numel()
        values = torch.cat([value, value[entries.index]])
        return sparse_csr(rows, torch.cat([col, cols]), values, size)


class _ReplicatedHops:
    """`HopLists` of the client's nodes and their replicas; empty where no evidence is read."""

    def __init__(self, hops: HopLists, replicas: Replicas, read: Tensor) -> None:
        # Case -1 has no replicas, so nodes of the client read the client.
        case = torch.cat([replicas.case.new_full((replicas.size,), -1), replicas.case])
        origin = torch.cat([torch.arange(replicas.size, device=case.device), replicas.origin])

        def placed(lists: Ragged) -> Ragged:
            sizes = lists.ptr.new_zeros(len(origin))
            sizes[read] = lists.ptr.diff()
            return Ragged(
                ptr_of_sizes(sizes), replicas.place(case[read][lists.rows()], lists.index)
            )

        nodes = origin[read]
        self._zero, self._one, self._two = (
            placed(lists) for lists in (hops.zero(nodes), hops.one(nodes), hops.two(nodes))
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
