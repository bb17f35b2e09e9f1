"""LLM4FGL in loops: links, the augmented graph, feedback and quality."""

import numpy as np


def nearest(queries, texts, allowed, most):
    """Allowed rows of `texts` by descending cosine, for each query."""
    rows = []
    for query in queries:
        order = sorted(
            (node for node in range(len(texts)) if allowed[node]),
            key=lambda node: -query @ texts[node],
        )
        rows.append(order[:most])
    return rows


def links(probability, near, threshold, most):
    """Pairs (generated, raw): the `most` candidates of largest p, where p > threshold."""
    pairs = []
    for generated, candidates in enumerate(near):
        order = sorted(candidates, key=lambda node: -probability(generated, node))
        pairs += [
            (generated, node) for node in order[:most] if probability(generated, node) > threshold
        ]
    return pairs


def feedback(confidence, predicted, classes):
    """Sums and counts per class."""
    table = np.zeros((2, classes))
    for value, label in zip(confidence, predicted, strict=True):
        table[0, label] += value
        table[1, label] += 1
    return table


def quality(confidence, predicted, table):
    """Confidence less the mean of its class over all clients; the mean of an empty class is 0."""
    return [
        value - (table[0, label] / table[1, label] if table[1, label] else 0)
        for value, label in zip(confidence, predicted, strict=True)
    ]
