"""Links between generated and raw nodes, and the augmented graph."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dance_flwr.baselines.llm4fgl.predictor import EdgePredictor
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.nn.propagation import operator

CANDIDATES = 32  # nearest nodes of a generated one whose link is predicted
_ENTRIES = 2**22  # cosines in memory at a time
_ROWS = 1024  # generated nodes whose links are predicted at a time


@dataclass(frozen=True)
class AugmentedGraph:
    """A graph whose n nodes are followed by g generated ones.

    Attributes
    ----------
    features : [n + g, d]
    operator : [n + g, n + g] sparse, of the backbone's kind
    """

    features: Tensor
    operator: Tensor


def nearest(queries: Tensor, texts: Tensor, allowed: Tensor, most: int) -> Tensor:
    """Return the allowed texts of largest cosine, nearest first; [q, min(most, allowed)] int64.

    Parameters
    ----------
    queries : [q, d]; texts : [n, d], all of norm 1; allowed : [n] bool
    """
    nodes = torch.nonzero(allowed).flatten()
    width = min(most, len(nodes))
    if not len(queries) or not width:
        return nodes.new_zeros(len(queries), width)
    blocks = torch.split(queries, max(1, _ENTRIES // len(nodes)))
    among = texts[nodes]
    return torch.cat([nodes[(block @ among.T).topk(width, dim=1).indices] for block in blocks])


@torch.no_grad()
def link(
    predictor: EdgePredictor,
    generated: Tensor,
    texts: Tensor,
    allowed: Tensor,
    threshold: float,
    most: int,
) -> Tensor:
    """Return the pairs (generated node, raw node) with p > threshold; [2, l] int64.

    Each generated node has links to the `most` nodes of largest p among its 32 nearest. A generated
    node whose text no node resembles has none.

    Parameters
    ----------
    generated : [g, d]; texts : [n, d], all of norm 1
    allowed : [n] bool, nodes that may be linked
    """
    near = nearest(generated, texts, allowed, CANDIDATES)
    owner = torch.arange(len(generated), device=near.device)[:, None].expand_as(near)
    blocks = zip(torch.split(owner, _ROWS), torch.split(near, _ROWS), strict=True)
    logits = torch.cat([predictor(generated[own], texts[other]) for own, other in blocks])
    best = torch.sort(torch.sigmoid(logits), dim=1, descending=True, stable=True)
    chosen = best.values[:, :most] > threshold
    nodes = near.gather(1, best.indices)[:, :most]
    return torch.stack([owner[:, :most][chosen], nodes[chosen]])


def augment(
    graph: LocalGraph, features: Tensor, generated: Tensor, links: Tensor, kind: str
) -> AugmentedGraph:
    """Return the graph with generated nodes and their links, each in both directions.

    Parameters
    ----------
    features : [n, d]; generated : [g, d]; links : [2, l] int64, (generated node, raw node)
    kind : of the operator
    """
    rows, cols = graph.edges()
    added, nodes = links[0] + len(features), links[1]
    gates = torch.ones(len(rows), device=rows.device) if graph.gates is None else graph.gates
    weights = torch.cat([gates, gates.new_ones(2 * links.size(1))])
    rows, cols = torch.cat([rows, nodes, added]), torch.cat([cols, added, nodes])
    every = torch.cat([features, generated])
    return AugmentedGraph(every, operator(kind, rows, cols, weights, len(every)))
