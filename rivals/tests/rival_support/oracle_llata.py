"""LLaTA by loops: structural entropy, its minimum, gains of moves, propagated labels."""

import math

import numpy as np


def entropy(edges, nodes, parents):
    """Bits of a tree; `parents` as of `Tree`, each a list."""
    total, degree = 2 * len(edges), [0] * nodes
    for a, b in edges:
        degree[a] += 1
        degree[b] += 1
    if not edges:
        return 0.0
    bits, above = 0.0, list(range(nodes))  # the tree node of this level that each leaf is in
    for parent in [*parents, None]:
        upper = [0] * nodes if parent is None else [parent[place] for place in above]
        for place in set(above):
            inside = {v for v in range(nodes) if above[v] == place}
            around = {v for v in range(nodes) if upper[v] == upper[next(iter(inside))]}
            volume = sum(degree[v] for v in inside)
            cut = sum((a in inside) != (b in inside) for a, b in edges)
            if volume:
                outer = total if parent is None else sum(degree[v] for v in around)
                bits -= cut / total * math.log2(volume / outer)
        above = upper
    return bits


def partitions(nodes):
    """Every way to group 0..n-1."""
    rows = [[]]
    for _ in range(nodes):
        rows = [[*row, label] for row in rows for label in range(max(row, default=-1) + 2)]
    return rows


def least_entropy(edges, nodes):
    """The minimum over all trees of height 2."""
    return min(entropy(edges, nodes, [group]) for group in partitions(nodes))


def cosine(x, y):
    """Of two vectors; 0 with a vector of zeros."""
    scale = math.sqrt(sum(v * v for v in x)) * math.sqrt(sum(v * v for v in y))
    return sum(v * w for v, w in zip(x, y, strict=True)) / scale if scale else 0.0


def gain(labels, community, node):
    """(gain, community) of a leaf's best move."""

    def mean(members):
        if not members:
            return [1.0] * len(labels[0])
        return [sum(labels[v][c] for v in members) for c in range(len(labels[0]))]

    by = {j: [v for v, own in enumerate(community) if own == j and v != node] for j in community}
    own = cosine(labels[node], mean(by[community[node]]))
    others = [(cosine(labels[node], mean(by[j])), -j) for j in by if j != community[node]]
    best, minus = max(others, default=(-math.inf, 0))
    return best - own, -minus


def propagated(edges, nodes, labels, classes, node, folds, steps, alpha):
    """Scores of one node's classes, without the training labels of its fold."""
    known = [v for v in range(nodes) if labels[v] >= 0]
    fold = {v: place % folds for place, v in enumerate(known)}
    start = np.zeros((nodes, classes))
    for v in known:
        if node not in fold or fold[v] != fold[node]:
            start[v, labels[v]] = 1
    near = {v: [v] for v in range(nodes)}
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    scores = start.copy()
    for _ in range(steps):
        new = np.zeros_like(scores)
        for v in range(nodes):
            for u in near[v]:
                new[v] += scores[u] / math.sqrt(len(near[v]) * len(near[u]))
        scores = alpha * new + (1 - alpha) * start
    if scores[node].sum() > 0:
        return scores[node] / scores[node].sum()
    shares = np.array([1 + sum(labels[v] == c for v in known) for c in range(classes)])
    return shares / shares.sum()
