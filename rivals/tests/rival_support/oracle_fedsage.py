"""FedSage+ by loops over nodes, generated neighbours and hidden neighbours."""

import numpy as np


def impaired(adjacency, visible, hidden, most):
    """Remaining nodes, adjacency among them, and at most `most` hidden neighbours of each."""
    nodes = [v for v in range(len(adjacency)) if visible[v] and not hidden[v]]
    among = np.array([[adjacency[u, v] for v in nodes] for u in nodes]).reshape(
        len(nodes), len(nodes)
    )
    lost = [
        [u for u in range(len(adjacency)) if adjacency[v, u] and hidden[u]][:most] for v in nodes
    ]
    return nodes, among, lost


def nearest(made, counts, targets, features):
    """s_v = sum_{p < c_v} min_u ||x'_vp - x_u||^2; 0 without targets."""
    total = np.zeros(len(made))
    for v, own in enumerate(targets):
        for p in range(min(counts[v], made.shape[1])):
            gaps = [((made[v, p] - features[u]) ** 2).sum() for u in own]
            total[v] += min(gaps) if gaps else 0
    return total


def feature_loss(made, counts, targets, features):
    """mean_v s_v / m_v."""
    found = nearest(made, counts, targets, features)
    shares = [total / len(own) for total, own in zip(found, targets, strict=True) if own]
    return sum(shares) / max(len(targets), 1)


def augmented(adjacency, owners):
    """[n + g, n + g]: generated node i is tied to owners[i], both ways."""
    n, g = len(adjacency), len(owners)
    whole = np.zeros((n + g, n + g))
    whole[:n, :n] = adjacency
    for i, owner in enumerate(owners):
        whole[n + i, owner] = whole[owner, n + i] = 1
    return whole
