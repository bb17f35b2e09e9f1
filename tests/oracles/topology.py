"""Alg. 4 (self-expressive topology reconstruction) by loops over columns and entries of Z."""

from itertools import pairwise

import numpy as np


def clip(value):
    return min(max(value, 0.0), 1.0)


def prior(weights_i, weights_j, chunks):
    """S_ij, the expected cosine of a selected chunk of i and one of j; `weights`: {chunk: pi}."""
    total = 0.0
    for a, pi_a in weights_i.items():
        for b, pi_b in weights_j.items():
            norm = np.linalg.norm(chunks[a]) * np.linalg.norm(chunks[b])
            total += pi_a * pi_b * float(chunks[a] @ chunks[b]) / norm
    return clip(total)


def top(scores, i, most):
    """TopK over j != i, ties to the lower index."""
    others = [j for j in range(len(scores)) if j != i]
    return set(sorted(others, key=lambda j: (-scores[j], j))[:most])


def candidate_set(x, S, i, most):
    """eq:candidate_set."""
    return top([float(x[i] @ x[j]) for j in range(len(x))], i, most) | top(list(S[i]), i, most)


def coordinate_descent(x, S, supports, alpha, beta, sweeps):
    """Z [K, K], entry by entry: each entry in turn is set to its minimiser given the others."""
    size = len(x)
    Z = np.zeros((size, size))
    for i in range(size):
        rows = sorted(supports[i])
        for _ in range(sweeps):
            before = Z[:, i].copy()
            for j in rows:
                rest = x[i] - sum(Z[other, i] * x[other] for other in rows if other != j)
                pull, length = 2 * alpha * float(x[j] @ rest), 2 * alpha * float(x[j] @ x[j])
                left = max(abs(pull) - (beta + 1 - S[i][j]), 0.0)
                Z[j, i] = np.sign(pull) * left / length if length else 0.0
            if np.abs(Z[:, i] - before).max() < 1e-13:
                break
    return Z


def objective(x, S, Z, alpha, beta):
    """eq:self_expressive_sparse at a dense Z; x has nodes as rows."""
    X = np.asarray(x).T
    loss = alpha * np.linalg.norm(X - X @ Z, "fro") ** 2
    for i in range(len(x)):
        for j in range(len(x)):
            if i != j:
                loss += (beta + 1 - S[i][j]) * abs(Z[i, j])
    return loss


def adjacency(Z, most):
    """eq:adjacency: {(i, j): W_ij} where i or j has the other among its `most` largest entries of W
    = |Z| + |Z|^T.
    """
    size = len(Z)
    W = np.abs(Z) + np.abs(Z).T
    chosen = set()
    for i in range(size):
        present = [j for j in range(size) if W[i, j] > 0]
        for j in sorted(present, key=lambda j: (-W[i, j], j))[:most]:
            chosen |= {(i, j), (j, i)}
    return {(i, j): W[i, j] for i, j in sorted(chosen)}


def groups(x, classes, most):
    """Groups of at most `most` nodes: a class in the order of its first principal direction, cut
    into the fewest pieces of nearly equal size. The sign of the direction is free.
    """
    x, made = np.asarray(x), []
    centred = x - x.mean(0)
    direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    turned = max(classes.count(c) for c in classes) > most
    for c in sorted(set(classes)):
        members = [i for i in range(len(x)) if classes[i] == c]
        if turned:
            members = sorted(members, key=lambda i: float(centred[i] @ direction))
        pieces = -(-len(members) // most)
        ends = [k * len(members) // pieces for k in range(pieces + 1)]
        made += [members[a:b] for a, b in pairwise(ends)]
    return made


def candidate_set_within(x, S, i, group, most):
    """eq:candidate_set with j among the others of a group; ties go to the earlier one in it."""
    found = set()
    for scores in ([float(x[i] @ x[j]) for j in range(len(x))], list(S[i])):
        others = [j for j in group if j != i]
        found |= set(sorted(others, key=lambda j: -scores[j])[:most])
    return found
