"""Alg. 2 (label-aware node condensation) by loops over nodes and classes."""

from fractions import Fraction
from math import ceil, floor, log, sqrt


def argmax(row):
    """The first of the largest entries."""
    return max(range(len(row)), key=lambda c: (row[c], -c))


def pseudo_labels(probs, labels, tau):
    """eq:pseudo_label: labelled nodes always count; -1 = unassigned."""
    assigned = []
    for v in range(len(labels)):
        guess = argmax(probs[v])
        if labels[v] >= 0:
            assigned.append(labels[v])
        elif probs[v][guess] >= tau:
            assigned.append(guess)
        else:
            assigned.append(-1)
    return assigned


def difficulty(probs):
    """eq:difficulty: the entropy of each row, in nats."""
    return [-sum(p * log(p) for p in row if p > 0) for row in probs]


def node_budget(num_nodes, ratio):
    """K = ceil(r |V|) with r read as the decimal that a person wrote."""
    return ceil(Fraction(str(ratio)) * num_nodes)


def quotas(sizes, budget, labelled=()):
    """Largest remainder with exact fractions; no more than there is.

    Classes in `labelled` that get nothing take a node, the largest fraction first, from the class
    that is farthest above its share and keeps what it is entitled to.
    """
    total = sum(sizes)
    if total == 0:
        return [0] * len(sizes)
    budget = min(budget, total)
    shares = [Fraction(budget * size, total) for size in sizes]
    quota = [floor(share) for share in shares]
    order = sorted(range(len(sizes)), key=lambda c: (-(shares[c] - quota[c]), c))
    for c in order[: budget - sum(quota)]:
        quota[c] += 1
    for c in order:
        if c in labelled and quota[c] == 0:
            donors = [d for d in range(len(sizes)) if quota[d] > (1 if d in labelled else 0)]
            if donors:
                quota[max(donors, key=lambda d: (quota[d] - shares[d], -d))] -= 1
                quota[c] = 1
    return quota


def cosine(a, b):
    """cos(a, b)."""
    return (
        sum(x * y for x, y in zip(a, b, strict=True))
        / sqrt(sum(x * x for x in a))
        / sqrt(sum(y * y for y in b))
    )


def core(hidden, probs, labels, times, centroids, *, tau, ratio, penalty, labelled_first, at_least):
    """The core, ascending. `centroids[c]` is the list of class c's prototypes.

    Under `at_least` every class with a label has a node, as far as the budget goes.
    """
    assigned = pseudo_labels(probs, labels, tau)
    if all(label < 0 for label in assigned):
        assigned = [argmax(row) for row in probs]
    num_classes = len(probs[0])
    members = [[v for v in range(len(labels)) if assigned[v] == c] for c in range(num_classes)]
    least = {label for label in labels if label >= 0} if at_least else ()
    quota = quotas([len(nodes) for nodes in members], node_budget(len(labels), ratio), least)
    chosen = []
    for c in range(num_classes):
        score = {
            v: max(cosine(hidden[v], p) for p in centroids[c]) - penalty * times[v]
            for v in members[c]
        }
        order = sorted(members[c], key=lambda v: (labelled_first and labels[v] < 0, -score[v], v))
        chosen += order[: quota[c]]
    return sorted(chosen)


def turn(parts, quotas, number):
    """Core `number`, ascending: the next nodes of each class, one after the other, in a circle."""
    chosen = []
    for nodes, quota in zip(parts, quotas, strict=True):
        for _ in range(number):
            nodes = nodes[quota:] + nodes[:quota]
        chosen += nodes[:quota]
    return sorted(chosen)
