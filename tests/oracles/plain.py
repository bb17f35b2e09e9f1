"""The plain network by loops: a two-layer GCN on normalised texts, and losses of its nodes."""

import math

import numpy as np


def normalised(adjacency):
    """D^-1/2 (A + I) D^-1/2, dense."""
    loops = adjacency + np.eye(len(adjacency))
    root = np.sqrt(loops.sum(axis=1))
    return loops / root[:, None] / root[None, :]


def layer_norm(row, epsilon=1e-5):
    """One text, of mean 0 and variance 1."""
    mean = sum(row) / len(row)
    variance = sum((x - mean) ** 2 for x in row) / len(row)
    return [(x - mean) / math.sqrt(variance + epsilon) for x in row]


def matrix(values):
    """A tensor as float64."""
    return values.detach().double().numpy()


def probabilities(model, features, adjacency, labels=None):
    """Softmax of the logits, [n, C]; `labels` is the class that each node shows, -1 for none."""
    hop, backbone = normalised(matrix(adjacency)), model.backbone
    first, second = matrix(backbone.first.lin.weight), matrix(backbone.second.lin.weight)
    projected = np.array([first @ layer_norm(row) for row in matrix(features).tolist()])
    for node, label in enumerate([] if labels is None else labels):
        if label >= 0:
            projected[node] += matrix(model.label_weight)[:, label]
    hidden = np.maximum(hop @ projected + matrix(backbone.first.bias), 0)
    embedded = hop @ (hidden @ second.T) + matrix(backbone.second.bias)
    logits = embedded @ matrix(model.head_graph.weight).T + matrix(model.head_graph.bias)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def mean_loss(probs, targets):
    """Mean of -log p over {node: class}."""
    return sum(-math.log(probs[node, label]) for node, label in targets.items()) / len(targets)


def confident(probs, candidates, threshold):
    """{node: class} of the pseudo-labels."""
    confident = (node for node in candidates if max(probs[node]) >= threshold)
    return {node: int(np.argmax(probs[node])) for node in confident}
