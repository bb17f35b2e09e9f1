"""The graphs of NeighGen: impaired, with some nodes hidden, and augmented with generated nodes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dance_flwr.nn.propagation import operator


def nearest_distances(
    generated: Tensor, counts: Tensor, targets: Tensor, features: Tensor
) -> Tensor:
    """s_v = sum_{p < c_v} min_{u in T_v} ||x'_vp - x_u||^2, 0 where T_v is empty; -> [b].

    Parameters
    ----------
    generated : x', [b, P, F]
    counts : c, [b] int64
    targets : T, [b, D] int64 rows of `features`, padded with -1
    features : [n, F]
    """
    known = targets >= 0
    # Padded targets are infinitely far, so that the nearest is a real one.
    gap = generated.unsqueeze(2) - features[targets.clamp(min=0)].unsqueeze(1)
    square = gap.square().sum(dim=3).masked_fill(~known.unsqueeze(1), torch.inf)
    # Rows without a target would have an infinite minimum: 0 instead.
    used = within_counts(generated, counts)
    return torch.where(used & known.any(dim=1, keepdim=True), square.amin(dim=2), 0).sum(dim=1)


def feature_loss(generated: Tensor, counts: Tensor, targets: Tensor, features: Tensor) -> Tensor:
    """L_f = mean_v s_v / m_v over b nodes, m_v = |T_v|; 0 where no node lost a neighbour.

    Parameters as in `nearest_distances`, which returns s.
    """
    # At least 1: on clients of many small components most nodes have lost no neighbour.
    lost = (targets >= 0).sum(dim=1).clamp(min=1)
    distances = nearest_distances(generated, counts, targets, features)
    return (distances / lost).sum() / max(len(counts), 1)


def within_counts(generated: Tensor, counts: Tensor) -> Tensor:
    """Return the mask of the first c_v generated neighbours; [b, P, F], [b] -> [b, P] bool."""
    return torch.arange(generated.size(1), device=generated.device) < counts.unsqueeze(1)


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


def impair(
    rows: Tensor, cols: Tensor, visible: Tensor, hidden: Tensor, limit: int
) -> ImpairedGraph:
    """Remove the hidden nodes and their edges.

    Parameters
    ----------
    rows, cols : [E] int64, edges in both directions, ordered by row
    visible : [n] bool, nodes that training may see
    hidden : [n] bool, a subset of them
    limit : P
    """
    remaining = visible & ~hidden
    nodes = torch.nonzero(remaining).flatten()
    # Remaining nodes are renumbered from 0 in their order.
    position = torch.cumsum(remaining, 0) - 1
    inside = remaining[rows] & remaining[cols]
    lost = neighbour_table(rows, cols, hidden, limit)[nodes]
    return ImpairedGraph(nodes, position[rows[inside]], position[cols[inside]], lost)


def neighbour_table(rows: Tensor, cols: Tensor, eligible: Tensor, limit: int) -> Tensor:
    """Return the first `limit` eligible neighbours of each node, padded with -1; [n, limit] int64.

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
    table = torch.full((len(eligible), limit), -1, device=rows.device)
    # At most P targets, as at most P neighbours are generated.
    near = rank < limit
    table[rows[near], rank[near]] = cols[near]
    return table


def select_generated(nodes: Tensor, generated: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first c_v generated neighbours of each node: their nodes [g], features [g, F].

    Parameters
    ----------
    nodes : [b] int64; generated : [b, P, F]; counts : c, [b] int64
    """
    used = within_counts(generated, counts)
    return nodes.repeat_interleave(counts), generated[used]


def links_of(owners: Tensor) -> Tensor:
    """Return the link of each generated node to its owner; [g] -> [2, g] int64."""
    return torch.stack([torch.arange(len(owners), device=owners.device), owners])
