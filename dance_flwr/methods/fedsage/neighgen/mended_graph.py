"""Mending: generated nodes join the graph, each tied to the node that misses it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dance_flwr.nn.propagation import operator


@dataclass(frozen=True)
class Generated:
    """Generated nodes: whose neighbours they are, [g] int64, and their features, [g, F]."""

    owners: Tensor
    features: Tensor


def chosen(nodes: Tensor, made: Tensor, counts: Tensor) -> Generated:
    """Return the first c_v generated neighbours of each node; [b] int64, [b, P, F], [b] int64."""
    used = torch.arange(made.size(1), device=made.device) < counts.unsqueeze(1)
    return Generated(nodes.repeat_interleave(counts), made[used])


def mended_operator(kind: str, rows: Tensor, cols: Tensor, owners: Tensor, nodes: int) -> Tensor:
    """Return the propagation operator of a graph and its generated nodes, [n + g, n + g] sparse; g
    follow the n.

    Each generated node has an edge in both directions: messages flow from source to target, so that
    real -> generated edges alone, as in one public code, would change no real node.

    Parameters
    ----------
    rows, cols : [E] int64, every edge both ways; owners : [g] int64
    """
    added = torch.arange(nodes, nodes + len(owners), device=rows.device)
    rows, cols = torch.cat([rows, owners, added]), torch.cat([cols, added, owners])
    return operator(
        kind, rows, cols, torch.ones(len(rows), device=rows.device), nodes + len(owners)
    )
