"""The server side of FedC4: FedAvg, and for each client condensed nodes of similar clients.

Three stages (Chen et al., CIKM 2025) group the clients, select the nodes to send, and rebuild a
graph over them.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.server_side import Channel, Merged, State, Upload
from dance_flwr.nn.model import ModelShape
from dance_flwr_rivals.condensation.graphs import (
    GRAPH,
    Condensed,
    graph_fault,
    graph_in,
    layer_normalise,
    shapes_fault,
)
from dance_flwr_rivals.fedc4 import FedC4Config
from dance_flwr_rivals.stateful import StatefulServerSide

Selection = dict[int, Tensor]  # client -> rows of its S, ascending, int64


def group_clients(embeddings: Mapping[int, Tensor], groups: int) -> dict[int, int]:
    """Client selector: average linkage of d_kj = W_1({||e|| : e in E_k}, {||e|| : e in E_j}).

    Returns client -> number of its group. Clients without a condensed node are in no group.

    Parameters
    ----------
    embeddings : client -> E_k, [K_k, h]
    groups : number of groups
    """
    clients = [client for client, rows in embeddings.items() if len(rows)]
    # A client per group: there is nothing to cluster.
    if len(clients) <= groups:
        return {client: number for number, client in enumerate(clients)}
    # Takes seconds to import, and only this method's server needs it.
    from sklearn.cluster import AgglomerativeClustering

    norms = [torch.linalg.vector_norm(embeddings[client], dim=1).numpy() for client in clients]
    # Average linkage of the Wasserstein distances, as in the public code.
    clustering = AgglomerativeClustering(n_clusters=groups, metric="precomputed", linkage="average")
    numbers = clustering.fit_predict(wasserstein_distances(norms))
    return dict(zip(clients, numbers.tolist(), strict=True))


def wasserstein_distances(samples: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """W_1 of each pair of one-dimensional samples; [M, M], symmetric with a zero diagonal."""
    from scipy.stats import wasserstein_distance

    distances = np.zeros((len(samples), len(samples)))
    for left, right in zip(*np.triu_indices(len(samples), 1), strict=True):
        distance = wasserstein_distance(samples[left], samples[right])
        distances[left, right] = distances[right, left] = distance
    return distances


def select_nodes(
    client: int, embeddings: Mapping[int, Tensor], groups: Mapping[int, int], threshold: float
) -> Selection:
    """Node selector: the rows e of other clients of the group with cos(e, mean E_k) > threshold."""
    mean = embeddings[client].mean(0, keepdim=True)
    selection = {}
    for other, group in groups.items():
        if other != client and group == groups[client]:
            # Rounding may lift a cosine above 1, which a threshold of 1 must not accept.
            cosine = F.cosine_similarity(embeddings[other], mean).clamp(-1, 1)
            selection[other] = torch.nonzero(cosine > threshold).flatten()
    return selection


def append_selected(
    condensed: Condensed, graphs: Mapping[int, Condensed], selection: Selection
) -> Condensed:
    """Return a client's rows, then the selected ones; A' keeps the edges within each client."""
    parts = [(graphs[other], rows) for other, rows in selection.items()]
    labels = torch.cat([condensed.labels, *(graph.labels[rows] for graph, rows in parts)])
    features = torch.cat([condensed.features, *(graph.features[rows] for graph, rows in parts)])
    blocks = [condensed.adjacency, *(graph.adjacency[rows][:, rows] for graph, rows in parts)]
    return Condensed(labels, features, torch.block_diag(*blocks))  # type: ignore[no-untyped-call]


def rebuild_graph(
    features: Tensor, similarity_weight: float, sparsity_weight: float, steps: int
) -> Tensor:
    """Graph rebuilder: min_Z ||X - Z X||_F^2 + sum_ij (lambda_s (1 - S_ij) + lambda_1) Z_ij.

    Z is symmetric, non-negative, and 0 on the diagonal; S_ij = cos(x_i, x_j), rows of X of unit
    norm; [N, d] -> [N, N]. The problem is convex: accelerated proximal gradient (Beck and Teboulle
    2009) from Z = 0, `steps` steps of N^2 min(N, 2 d) operations.

    Deviations. The public code lets a node represent itself and clears the diagonal afterwards: at
    the minimum Z is then close to I and nothing is left. It starts at N(0, 1) and takes 100 Adam
    steps at a learning rate of 0.01, far from any minimum, and computes S from the rows of Z
    itself. Its weights, 500 and 100, correspond to 1.3 and 0.26 here: its rows are layer-normalised
    with squared norm d = 384; for rows of unit norm they would leave no edge.

    Parameters
    ----------
    features : X, in any scale; rows are layer-normalised, then scaled to unit norm
    similarity_weight, sparsity_weight : lambda_s, lambda_1
    """
    # Rows of unit norm, the scale to which both weights refer.
    unit = F.normalize(layer_normalise(features), dim=1)
    gram = unit @ unit.T
    size = len(gram)
    if size < 2:
        return torch.zeros_like(gram)
    # S is the cosine of rows of X; the public code takes rows of Z, which is what it solves for.
    penalty = similarity_weight * (1 - gram) + sparsity_weight
    low_rank = 2 * unit.size(1) < size  # Z X X^T is then cheaper from the left
    largest = torch.linalg.eigvalsh(unit.T @ unit if low_rank else gram)[-1]
    # Step 1 / L with L = 2 lambda_max(X X^T), the Lipschitz constant of the gradient.
    step = 1 / (2 * largest.clamp(min=torch.finfo(gram.dtype).tiny))
    current = extrapolated = torch.zeros_like(gram)
    momentum = 1.0
    for _ in range(steps):
        # Gradient step, then the proximal map of non-negative entries; the symmetric part of the
        # gradient keeps Z symmetric, and a zero diagonal keeps nodes from representing themselves.
        slope = 2 * ((extrapolated @ unit @ unit.T if low_rank else extrapolated @ gram) - gram)
        moved = torch.relu(extrapolated - step * ((slope + slope.T) / 2 + penalty)).fill_diagonal_(
            0
        )
        # Nesterov's momentum as in FISTA.
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        extrapolated = moved + (momentum - 1) / following * (moved - current)
        current, momentum = moved, following
    return (current + current.T) / 2  # float products are symmetric only up to rounding


class FedC4Server(StatefulServerSide):
    """omega <- sum_k n_k omega_k / sum_k n_k; client k is sent the output of `selectors`.

    Both depend only on the uploads of earlier rounds, so that a resumed run gives the same result.
    A graph is rebuilt only when the selected nodes have changed. The history counts the nodes that
    were sent.
    """

    statistics = ("embeddings",)
    once = GRAPH

    def __init__(self, config: RunConfig, shape: ModelShape) -> None:
        super().__init__(config, shape)
        self._settings = FedC4Config.of(config)
        # Condensed graphs, embeddings and groups of the clients that have uploaded.
        self.graphs: dict[int, Condensed] = {}
        self.embeddings: dict[int, Tensor] = {}
        self.groups: dict[int, int] = {}
        # In this round: seconds of selecting and rebuilding, nodes sent.
        self._seconds, self._nodes = 0.0, 0
        # client -> its last selection, and the graph over it
        self._rebuilt: dict[int, tuple[str, Tensor]] = {}

    def before_round(self, round_: int, channel: Channel) -> None:
        """Group the clients that have uploaded."""
        begin, self._nodes = time.perf_counter(), 0
        # From uploads of earlier rounds, which the checkpoint has: a resumed run selects the same
        # nodes.
        collected = {client: self.collected(client) for client in self.holders()}
        self.graphs = {client: graph_in(upload) for client, upload in collected.items()}
        self.embeddings = {client: upload["embeddings"] for client, upload in collected.items()}
        self.groups = group_clients(self.embeddings, self._settings.groups)
        self._seconds = time.perf_counter() - begin

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return "features" and "labels" of other clients' rows, and the "adjacency" of all rows.

        Empty before the client's first upload, and for a client without condensed nodes.
        """
        if client not in self.groups:
            return {}
        begin = time.perf_counter()
        threshold = self._settings.threshold
        selection = select_nodes(client, self.embeddings, self.groups, threshold)
        graph = append_selected(self.graphs[client], self.graphs, selection)
        adjacency = self._adjacency(client, selection, graph)
        # A client has its own rows already, so that only the others are sent.
        rows = len(self.graphs[client].labels)
        self._nodes += len(graph.labels) - rows
        self._seconds += time.perf_counter() - begin
        return {
            "features": graph.features[rows:],
            "labels": graph.labels[rows:],
            "adjacency": adjacency,
        }

    def upload_fault(self, client: int, statistics: Mapping[str, Tensor]) -> str:
        """Return a fault of S if it was uploaded, or of its embeddings, one per row of S."""
        if GRAPH[0] in statistics:
            if fault := graph_fault(statistics, self.shape.text_dim, self.shape.classes):
                return fault
            rows = len(statistics["labels"])
        else:
            # S was stored in an earlier round: embeddings must have as many rows.
            rows = len(self.collected(client)["labels"])
        shape = (rows, self.shape.hidden_dim)
        return shapes_fault(statistics, {"embeddings": (torch.float32, shape)})

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the mean, the server's seconds ("rebuild") and the number of nodes sent."""
        merged = super().merge(uploads, start, bound, round_)
        return replace(
            merged, seconds={"rebuild": self._seconds}, counts={"nodes-given": self._nodes}
        )

    def _adjacency(self, client: int, selection: Selection, graph: Condensed) -> Tensor:
        """Return the graph over own and selected rows, rebuilt if the selection has changed."""
        settings = self._settings
        if not settings.rebuild:
            return graph.adjacency
        # Rebuilt for another selection only: X' never changes, so that the same rows give the same
        # graph.
        name = str({other: rows.tolist() for other, rows in selection.items()})
        last, adjacency = self._rebuilt.get(client, ("", graph.adjacency))
        if last != name:
            weights = settings.similarity_weight, settings.sparsity_weight
            adjacency = rebuild_graph(graph.features, *weights, settings.rebuild_steps)
            self._rebuilt[client] = name, adjacency
        return adjacency
