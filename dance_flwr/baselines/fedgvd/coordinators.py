"""FedGVD's union of condensed graphs, connected by virtual coordinators, and training on it.

Dai et al., CIKM 2025. The union of the clients' graphs is disjoint. One coordinator per client,
with features 1, is linked to all nodes of that client and to all other coordinators, so that two
hops carry information from each client to the coordinators of all others. Coordinators have no
label and are in no loss. As every backbone here layer-normalises its input, features of ones become
zeros: a coordinator's representation comes from its neighbours alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.baselines.condensation.adjacency import union_edges
from dance_flwr.baselines.condensation.graphs import Condensed
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator


@dataclass(frozen=True)
class Union:
    """The connected union: condensed nodes of clients 0, 1, .., M - 1, then M coordinators.

    Attributes
    ----------
    features : [N + M, d], N = sum_k K_k
    labels : [N + M] int64, -1 for coordinators
    sizes : K_k of each client
    rows, cols, weights : [E], every edge in both directions
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


def unite(graphs: Sequence[Condensed]) -> Union:
    """Return the union of at least one condensed graph; an empty graph has a coordinator too."""
    sizes = tuple(len(graph.labels) for graph in graphs)
    nodes, clients = sum(sizes), len(sizes)
    graph_rows, graph_cols, weights = union_edges([graph.adjacency for graph in graphs])
    owners = torch.repeat_interleave(torch.arange(clients), torch.tensor(sizes))
    spokes = torch.stack([torch.arange(nodes), nodes + owners])
    ring = nodes + torch.nonzero(~torch.eye(clients, dtype=torch.bool)).T
    rows, cols = torch.cat(
        [torch.stack([graph_rows, graph_cols]), spokes, spokes.flip(0), ring], dim=1
    )
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
    """Train `model` in place on the labelled nodes of the union.

    Full-batch cross-entropy with a fresh Adam and without dropout, as in the public code.

    Returns
    -------
    the logits [K_k, C] of each client's rows afterwards
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
