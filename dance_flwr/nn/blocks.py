"""Blocks: the part of a graph that a backbone reads for some of its rows, with sampled neighbours.

Uniform neighbour sampling (Hamilton et al. 2017), stratified as in `neighbourhood.sample_rows`. A
block is a graph of its own, so that a backbone runs on it unchanged.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dance_flwr.nn.neighbourhood import sample_rows
from dance_flwr.nn.propagation import sparse_csr
from dance_flwr.nn.ragged import Ragged, ptr_of_rows, row_of_entry


@dataclass(frozen=True)
class Block:
    """The nodes that some targets depend on, and the operator among them.

    Attributes
    ----------
    nodes : [b] int64, the targets first
    operator : [b, b] sparse CSR; rows of nodes that only the first layer reads are incomplete
    """

    nodes: Int64[Tensor, "b"]
    operator: Float[Tensor, "b b"]


@dataclass(frozen=True)
class OperatorRows:
    """An operator of `propagation.operator` as rows to sample from, the diagonal apart.

    A node's entry on the diagonal is never left out. The entries of the kind "loops" are features
    of edges under a softmax and not summed, so those that are sampled stay as they are.

    Attributes
    ----------
    others : n rows, the columns of the entries off the diagonal
    values : [E], their values
    has_loop : [n] bool, whether a row has an entry on the diagonal
    loops : [n], the value of that entry, 0 where there is none
    summed : whether a value that stands for several is multiplied by their number
    """

    others: Ragged
    values: Float[Tensor, "E"]
    has_loop: Bool[Tensor, "n"]
    loops: Float[Tensor, "n"]
    summed: bool

    @classmethod
    def of(cls, operator: Float[Tensor, "n n"], kind: str) -> "OperatorRows":
        """Return the rows of an operator; O(E), once per graph."""
        ptr, cols, values = operator.crow_indices(), operator.col_indices(), operator.values()
        rows, size = row_of_entry(ptr), ptr.numel() - 1
        on_diagonal = rows == cols
        loops = values.new_zeros(size).index_copy(0, rows[on_diagonal], values[on_diagonal])
        has_loop = torch.zeros(size, dtype=torch.bool, device=rows.device)
        has_loop[rows[on_diagonal]] = True
        others = Ragged(ptr_of_rows(rows[~on_diagonal], size), cols[~on_diagonal])
        # Why "loops" apart (decision 15): attention reads entries under a softmax, where one entry
        # cannot stand for several.
        return cls(others, values[~on_diagonal], has_loop, loops, kind != "loops")

    def block(
        self, targets: Int64[Tensor, "t"], radius: int, fan_out: int, generator: torch.Generator
    ) -> Block:
        """Sample the block of some targets: each node within reach, and its sampled neighbours.

        With L layers and fan-out B a target has at most 1 + B + .. + B^L nodes. A node is sampled
        once, for all layers. Every sum over neighbours is unbiased given what it sums; where none
        is left out, the targets' rows equal those of the whole graph.

        Parameters
        ----------
        targets : [t] int64, distinct nodes
        radius : L, `Backbone.reach`
        fan_out : B, neighbours per node; 0 = all
        generator : a CPU generator; the only source of randomness
        """
        place = torch.full_like(self.has_loop, -1, dtype=torch.int64)
        nodes, frontier = [targets], targets
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        place[targets], count = torch.arange(len(targets), device=place.device), len(targets)
        for _ in range(radius):
            # Why B entries of each row (decision 15): a hub costs no more than any other node.
            sample = sample_rows(self.others, frontier, fan_out, generator)
            ends, values = self.others.index[sample.place], self.values[sample.place]
            values = values * sample.weight if self.summed else values
            parts.append((place[frontier][sample.row], ends, values))
            # Why only nodes without a place (decision 15): a node is sampled once, for all layers.
            frontier = torch.unique(ends[place[ends] < 0])
            place[frontier] = torch.arange(count, count + len(frontier), device=place.device)
            nodes, count = [*nodes, frontier], count + len(frontier)
        every = torch.cat(nodes)
        # The diagonal last, of all nodes: it is never sampled away (decision 15).
        looped = every[self.has_loop[every]]
        parts.append((place[looped], looped, self.loops[looped]))
        rows, ends, values = (torch.cat(columns) for columns in zip(*parts, strict=True))
        return Block(every, sparse_csr(rows, place[ends], values, count))
