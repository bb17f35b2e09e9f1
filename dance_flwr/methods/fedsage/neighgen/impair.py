"""The impaired graph: half of the validation nodes hidden, what is left and what it lost."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dance_flwr.nn.propagation import operator


@dataclass(frozen=True)
class Impaired:
    """A graph without its hidden nodes, m nodes numbered anew, and what each of them lost.

    Attributes
    ----------
    nodes : [m] int64, numbers in the whole graph; rows, cols : [E] int64, edges both ways, numbered
        0..m-1
    lost : [m, P] int64, hidden neighbours by their number in the whole graph, -1 where there are
        fewer
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
        """Return the propagation operator of the graph that is left, [m, m] sparse."""
        return operator(
            kind,
            self.rows,
            self.cols,
            torch.ones_like(self.rows, dtype=torch.float32),
            len(self.nodes),
        )


def hidden_nodes(pool: Tensor, share: float) -> Tensor:
    """Return floor(share * |pool|) nodes of the pool at random, as a mask; [n] bool -> [n] bool.

    The pool holds validation nodes alone: test nodes must not become targets, labels of hidden
    nodes are never read.
    """
    nodes = torch.nonzero(pool).flatten()
    order = torch.randperm(len(nodes)).to(pool.device)
    hidden = torch.zeros_like(pool)
    hidden[nodes[order[: int(share * len(nodes))]]] = True
    return hidden


def impair(rows: Tensor, cols: Tensor, visible: Tensor, hidden: Tensor, most: int) -> Impaired:
    """Hide nodes with their edges; `most` is P.

    Parameters
    ----------
    rows, cols : [E] int64, every edge both ways, ordered by row
    visible : [n] bool, nodes that training may see; hidden : [n] bool, some of them
    """
    shown = visible & ~hidden
    nodes = torch.nonzero(shown).flatten()
    place = torch.cumsum(shown, 0) - 1
    inside = shown[rows] & shown[cols]
    lost = neighbour_table(rows, cols, hidden, most)[nodes]
    return Impaired(nodes, place[rows[inside]], place[cols[inside]], lost)


def neighbour_table(rows: Tensor, cols: Tensor, wanted: Tensor, most: int) -> Tensor:
    """Return of each node the first `most` neighbours that are wanted, in node order, -1 beyond
    them; [n, most] int64.

    Parameters
    ----------
    rows, cols : [E] int64, ordered by row; wanted : [n] bool
    """
    kept = wanted[cols]
    rows, cols = rows[kept], cols[kept]
    count = torch.bincount(rows, minlength=len(wanted))
    rank = torch.arange(len(rows), device=rows.device) - (torch.cumsum(count, 0) - count)[rows]
    table = torch.full((len(wanted), most), -1, device=rows.device)
    near = rank < most
    table[rows[near], rank[near]] = cols[near]
    return table
