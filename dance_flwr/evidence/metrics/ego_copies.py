"""A client with copies of some of its nodes, whose texts differ from case to case."""

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
class Copies:
    """Copies of nodes by case: the client's n nodes come first, then the copies, case by case.

    Attributes
    ----------
    size : n
    case, origin : [N - n] int64, the case and the node of each copy; ascending
    """

    size: int
    case: Tensor
    origin: Tensor

    @classmethod
    def of(cls, size: int, copied: Ragged) -> "Copies":
        """Copy the nodes of each row, which ascend, for the case of this number."""
        return cls(size, copied.rows(), copied.index)

    @cached_property
    def _keys(self) -> Tensor:
        return self.case * self.size + self.origin

    def place(self, case: Tensor, node: Tensor) -> Tensor:
        """Return the number of a node in a case: of its copy, or of the node itself; [E] int64.

        Case -1 is the client as it is, without copies.
        """
        if not self._keys.numel():
            return node
        keys = case * self.size + node
        at = torch.searchsorted(self._keys, keys).clamp(max=self._keys.numel() - 1)
        return torch.where(self._keys[at] == keys, self.size + at, node)


@dataclass(frozen=True)
class CopiedClient:
    """A `ClientView` of the client's nodes and their copies."""

    num_nodes: int
    device: torch.device
    table: TextTable
    label_table: Tensor
    graph: "CopiedGraph"


class CopiedGraph:
    """A `GraphView` of the client's nodes and their copies.

    Parameters
    ----------
    read : [k] int64 numbers of nodes and copies whose evidence may be read; others have none
    """

    def __init__(self, graph: GraphView, copies: Copies, read: Tensor, fan_out: int) -> None:
        self._graph, self._copies = graph, copies
        self._hops = _CopiedHops(graph.hops(fan_out), copies, read)

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

    def __init__(self, hops: HopLists, copies: Copies, read: Tensor) -> None:
        case = torch.cat([copies.case.new_full((copies.size,), -1), copies.case])
        origin = torch.cat([torch.arange(copies.size, device=case.device), copies.origin])

        def placed(lists: Ragged) -> Ragged:
            sizes = lists.ptr.new_zeros(len(origin))
            sizes[read] = lists.ptr.diff()
            return Ragged(ptr_of_sizes(sizes), copies.place(case[read][lists.rows()], lists.index))

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
