"""The augmented graph: generated nodes, each linked to the node whose neighbour it is."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dance_flwr.baselines.fedsage.neighgen.losses import within_counts
from dance_flwr.nn.propagation import operator


@dataclass(frozen=True)
class GeneratedNodes:
    """Generated nodes.

    Attributes
    ----------
    owners : [g] int64, the node whose neighbour each one is
    features : [g, F]
    """

    owners: Tensor
    features: Tensor


def select_generated(nodes: Tensor, generated: Tensor, counts: Tensor) -> GeneratedNodes:
    """Return the first c_v generated neighbours of each node.

    Parameters
    ----------
    nodes : [b] int64; generated : [b, P, F]; counts : c, [b] int64
    """
    used = within_counts(generated, counts)
    return GeneratedNodes(nodes.repeat_interleave(counts), generated[used])


def augmented_operator(kind: str, rows: Tensor, cols: Tensor, owners: Tensor, nodes: int) -> Tensor:
    """Return the propagation operator of a graph and its generated nodes, [n + g, n + g] sparse.

    The g generated nodes follow the n real ones. Each has an edge in both directions: messages
    flow from source to target, so that edges from real to generated nodes alone, as in one public
    code, would change no real node.

    Parameters
    ----------
    rows, cols : [E] int64, edges in both directions; owners : [g] int64; nodes : n
    """
    added = torch.arange(nodes, nodes + len(owners), device=rows.device)
    rows, cols = torch.cat([rows, owners, added]), torch.cat([cols, added, owners])
    weights = torch.ones(len(rows), device=rows.device)
    return operator(kind, rows, cols, weights, nodes + len(owners))
