"""The impaired graph: a share of the validation nodes is hidden, the rest is the training input."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dance_flwr.nn.propagation import operator


@dataclass(frozen=True)
class ImpairedGraph:
    """A graph without its hidden nodes: m renumbered nodes, and the neighbours that each one lost.

    Attributes
    ----------
    nodes : [m] int64, their numbers in the complete graph
    rows, cols : [E] int64, edges in both directions, numbered 0..m-1
    lost : [m, P] int64, hidden neighbours by their number in the complete graph, padded with -1
    """

    nodes: Tensor
    rows: Tensor
    cols: Tensor
    lost: Tensor

    @property
    def missing(self) -> Tensor:
        """m_v, the number of hidden neighbours, at most P; [m] float32."""
        return (self.lost >= 0).sum(dim=1).float()

    def operator(self, kind: str) -> Tensor:
        """Return the propagation operator of the impaired graph, [m, m] sparse."""
        weights = torch.ones_like(self.rows, dtype=torch.float32)
        return operator(kind, self.rows, self.cols, weights, len(self.nodes))


def draw_hidden_nodes(candidates: Tensor, share: float) -> Tensor:
    """Return floor(share * |candidates|) random candidates as a mask; [n] bool -> [n] bool.

    Pass validation nodes only: test nodes must not become targets. Labels of hidden nodes are
    never read.
    """
    nodes = torch.nonzero(candidates).flatten()
    order = torch.randperm(len(nodes)).to(candidates.device)
    hidden = torch.zeros_like(candidates)
    hidden[nodes[order[: int(share * len(nodes))]]] = True
    return hidden


def impair(rows: Tensor, cols: Tensor, visible: Tensor, hidden: Tensor, most: int) -> ImpairedGraph:
    """Remove the hidden nodes and their edges.

    Parameters
    ----------
    rows, cols : [E] int64, edges in both directions, ordered by row
    visible : [n] bool, nodes that training may see
    hidden : [n] bool, a subset of them
    most : P
    """
    remaining = visible & ~hidden
    nodes = torch.nonzero(remaining).flatten()
    position = torch.cumsum(remaining, 0) - 1
    inside = remaining[rows] & remaining[cols]
    lost = neighbour_table(rows, cols, hidden, most)[nodes]
    return ImpairedGraph(nodes, position[rows[inside]], position[cols[inside]], lost)


def neighbour_table(rows: Tensor, cols: Tensor, eligible: Tensor, most: int) -> Tensor:
    """Return the first `most` eligible neighbours of each node, padded with -1; [n, most] int64.

    Neighbours are in ascending order.

    Parameters
    ----------
    rows, cols : [E] int64, ordered by row
    eligible : [n] bool
    """
    selected = eligible[cols]
    rows, cols = rows[selected], cols[selected]
    count = torch.bincount(rows, minlength=len(eligible))
    rank = torch.arange(len(rows), device=rows.device) - (torch.cumsum(count, 0) - count)[rows]
    table = torch.full((len(eligible), most), -1, device=rows.device)
    near = rank < most
    table[rows[near], rank[near]] = cols[near]
    return table
