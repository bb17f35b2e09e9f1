"""Condensed graphs glued by virtual coordinators, and the network that learns on them (FedGVD, Dai
et al. 2025).

The union of the clients' graphs is disjoint; one coordinator per client, of features 1, is linked
to all nodes of that client and to all other coordinators, so that two hops carry something of each
client to each other one's coordinator. Coordinators have no label and are in no loss. As every
backbone here layer-normalises what it reads, features of ones enter as zeros: what a coordinator
says is what its neighbours say.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.methods.condensation.adjacency import union_edges
from dance_flwr.methods.condensation.matching import Condensed
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator


@dataclass(frozen=True)
class Union:
    """The glued graph: the condensed nodes of client 0, 1, .., M - 1 in this order, then M
    coordinators.

    Attributes
    ----------
    features : [N + M, d], N = sum_k K_k; labels : [N + M] int64, -1 of coordinators; sizes : K_k of
        each client
    rows, cols, weights : [E], every edge both ways
    """

    features: Tensor
    labels: Tensor
    sizes: tuple[int, ...]
    rows: Tensor
    cols: Tensor
    weights: Tensor

    def operator(self, kind: str) -> Tensor:
        """Return the propagation operator, [N + M, N + M] sparse."""
        return operator(kind, self.rows, self.cols, self.weights, len(self.labels))


def united(graphs: Sequence[Condensed]) -> Union:
    """Return the union of at least one condensed graph, with a coordinator for each, be it empty."""
    sizes = tuple(len(graph.labels) for graph in graphs)
    nodes, clients = sum(sizes), len(sizes)
    own_rows, own_cols, weights = union_edges([graph.adjacency for graph in graphs])
    owners = torch.repeat_interleave(torch.arange(clients), torch.tensor(sizes))
    spokes = torch.stack([torch.arange(nodes), nodes + owners])
    ring = nodes + torch.nonzero(~torch.eye(clients, dtype=torch.bool)).T
    rows, cols = torch.cat([torch.stack([own_rows, own_cols]), spokes, spokes.flip(0), ring], dim=1)
    return Union(
        features=torch.cat(
            [*(graph.features for graph in graphs), torch.ones(clients, graphs[0].features.size(1))]
        ),
        labels=torch.cat([*(graph.labels for graph in graphs), torch.full((clients,), -1)]),
        sizes=sizes,
        rows=rows,
        cols=cols,
        weights=torch.cat([weights, torch.ones(len(rows) - len(weights))]),
    )


def teach(model: PlainModel, union: Union, steps: int, rate: float) -> list[Tensor]:
    """Train `model` in place on the labelled nodes of the union; return the logits [K_k, C] of each
    client's rows.

    Full-batch cross-entropy with a fresh Adam and without dropout, as in the public code; zeros
    where no node has a label.
    """
    graph, known = union.operator(model.backbone.operator), union.labels >= 0
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    model.eval()
    for _ in range(steps if bool(known.any()) else 0):
        optimizer.zero_grad()
        logits = model.graph_logits(model.backbone(union.features, graph))
        F.cross_entropy(logits[known], union.labels[known]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        logits = model.graph_logits(model.backbone(union.features, graph))
    return list(logits[: sum(union.sizes)].split(union.sizes))  # type: ignore[no-untyped-call]
