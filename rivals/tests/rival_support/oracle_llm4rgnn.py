"""LLM4RGNN by loops over pairs: similar and dissimilar ones, the regression, the refined graph."""

import numpy as np


def cosine(features, first, second):
    """cos of two rows; 0 where one is zero."""
    a, b = features[first], features[second]
    return float(a @ b / max(np.linalg.norm(a), 1e-12) / max(np.linalg.norm(b), 1e-12))


def apart(adjacency, visible):
    """Visible pairs u < v without an edge."""
    n = len(adjacency)
    return [
        (u, v)
        for u in range(n)
        for v in range(u + 1, n)
        if visible[u] and visible[v] and not adjacency[u, v]
    ]


def least_similar(features, adjacency, visible, most):
    """The pairs of the lowest cosines, lowest first."""
    pairs = apart(adjacency, visible)
    return sorted(pairs, key=lambda pair: cosine(features, *pair))[:most]


def nearest(features, adjacency, visible, most):
    """For each node the nodes without an edge to it, most similar first."""
    found = [[] for _ in adjacency]
    for u, v in apart(adjacency, visible):
        found[u].append(v)
        found[v].append(u)
    return [
        sorted(row, key=lambda v, u=u: -cosine(features, u, v))[:most]
        for u, row in enumerate(found)
    ]


def left_out(inputs, targets, penalty):
    """What ridge regression predicts of each row without that row.

    Inputs have mean 0, and the intercept is the mean of all rows but the one, as the regression
    treats it: a column of ones that is not penalised.
    """
    predicted = []
    for out in range(len(inputs)):
        rest = [row for row in range(len(inputs)) if row != out]
        ones = np.ones((len(rest), 1))
        design = np.hstack([ones, inputs[rest]])
        ridge = penalty * np.eye(design.shape[1])
        ridge[0, 0] = 0
        weights = np.linalg.solve(design.T @ design + ridge, design.T @ targets[rest])
        predicted.append(float(np.r_[1, inputs[out]] @ weights))
    return np.array(predicted)


def refined(edges, scores, beta, candidates, gamma, most):
    """The pairs of the refined graph.

    Parameters
    ----------
    scores : of the edges, 0 = none
    candidates : for each node a list of (probability, other node)
    """
    pairs = {
        frozenset(pair)
        for pair, score in zip(edges, scores, strict=True)
        if score == 0 or score >= beta
    }
    for node, row in enumerate(candidates):
        probable = sorted((entry for entry in row if entry[0] > gamma), key=lambda e: -e[0])
        pairs |= {frozenset((node, other)) for _, other in probable[:most]}
    return pairs
