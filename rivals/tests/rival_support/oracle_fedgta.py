"""FedGTA by loops, from the steps of its card."""

import numpy as np
from oracles.plain import normalised


def propagate(start, known, adjacency, steps, alpha):
    """The last Y, [n, C]."""
    operator, spread = normalised(adjacency), start.copy()
    for _ in range(steps):
        new = np.zeros_like(spread)
        for v in range(len(start)):
            for u in range(len(start)):
                new[v] += alpha * operator[v, u] * spread[u]
            new[v] += (1 - alpha) * start[v]
            if known[v]:
                new[v] += start[v]
        spread = new
    return spread


def moments(rows, order):
    """Raw, then central moments, each by order and class."""
    n, classes = rows.shape
    centre = [sum(rows[v, c] for v in range(n)) / n for c in range(classes)]
    made = []
    for about in (0, 1):
        for p in range(1, order + 1):
            made += [
                sum((rows[v, c] - about * centre[c]) ** p for v in range(n)) / n
                for c in range(classes)
            ]
    return np.array(made)


def models(moments_, confidence, states, epsilon):
    """The next model of each client, [m, size]."""
    made = []
    for k, own in enumerate(moments_):
        cosine = [own @ other / (np.linalg.norm(own) * np.linalg.norm(other)) for other in moments_]
        chosen = [j for j in range(len(states)) if j == k or cosine[j] > epsilon]
        total = sum(confidence[j] for j in chosen)
        made.append(sum(confidence[j] * states[j] for j in chosen) / total)
    return np.stack(made)
