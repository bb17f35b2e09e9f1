"""What FedC4's server makes of condensed nodes: groups of clients, nodes worth exchanging, a graph
over them.

Chen, Li, Zhu, Li and Wang, "Rethinking Client-oriented Federated Graph Learning", CIKM 2025, arXiv
2504.14188. The stages have the paper's names: client selector, node selector, graph rebuilder.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.methods.condensation.matching import Condensed, standard

Chosen = dict[int, Tensor]  # client -> rows of its S, ascending, int64


def groups_of(embeddings: Mapping[int, Tensor], groups: int) -> dict[int, int]:
    """Client selector: average linkage of d_kj = W_1({||e|| : e in E_k}, {||e|| : e in E_j}), cut
    into `groups`.

    Clients without a condensed node are in no group.

    Parameters
    ----------
    embeddings : client -> E_k, [K_k, h]
    """
    clients = [client for client, own in embeddings.items() if len(own)]
    if len(clients) <= groups:
        return {client: number for number, client in enumerate(clients)}
    from sklearn.cluster import (
        AgglomerativeClustering,
    )  # seconds to import, and of use to this method's server alone

    distances = apart(
        [torch.linalg.vector_norm(embeddings[client], dim=1).numpy() for client in clients]
    )
    found = AgglomerativeClustering(
        n_clusters=groups, metric="precomputed", linkage="average"
    ).fit_predict(distances)
    return dict(zip(clients, found.tolist(), strict=True))


def apart(samples: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """W_1 of each pair of samples on the line; M arrays -> [M, M], symmetric with a zero diagonal."""
    from scipy.stats import wasserstein_distance

    found = np.zeros((len(samples), len(samples)))
    for left, right in zip(*np.triu_indices(len(samples), 1), strict=True):
        found[left, right] = found[right, left] = wasserstein_distance(
            samples[left], samples[right]
        )
    return found


def chosen_for(
    client: int, embeddings: Mapping[int, Tensor], groups: Mapping[int, int], threshold: float
) -> Chosen:
    """Node selector: rows e of the other clients of the group with cos(e, mean of E_k) > threshold."""
    mean = embeddings[client].mean(0, keepdim=True)
    chosen = {}
    for other, group in groups.items():
        if other != client and group == groups[client]:
            # Rounding may lift a cosine above 1, which a threshold of 1 must refuse.
            cosine = F.cosine_similarity(embeddings[other], mean).clamp(-1, 1)
            chosen[other] = torch.nonzero(cosine > threshold).flatten()
    return chosen


def exchanged(own: Condensed, graphs: Mapping[int, Condensed], chosen: Chosen) -> Condensed:
    """Return the rows of `own`, then the chosen ones; A' as it was within a client, none between
    two.
    """
    parts = [own] + [_rows(graphs[other], rows) for other, rows in chosen.items()]
    features, labels = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("features", "labels")
    )
    return Condensed(labels, features, torch.block_diag(*(part.adjacency for part in parts)))  # type: ignore[no-untyped-call]


def _rows(graph: Condensed, rows: Tensor) -> Condensed:
    return Condensed(graph.labels[rows], graph.features[rows], graph.adjacency[rows][:, rows])


def rebuilt(
    features: Tensor, similarity_weight: float, sparsity_weight: float, steps: int
) -> Tensor:
    """Graph rebuilder: min over Z of ||X - Z X||_F^2 + sum_ij (lambda_s (1 - S_ij) + lambda_1)
    Z_ij; [N, d] -> [N, N].

    Z is symmetric, at least 0, and 0 on the diagonal; S_ij = cos(x_i, x_j), rows of X of unit norm.
    The problem is convex: accelerated proximal gradient (Beck and Teboulle 2009) from Z = 0,
    `steps` steps of N^2 min(N, 2 d).

    Deviations. The public code lets a node express itself and clears the diagonal afterwards: at
    the minimum Z is then close to I and nothing is left. It starts at N(0, 1) and takes 100 steps
    of Adam of 0.01, far from any minimum, and takes S of the rows of Z itself. Its weights, 500 and
    100, are those of 1.3 and 0.26 here for rows that are layer-normalised, of squared norm d = 384;
    for rows of unit norm they would leave no edge.

    Parameters
    ----------
    features : X, in any scale: rows are layer-normalised, then of unit norm
    similarity_weight, sparsity_weight : lambda_s, lambda_1
    """
    unit = F.normalize(standard(features), dim=1)
    gram = unit @ unit.T
    size = len(gram)
    if size < 2:
        return torch.zeros_like(gram)
    penalty = similarity_weight * (1 - gram) + sparsity_weight
    low_rank = 2 * unit.size(1) < size  # Z X X^T from the left is then the shorter way
    largest = torch.linalg.eigvalsh(unit.T @ unit if low_rank else gram)[-1]
    step = 1 / (2 * largest.clamp(min=torch.finfo(gram.dtype).tiny))
    found = ahead = torch.zeros_like(gram)
    momentum = 1.0
    for _ in range(steps):
        slope = 2 * ((ahead @ unit @ unit.T if low_rank else ahead @ gram) - gram)
        moved = torch.relu(ahead - step * ((slope + slope.T) / 2 + penalty)).fill_diagonal_(0)
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = moved + (momentum - 1) / following * (moved - found)
        found, momentum = moved, following
    return (found + found.T) / 2  # products of floats are symmetric up to rounding
